"""A race as a document: the confirmed answer first, then the variants, every run, and the speeds of all variants."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import polars as pl

from enginebench.analysis.answer import TuneAnswer, TuneOutcome
from enginebench.analysis.document import (
    Cell,
    Column,
    Document,
    NextStep,
    Number,
    Section,
    Table,
    Tone,
    Warning,
    Word,
    count,
)
from enginebench.analysis.frame import SCHEMA as FRAME
from enginebench.analysis.frame import Frame, cells, frame_of
from enginebench.analysis.sections.figures import pareto
from enginebench.analysis.sections.setup import setup
from enginebench.analysis.sections.warnings import warnings
from enginebench.analysis.stats.repeats import mcnemar
from enginebench.analysis.stats.student_t import t_quantile
from enginebench.records.exit_codes import GOOD, NOT_ENOUGH
from enginebench.records.metrics import GOODPUT
from enginebench.records.rules import SIGNIFICANCE
from enginebench.records.view import Estimate
from enginebench.settings.schema import UserMistake
from enginebench.studies.tune.confirmation import LOOKS
from enginebench.studies.tune.course import Course
from enginebench.studies.tune.folder import RUNS
from enginebench.studies.tune.goals import GOALS
from enginebench.studies.tune.runner import TuneRunner
from enginebench.studies.tune.score import NoScore, summary_of

OUTLYING = 4.0  # a run this many spreads below its variant's median is an outlier
VARIANT = Column("variant", text=True)


def tune_document(runner: TuneRunner, command: Sequence[str]) -> Document:
    """Report on a race that has at least one round."""
    course, frame = runner.course, _frame(runner)
    scoring = GOALS[runner.question.goal]
    answer = _answer(course, scoring.measure, frame)
    # Variants are compared within rounds, not over the repeats that they have in common.
    rest = (warning for warning in warnings(frame) if warning.kind != "not_interleaved")
    warned = (*_outliers(course), *rest)
    sections = (_history(runner, scoring.unit), _failures(runner.reasons), setup(frame))
    ratios = [(name, "ratio in the race", ratio) for name, ratio in _ratios(course).items()]
    ratios += [(course.winner, "confirmed ratio", answer.ratio)] if course.winner else []
    rows = [{"engine": name} | cells(scoring.measure, statistic, "", ratio) for name, statistic, ratio in ratios]
    return Document(
        title="Tuning",
        tested=frame.tested,
        objectives=frame.objectives,
        answer=answer,
        candidates=variants_table(course, scoring.measure),
        figure=pareto(frame),
        next=_next(runner, answer, command),
        warnings=warned,
        sections=tuple(section for section in sections if section.blocks),
        frame=pl.concat([frame.table, pl.DataFrame(rows, schema=FRAME)]),
        exit_code=GOOD if answer.outcome in {TuneOutcome.CONFIRMED, TuneOutcome.NONE} else NOT_ENOUGH,
    )


def variants_table(course: Course, measure: str) -> Table:
    """Show the survivors, the leader first, then the dropped variants, then the failed ones."""
    ratios, standings = _ratios(course), () if course.fit is None else course.fit.standings
    order = [*course.left, *ratios, *course.variants]
    runs = {standing.variant: standing.runs for standing in standings}
    columns = (VARIANT, Column(f"{measure}, confirmed"), Column("in the race", rank=1), Column("runs", rank=2))
    rows: list[tuple[Cell, ...]] = []
    for name in sorted(course.variants, key=lambda name: (name in course.failed, order.index(name))):
        confirmed = course.confirmation.ratio if name == course.winner else Estimate(None)
        fresh = len(course.pairs) if course.winner and name in {course.winner, course.default} else 0
        rows.append(
            (
                Word(name),
                None if confirmed.value is None else Number(confirmed, style="ratio"),
                Number(ratios[name], style="ratio") if name in ratios else None,
                count(runs.get(name, 0) + fresh),
                _state(name, course),
            )
        )
    title = f"Variants, against {course.default}"
    return Table("candidates", title, (*columns, Column("state", text=True)), tuple(rows), 0).without_empty_columns()


def _state(name: str, course: Course) -> Word:
    if name in course.failed:
        return Word("failed", Tone.BAD)
    if name == course.winner:
        confirmed = course.confirmation.outcome is TuneOutcome.CONFIRMED
        return Word("confirmed", Tone.GOOD) if confirmed else Word("led the race")
    if name in course.left:
        return Word("racing" if len(course.left) > 1 else "led the race")
    return Word("compared with") if course.winner and name == course.default else Word("dropped", Tone.DIM)


def _ratios(course: Course) -> Mapping[str, Estimate]:
    """Return the ratio of each score in the race to the default's, the best first. The ratios confirm nothing."""
    if course.fit is None:
        return {}
    default = next(standing for standing in course.fit.standings if standing.variant == course.default)
    ratios = {}
    for standing in course.fit.standings:
        ratio = standing.effect - default.effect
        half = (
            0.0 if standing is default else t_quantile(course.fit.freedom) * math.hypot(standing.error, default.error)
        )
        value, low, high = map(math.exp, (ratio, ratio - half, ratio + half))
        ratios[standing.variant] = Estimate(value, low, high, standing.runs)
    return ratios


def _frame(runner: TuneRunner) -> Frame:
    """Read the runs that have a score, each under its variant's name and with its round as the repeat."""
    summaries = []
    for record in runner.records.values():
        if record.score is not None:
            try:
                summaries.append(summary_of(runner.folder / RUNS / record.run))
            except NoScore:  # its records were deleted
                continue
    default = runner.course.default
    if not any(summary.label == default for summary in summaries):
        raise UserMistake(f"{runner.folder / RUNS} lacks the records of {default}: tune again in another --folder.")
    return frame_of(summaries, default)


def _answer(course: Course, measure: str, frame: Frame) -> TuneAnswer:
    confirmation, done = course.confirmation, len(course.pairs)
    next_look = next((look - done for look in LOOKS if look > done), None)
    return TuneAnswer(
        outcome=confirmation.outcome,
        winner=course.winner,
        default=course.default,
        measure=measure,
        ratio=confirmation.ratio,
        unmet=not any(stage.value(GOODPUT) for stage in frame.engine(course.default).stages),
        variants=len(course.variants),
        left=len(course.left),
        more=next_look if confirmation.outcome is TuneOutcome.OPEN else confirmation.more,
    )


def _history(runner: TuneRunner, unit: str) -> Section:
    columns = (Column("round"), Column("part", text=True), VARIANT, Column("score", unit), Column("took", "s", rank=1))
    rows: list[tuple[Cell, ...]] = [
        (
            count(record.round + 1),
            Word("confirmation" if record.fresh else "race"),
            Word(record.variant),
            Word("failed", Tone.BAD) if record.score is None else Number(Estimate(record.score)),
            Number(Estimate(record.seconds)),
        )
        for record in runner.records.values()
    ]
    table = Table("history", "Runs in their order", columns, tuple(rows), 2)
    return Section("history", "The race and the confirmation", (table,), folded=True)


def _failures(reasons: Mapping[str, str]) -> Section:
    rows: list[tuple[Cell, ...]] = [(Word(name, Tone.BAD), Word(reason)) for name, reason in reasons.items()]
    table = Table("failed", "Failed variants", (VARIANT, Column("reason", text=True)), tuple(rows))
    return Section("failed", table.title, (table,) if rows else ())


def _outliers(course: Course) -> Iterator[Warning]:
    """Warn if the winner and the default have outlying runs at unequal rates."""
    if course.fit is None or len(course.pairs) < 2:
        return
    n, names = len(course.pairs), (course.winner, course.default)
    outlying: list[set[int]] = []
    for name in names:
        scores = [pair[name] for pair in course.pairs]
        limit = median(scores) - OUTLYING * course.fit.spread
        outlying.append({number for number, score in enumerate(scores) if score < limit})
    ours, theirs = outlying
    if mcnemar(len(ours - theirs), len(theirs - ours)) <= SIGNIFICANCE:
        evidence = f"{len(ours)} of {n} runs of {names[0]} were outlying, and {len(theirs)} of {names[1]}"
        yield Warning("unequal_outliers", "warn", evidence, "find out what slows them, and tune again")


def _next(runner: TuneRunner, answer: TuneAnswer, command: Sequence[str]) -> NextStep | None:
    """Serve the winner, continue with missing rounds, or confirm only the leader."""
    if answer.outcome is TuneOutcome.NONE:
        return None
    if answer.outcome is TuneOutcome.OPEN:
        return NextStep("continue_tune", tuple(command))
    names = {"variant": answer.winner}
    if answer.outcome is TuneOutcome.NOT_CONFIRMED:
        return NextStep("confirm_alone", names=names)
    contender = runner.variants[answer.winner].contender
    words = shlex.split(contender.restart)
    if contender.engine:
        words = ["enginebench", "serve", contender.engine]
        words += ["--model", contender.model] if contender.model else []
        words += [word for option in contender.options for word in ("-o", option)]
    return NextStep("serve", tuple(words), names=names)
