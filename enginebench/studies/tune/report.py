"""A race as a document: the confirmed answer first, the race's variants, its history and the speeds of all variants."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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
from enginebench.records.view import Estimate
from enginebench.studies.tune.course import Course
from enginebench.studies.tune.folder import RunRecord, read_runs
from enginebench.studies.tune.race import Standing
from enginebench.studies.tune.runner import TuneRunner
from enginebench.studies.tune.score import MEASURES, NoScore, summary_of

OUTLYING = 4.0  # spreads below a variant's median: such a run is an outlying one
UNEQUAL = 0.05  # p value of unequal rates of outlying runs


@dataclass(frozen=True, slots=True)
class Row:
    """A variant of the race. `ratio` is of its score to the default's in the same rounds, and confirms nothing."""

    variant: str
    runs: int
    ratio: Estimate
    state: str
    tone: Tone


def rows_of(course: Course, variants: Sequence[str]) -> list[Row]:
    """Return the variants in order: the survivors, those that were dropped, those that failed."""
    standings = {} if course.fit is None else {standing.variant: standing for standing in course.fit.standings}
    places = {name: place for place, name in enumerate((*course.left, *standings, *variants))}
    ranks = {name: (name in course.failed, name not in course.left, places.get(name, 0)) for name in variants}
    return [_row(name, standings, course, variants[0]) for name in sorted(variants, key=lambda name: ranks[name])]


def _row(name: str, standings: dict[str, Standing], course: Course, default: str) -> Row:
    standing, base = standings.get(name), standings.get(default)
    if name in course.failed:
        return Row(name, 0, Estimate(None), f"failed: {course.failed[name]}", Tone.BAD)
    state, tone = ("racing", Tone.PLAIN) if name in course.left else ("dropped", Tone.DIM)
    if course.left == (name,):
        confirmed = course.confirmation.outcome is TuneOutcome.CONFIRMED
        state, tone = ("confirmed", Tone.GOOD) if confirmed else ("led the race", Tone.PLAIN)
    elif name == default and not course.in_race:
        state, tone = "compared with", Tone.PLAIN
    if standing is None or base is None:
        return Row(name, 0, Estimate(None), state, tone)
    ratio = standing.effect - base.effect
    low = high = None
    if name != default and course.fit is not None:
        half = t_quantile(course.fit.freedom) * math.hypot(standing.error, base.error)
        low, high = math.exp(ratio - half), math.exp(ratio + half)
    return Row(name, standing.runs, Estimate(math.exp(ratio), low, high, standing.runs), state, tone)


def tune_document(runner: TuneRunner, command: Sequence[str]) -> Document:
    """Raises `UserMistake` if nothing was measured."""
    course, records = runner.course, read_runs(runner.folder)
    names = [variant.name for variant in runner.variants]
    frame = _frame(runner, records, names)
    rows = rows_of(course, names)
    answer = _answer(runner, course, names, frame)
    # Variants are compared within rounds, not over the repeats that they have in common.
    rest = (warning for warning in warnings(frame) if warning.kind != "not_interleaved")
    warned = (*_outliers(course, names[0]), *rest)
    pictured = pareto(frame)
    sections = (
        _history(runner, records),
        _failures(course),
        setup(frame),
        warnings_section(warned),
    )
    return Document(
        title="Tuning",
        tested=frame.tested,
        objectives=frame.tier,
        answer=answer,
        candidates=_table(rows, course, names[0], answer),
        figure=pictured,
        next=_next(runner, answer, command),
        warnings=warned,
        sections=tuple(section for section in sections if section.blocks),
        frame=pl.concat([frame.table, _numbers(rows, answer)]),
        exit_code=GOOD if answer.outcome in {TuneOutcome.CONFIRMED, TuneOutcome.NONE} else NOT_ENOUGH,
    )


def _frame(runner: TuneRunner, records: Sequence[RunRecord], names: Sequence[str]) -> Frame:
    """Read the runs that have a score, each variant under its name and with its round as the repeat."""
    summaries = []
    for record in records:
        if record.score is not None and record.path is not None:
            try:
                summary = summary_of(runner.folder / record.path)
            except NoScore:  # its records were deleted
                continue
            summaries.append(replace(summary, label=record.variant, repeat=record.round))
    return frame_of(summaries, names[0])


def _answer(runner: TuneRunner, course: Course, names: Sequence[str], frame: Frame) -> TuneAnswer:
    winner = course.left[0] if len(course.left) == 1 and course.left[0] != names[0] else ""
    confirmation = course.confirmation
    measure, _ = MEASURES[runner.facts.goal]
    return TuneAnswer(
        outcome=confirmation.outcome,
        winner=winner,
        default=names[0],
        measure=measure,
        ratio=confirmation.ratio,
        unmet=not any(stage.value(GOODPUT) for stage in frame.engine(names[0]).stages),
        variants=len(names),
        left=len(course.left),
        more=confirmation.more,
    )


def _table(rows: Sequence[Row], course: Course, default: str, answer: TuneAnswer) -> Table:
    columns = (
        Column("variant", text=True),
        Column(f"{answer.measure}, confirmed"),
        Column("in the race", rank=1),
        Column("runs", rank=2),
        Column("state", text=True),
    )
    cells: list[tuple[Cell, ...]] = [
        (
            Word(row.variant),
            Number(answer.ratio, style="ratio")
            if row.variant == answer.winner and answer.ratio.value is not None
            else None,
            None if row.ratio.value is None else Number(row.ratio, style="ratio"),
            count(row.runs + (len(course.pairs) if row.variant in {answer.winner, default} else 0)),
            Word(row.state.partition(":")[0], row.tone),
        )
        for row in rows
    ]
    return Table("candidates", f"Variants, against {default}", columns, tuple(cells), 0).without_empty_columns()


def _history(runner: TuneRunner, records: Sequence[RunRecord]) -> Section:
    """Show every run: the rounds of the race, then the fresh ones."""
    _, unit = MEASURES[runner.facts.goal]
    headings = (
        Column("round"),
        Column("part", text=True),
        Column("variant", text=True),
        Column("score", unit),
        Column("start", "s", rank=1),
    )
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
    table = Table("history", "Runs in their order", headings, tuple(rows), 2)
    return Section("history", "The race and the confirmation", (table.without_empty_columns(),), folded=True)


def _failures(course: Course) -> Section:
    rows: list[tuple[Cell, ...]] = [(Word(name, Tone.BAD), Word(reason)) for name, reason in course.failed.items()]
    columns = (Column("variant", text=True), Column("reason", text=True))
    table = Table("failed", "Failed variants", columns, tuple(rows))
    return Section("failed", "Failed variants", (table,) if rows else ())


def _outliers(course: Course, default: str) -> Iterator[Warning]:
    """Warn if the winner and the default have outlying runs at unequal rates (Fisher's exact test)."""
    if len(course.pairs) < 2 or course.fit is None:
        return
    (winner,) = course.left
    counts = []
    for name in (winner, default):
        scores = sorted(pair[name] for pair in course.pairs)
        limit = scores[len(scores) // 2] - OUTLYING * course.fit.spread
        counts.append(sum(score < limit for score in scores))
    n = len(course.pairs)
    table = [[bad, n - bad] for bad in counts]
    if fisher_exact(table).pvalue <= UNEQUAL:
        evidence = f"{counts[0]} of {n} runs of {winner} were outlying, and {counts[1]} of {default}"
        yield Warning("unequal_outliers", "warn", evidence, "repeat the confirmation, and find out what slows them")


def _next(runner: TuneRunner, answer: TuneAnswer, command: Sequence[str]) -> NextStep | None:
    """Serve the winner; go on with what is missing; or confirm the leader alone, in fresh rounds."""
    if answer.outcome is TuneOutcome.OPEN:
        return NextStep("continue_tune", tuple(command))
    if not answer.winner or answer.outcome is TuneOutcome.NONE:
        return None
    variant = runner.variant(answer.winner)
    if answer.outcome is TuneOutcome.CONFIRMED:
        contender = variant.contender
        serve = ["enginebench", "serve", contender.engine] + (["--model", contender.model] if contender.model else [])
        serve += [word for option in contender.options for word in ("-o", option)]
        words = shlex.split(variant.command) if variant.command else serve if contender.engine else []
        return NextStep("serve", tuple(words), names={"variant": answer.winner})
    return NextStep("confirm_alone", names={"variant": answer.winner, "more": str(answer.more)})


def _numbers(rows: Sequence[Row], answer: TuneAnswer) -> pl.DataFrame:
    numbers = [{"engine": row.variant} | cells(answer.measure, "ratio in the race", "", row.ratio) for row in rows]
    if answer.ratio.value is not None:
        numbers.append({"engine": answer.winner} | cells(answer.measure, "confirmed ratio", "", answer.ratio))
    return pl.DataFrame(numbers, schema=FRAME)
