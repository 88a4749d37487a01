"""A burst or an outage: the periods before, during and after it, and TTFT against time."""

from __future__ import annotations

from enginebench.analysis.answer import BurstAnswer
from enginebench.analysis.document import (
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
)
from enginebench.analysis.frame import Frame
from enginebench.analysis.summary.recovery import Disruption
from enginebench.records.metrics import TTFT
from enginebench.records.view import Estimate

PERIODS = ("before", "during", "after", "recovered")


def first_disruption(frame: Frame) -> tuple[str, Disruption] | None:
    """The first one of the best engine's first run that has one."""
    found = [(run.label, disruption) for run in frame.runs for disruption in run.disruptions]
    return found[0] if found else None


def answer(engine: str, disruption: Disruption) -> BurstAnswer:
    return BurstAnswer(
        engine=engine,
        command=disruption.command,
        absorbed=disruption.absorbed,
        peak=disruption.peak,
        recovered=disruption.slo_recovered if disruption.judged else disruption.recovered,
        judged=disruption.judged,
        failed=disruption.failed,
    )


def periods(disruption: Disruption) -> Table:
    """The candidates' place on the first screen."""
    rows: list[tuple[Cell, ...]] = []
    names = PERIODS[: len(disruption.periods)]
    for name, period in zip(names, disruption.periods, strict=True):
        failed = Number(Estimate(float(period.failed)), style="count", tone=Tone.BAD if period.failed else Tone.PLAIN)
        within = None
        if period.within is not None:
            within = Number(Estimate(period.within, n=period.requests), "share", "part")
        rows.append(
            (
                Word(name),
                Number(Estimate(period.requests / (period.end - period.start) if period.end > period.start else None)),
                Number(Estimate(float(period.requests)), style="count"),
                failed if disruption.failed else None,
                within,
                Number(Estimate(period.ttft_p50), "s"),
                Number(Estimate(period.ttft_p95), "s"),
                Number(Estimate(period.ttft_longest), "s"),
                Number(Estimate(float(period.most_in_flight)), style="count"),
            )
        )
    headings = (
        *(
            Column("", text=True),
            Column("req/s"),
            Column("requests"),
            Column("failed"),
            Column("within the SLO"),
        ),
        *(Column("TTFT p50"), Column("TTFT p95"), Column("longest TTFT"), Column("most in flight", rank=2)),
    )
    return Table(
        "periods", "Before, during and after, without warm-up and cool-down", headings, tuple(rows)
    ).without_empty_columns()


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
    """All of them, by engine and run."""
    blocks: list[Block] = []
    for run in frame.runs:
        for number, disruption in enumerate(run.disruptions, 1):
            table = periods(disruption)
            title = f"{run.label}, repeat {run.repeat + 1}: {disruption.command or 'burst'}"
            blocks.append(Table(f"periods-{run.run_id}-{number}", title, table.columns, table.rows))
    return Section("disruptions", "Bursts and outages", tuple(blocks))
