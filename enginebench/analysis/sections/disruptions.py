"""A burst or an outage: the periods before, during and after it, and TTFT against time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from enginebench.analysis.answer import BurstAnswer
from enginebench.analysis.document import (
    REQUESTS,
    Axis,
    Block,
    Cell,
    Column,
    Figure,
    Number,
    Point,
    Section,
    Series,
    Span,
    Table,
    Tone,
    Word,
    count,
    part,
)
from enginebench.analysis.frame import Frame
from enginebench.analysis.summary.recovery import Disruption
from enginebench.records.metrics import TTFT
from enginebench.records.view import Estimate

PERIODS = "periods"  # key of the table
AFTER = {True: ("until met again", "met again"), False: ("until as before", "as before")}  # with an SLO, without


def worst_disruption(frame: Frame) -> tuple[Disruption, ...]:
    """Return the worst disruption of the first run that has any, then the others in the same window."""
    disruptions = next((run.disruptions for run in frame.runs if run.disruptions), ())
    ordered = sorted(disruptions, key=_severity, reverse=True)
    return tuple(disruption for disruption in ordered if disruption.first_tokens == ordered[0].first_tokens)


def _severity(disruption: Disruption) -> tuple[bool, float]:
    return disruption.over_after is None, disruption.peak or 0.0


def answer(engine: str, disruptions: Sequence[Disruption]) -> BurstAnswer:
    """Answer by the first disruption, the worst, with the longest TTFT and recovery of all."""
    disruption = disruptions[0]
    after = [part.over_after for part in disruptions]
    recovered = None if None in after else max(filter(None, after), default=0.0)
    return BurstAnswer(
        engine=engine,
        command=disruption.command,
        absorbed=disruption.absorbed,
        peak=max((part.peak for part in disruptions if part.peak is not None), default=None),
        recovered=recovered,
        judged=disruption.judged,
        failed=disruption.failed,
        within=disruption.periods[-1].within if recovered is None else None,
        total=len(disruptions),
        unabsorbed=sum(not part.absorbed for part in disruptions),
    )


def worst_periods(disruptions: Sequence[Disruption]) -> Table:
    """Show the first disruption, the worst, in place of the candidates."""
    worst = disruptions[0]
    number = 1 + sum(part.start < worst.start for part in disruptions)
    kind, warm_up = worst.command or "burst", worst.periods[0].start
    title = f"Before, during and after the {kind}"
    if len(disruptions) > 1:
        why = "which did not recover" if worst.over_after is None else "with the longest TTFT"
        title = f"During and after {kind} {number} of {len(disruptions)}, {why}"
    title += f"; the warm-up of {warm_up:.0f} s is left out" if warm_up >= 1 and number == 1 else ""
    return replace(periods(worst, number), title=title)


def periods(disruption: Disruption, number: int = 1) -> Table:
    """Show the periods before the first disruption of the window, and during and after this one."""
    rows: list[tuple[Cell, ...]] = []
    kind = disruption.command or "burst"
    before = "before" if number == 1 else f"before {kind} 1"
    after = AFTER[disruption.judged] if len(disruption.periods) > 3 else ("after",)
    names = (before, "during", *after)[: len(disruption.periods)]
    for name, period in zip(names, disruption.periods, strict=True):
        seconds = period.end - period.start
        rows.append(
            (
                Word(name),
                Number(Estimate(seconds), "s"),
                Number(Estimate(period.requests / seconds if seconds > 0 else None)),
                count(period.requests),
                count(period.failed, Tone.BAD if period.failed else Tone.PLAIN) if disruption.failed else None,
                None if period.within is None else part(period.within, period.requests),
                *(Number(Estimate(t), "s") for t in (period.ttft_p50, period.ttft_p95, period.ttft_longest)),
                count(period.most_in_flight),
            )
        )
    numbers = ("failed", "within the limits", "TTFT p50", "TTFT p95", "longest TTFT")
    headings = (Column("", text=True), Column("duration"), Column("req/s"), REQUESTS, *map(Column, numbers))
    headings = (*headings, Column("peak in flight", rank=2))
    return Table(PERIODS, "", headings, tuple(rows)).without_empty_columns()


def figure(frame: Frame, engine: str, disruptions: Sequence[Disruption]) -> Figure:
    """Draw TTFT of each request against the instant it was due, with the SLO's limit. `disruptions` share a window; the
    end of the first disruption, the worst, has a label."""
    points = tuple(Point(due, ttft) for due, ttft in disruptions[0].first_tokens)
    limit = next((objective.limit for objective in frame.objectives if objective.metric == TTFT), None)
    ends = [(part.end, part.over_after) for part in disruptions]
    label = AFTER[disruptions[0].judged][1]
    marks = [Point(end + after, None, label=label) for end, after in ends if after is not None]
    return Figure(
        key="disruption",
        title="TTFT of each request by time",
        kind="time",
        x=Axis("time", "s"),
        y=Axis("TTFT", "s"),
        series=(Series(engine, points),),
        limit=limit,
        spans=tuple(Span(part.start, part.end, part.command or "burst", Tone.CAUTION) for part in disruptions),
        marks=tuple(mark if number == 0 else replace(mark, label="") for number, mark in enumerate(marks)),
    )


def disruptions(frame: Frame) -> Section:
    """Return the sections of all disruptions, by engine and run."""
    blocks: list[Block] = []
    for run in frame.runs:
        for number, disruption in enumerate(run.disruptions, 1):
            table = periods(disruption, number)
            title = f"{run.label}, repeat {run.repeat + 1}: {disruption.command or 'burst'}"
            blocks.append(Table(f"periods-{run.run_id}-{number}", title, table.columns, table.rows))
    return Section("disruptions", "Bursts and outages", tuple(blocks))
