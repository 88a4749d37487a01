"""A race as a document: the confirmed answer first, then the variants, every run, and the speeds of all variants."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl
from scipy.stats import fisher_exact

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
from enginebench.analysis.reports import GOOD, NOT_ENOUGH
from enginebench.analysis.sections.figures import pareto
from enginebench.analysis.sections.setup import setup
from enginebench.analysis.sections.warnings import warnings, warnings_section
from enginebench.analysis.stats.student_t import t_quantile
from enginebench.records.metrics import GOODPUT
from enginebench.records.view import NO_SAMPLES, Estimate
from enginebench.studies.tune.confirmation import LOOKS, MIN_PAIRS
from enginebench.studies.tune.course import Course
from enginebench.studies.tune.folder import RunRecord, read_runs
from enginebench.studies.tune.runner import TuneRunner
from enginebench.studies.tune.score import MEASURES, NoScore, summary_of

OUTLYING = 4.0  # spreads below a variant's median: such a run is an outlying one
UNEQUAL = 0.05  # p value of unequal rates of outlying runs


def tune_document(runner: TuneRunner, command: Sequence[str]) -> Document:
    """Report on a race of which the default has at least one run."""
    course, records = runner.course, read_runs(runner.folder)
    frame = _frame(runner, records)
    measure, unit = MEASURES[runner.facts.goal]
    answer = _answer(runner, course, frame)
    # Variants are compared within rounds, not over the repeats that they have in common.
    rest = (warning for warning in warnings(frame) if warning.kind != "not_interleaved")
    warned = (*_outliers(course, answer), *rest)
    sections = (_history(records, unit), _failures(course), setup(frame), warnings_section(warned))
    numbers = [{"engine": name} | cells(measure, "ratio in the race", "", r) for name, r in _ratios(course).items()]
    numbers += (
        [{"engine": answer.winner} | cells(measure, "confirmed ratio", "", answer.ratio)] if answer.winner else []
    )
    return Document(
        title="Tuning",
        tested=frame.tested,
        objectives=frame.objectives,
        answer=answer,
        candidates=variants_table(course, measure),
        figure=pareto(frame),
        next=_next(runner, answer, command),
        warnings=warned,
        sections=tuple(section for section in sections if section.blocks),
        frame=pl.concat([frame.table, pl.DataFrame(numbers, schema=FRAME)]),
        exit_code=GOOD if answer.outcome in {TuneOutcome.CONFIRMED, TuneOutcome.NONE} else NOT_ENOUGH,
    )


def variants_table(course: Course, measure: str) -> Table:
    """Show the survivors first, the leader before the others, then what was dropped, then what failed."""
    default, ratios = course.variants[0], _ratios(course)
    places = {name: place for place, name in enumerate((*course.left, *ratios, *course.variants))}
    ranks = {name: (name in course.failed, name not in course.left, places[name]) for name in course.variants}
    runs = {} if course.fit is None else {standing.variant: standing.runs for standing in course.fit.standings}
    columns = (
        Column("variant", text=True),
        Column(f"{measure}, confirmed"),
        Column("in the race", rank=1),
        Column("runs", rank=2),
        Column("state", text=True),
    )
    rows: list[tuple[Cell, ...]] = []
    for name in sorted(course.variants, key=lambda name: ranks[name]):
        leads = course.left == (name,) and name != default
        fresh = len(course.pairs) if leads or name == default else 0
        confirmed = course.confirmation.ratio if leads else NO_SAMPLES
        rows.append(
            (
                Word(name),
                None if confirmed.value is None else Number(confirmed, style="ratio"),
                Number(ratios[name], style="ratio") if name in ratios else None,
                count(runs.get(name, 0) + fresh),
                _state(name, course),
            )
        )
    return Table("candidates", f"Variants, against {default}", columns, tuple(rows), 0).without_empty_columns()


def _state(name: str, course: Course) -> Word:
    if name in course.failed:
        return Word("failed", Tone.BAD)
    if course.left == (name,):
        confirmed = course.confirmation.outcome is TuneOutcome.CONFIRMED
        return Word("confirmed", Tone.GOOD) if confirmed else Word("led the race")
    if name in course.left:
        return Word("racing")
    return Word("compared with") if name == course.variants[0] and not course.in_race else Word("dropped", Tone.DIM)


def _ratios(course: Course) -> Mapping[str, Estimate]:
    """Return each score in the race to the default's, the best first. They confirm nothing."""
    if course.fit is None:
        return {}
    default = next(standing for standing in course.fit.standings if standing.variant == course.variants[0])
    ratios = {}
    for standing in course.fit.standings:
        ratio = standing.effect - default.effect
        half = t_quantile(course.fit.freedom) * math.hypot(standing.error, default.error)
        ends = (0.0, 0.0) if standing is default else (ratio - half, ratio + half)
        low, high = map(math.exp, ends)
        ratios[standing.variant] = Estimate(math.exp(ratio), low, high, standing.runs)
    return ratios


def _frame(runner: TuneRunner, records: Sequence[RunRecord]) -> Frame:
    """Read the runs that have a score, each variant under its name and with its round as the repeat."""
    summaries = []
    for record in records:
        if record.score is not None:
            try:
                summary = summary_of(runner.place(record.round, record.variant))
            except NoScore:  # its records were deleted
                continue
            summaries.append(replace(summary, label=record.variant, repeat=record.round))
    return frame_of(summaries, runner.variants[0].name)


def _answer(runner: TuneRunner, course: Course, frame: Frame) -> TuneAnswer:
    default = course.variants[0]
    return TuneAnswer(
        outcome=course.confirmation.outcome,
        winner=course.left[0] if len(course.left) == 1 and course.left[0] != default else "",
        default=default,
        measure=MEASURES[runner.facts.goal][0],
        ratio=course.confirmation.ratio,
        unmet=not any(stage.value(GOODPUT) for stage in frame.engine(default).stages),
        variants=len(course.variants),
        left=len(course.left),
        more=course.confirmation.more,
    )


def _history(records: Sequence[RunRecord], unit: str) -> Section:
    names = (Column("part", text=True), Column("variant", text=True))
    columns = (Column("round"), *names, Column("score", unit), Column("start", "s", rank=1))
    rows: list[tuple[Cell, ...]] = [
        (
            count(record.round + 1),
            Word("confirmation" if record.fresh else "race"),
            Word(record.variant),
            Word("failed", Tone.BAD) if record.score is None else Number(Estimate(record.score)),
            Number(Estimate(record.starting)) if record.starting else None,
        )
        for record in records
    ]
    table = Table("history", "Runs in their order", columns, tuple(rows), 2).without_empty_columns()
    return Section("history", "The race and the confirmation", (table,), folded=True)


def _failures(course: Course) -> Section:
    rows: list[tuple[Cell, ...]] = [(Word(name, Tone.BAD), Word(reason)) for name, reason in course.failed.items()]
    table = Table("failed", "Failed variants", (Column("variant", text=True), Column("reason", text=True)), tuple(rows))
    return Section("failed", table.title, (table,) if rows else ())


def _outliers(course: Course, answer: TuneAnswer) -> Iterator[Warning]:
    """Warn if the winner and the default have outlying runs at unequal rates (Fisher's exact test)."""
    if course.fit is None or len(course.pairs) < 2:
        return
    n, counts = len(course.pairs), []
    for name in (answer.winner, answer.default):
        scores = sorted(pair[name] for pair in course.pairs)
        counts.append(sum(score < scores[n // 2] - OUTLYING * course.fit.spread for score in scores))
    if fisher_exact([[outlying, n - outlying] for outlying in counts]).pvalue <= UNEQUAL:
        evidence = f"{counts[0]} of {n} runs of {answer.winner} were outlying, and {counts[1]} of {answer.default}"
        yield Warning("unequal_outliers", "warn", evidence, "find out what slows them, and tune again")


def _next(runner: TuneRunner, answer: TuneAnswer, command: Sequence[str]) -> NextStep | None:
    """Serve the winner, go on with what is missing, or confirm the leader alone in fresh rounds."""
    if answer.outcome is TuneOutcome.OPEN:
        return NextStep("continue_tune", tuple(command))
    if answer.outcome is TuneOutcome.NOT_CONFIRMED:
        pairs = math.ceil((answer.more or 0) / LOOKS)
        return NextStep("confirm_alone", names={"variant": answer.winner, "pairs": str(max(pairs, MIN_PAIRS))})
    if answer.outcome is TuneOutcome.NONE:
        return None
    variant = next(variant for variant in runner.variants if variant.name == answer.winner)
    contender, words = variant.contender, shlex.split(variant.command)
    if contender.engine:
        words = ["enginebench", "serve", contender.engine]
        words += ["--model", contender.model] if contender.model else []
        words += [word for option in contender.options for word in ("-o", option)]
    return NextStep("serve", tuple(words), names={"variant": answer.winner})
