"""A burst or an outage: the periods before, during and after it, and TTFT against time."""

from __future__ import annotations

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

BURST = ("before", "during", "after")
RECOVERED_BURST = ("before", "during", "recovering", "recovered")


def first_disruption(frame: Frame) -> tuple[str, Disruption] | None:
    """The first one of the best engine's first run that has one."""
    return next(((run.label, disruption) for run in frame.runs for disruption in run.disruptions), None)


def answer(engine: str, disruption: Disruption) -> BurstAnswer:
    recovered = disruption.slo_recovered if disruption.judged else disruption.recovered
    return BurstAnswer(
        engine=engine,
        command=disruption.command,
        absorbed=disruption.absorbed,
        peak=disruption.peak,
        recovered=recovered,
        judged=disruption.judged,
        failed=disruption.failed,
        within=disruption.periods[-1].within if recovered is None else None,
    )


def periods(disruption: Disruption) -> Table:
    """The candidates' place on the first screen."""
    rows: list[tuple[Cell, ...]] = []
    names = (BURST if len(disruption.periods) <= len(BURST) else RECOVERED_BURST)[: len(disruption.periods)]
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
    numbers = ("failed", "within the SLO", "TTFT p50", "TTFT p95", "longest TTFT")
    headings = (Column("", text=True), Column("time"), Column("req/s"), REQUESTS, *map(Column, numbers))
    headings = (*headings, Column("most in flight", rank=2))
    warm_up = disruption.periods[0].start
    title = "Before, during and after" + (f"; the warm-up of {warm_up:.0f} s is left out" if warm_up >= 1 else "")
    return Table("periods", title, headings, tuple(rows)).without_empty_columns()


def figure(frame: Frame, engine: str, disruption: Disruption) -> Figure:
    """TTFT of each request against the instant it was due, with the limit of the SLO."""
    points = tuple(Point(due, ttft) for due, ttft in disruption.first_tokens)
    limit = next((objective.limit for objective in frame.tier if objective.metric == TTFT), None)
    ended = disruption.slo_recovered if disruption.judged else disruption.recovered
    marks = () if ended is None else (Point(disruption.end + ended, None, label="recovered"),)
    return Figure(
        key="disruption",
        title="TTFT of each request by time",
        kind="time",
        x=Axis("time", "s"),
        y=Axis("TTFT", "s"),
        series=(Series(engine, points),),
        limit=limit,
        limit_title="SLO" if limit is not None else "",
        spans=(Span(disruption.start, disruption.end, disruption.command or "burst", Tone.CAUTION),),
        marks=marks,
    )


def disruptions(frame: Frame) -> Section:
    """Return the sections of all disruptions, by engine and run."""
    blocks: list[Block] = []
    for run in frame.runs:
        for number, disruption in enumerate(run.disruptions, 1):
            table = periods(disruption)
            title = f"{run.label}, repeat {run.repeat + 1}: {disruption.command or 'burst'}"
            blocks.append(Table(f"periods-{run.run_id}-{number}", title, table.columns, table.rows))
    return Section("disruptions", "Bursts and outages", tuple(blocks))
