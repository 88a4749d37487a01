"""Check of a burst, or of a killed or replaced server: its effect on users, and when it was over.

A request is within the band if its TTFT is no longer than that of 95 % of the requests before the disruption. Latency
is back when of 20 requests in a row no more than 3 are outside it: by chance alone that fails in 1.6 % of cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from enginebench.analysis.arrays import Floats
from enginebench.analysis.data.formulas import expression
from enginebench.analysis.data.load import RunData
from enginebench.analysis.data.windows import Window, windows_of
from enginebench.records.formatting import counted, format_seconds
from enginebench.records.formula import Field
from enginebench.records.load import Rate
from enginebench.records.rules import attempted, percentile
from enginebench.records.run import READY, STARTED
from enginebench.records.stage import SECOND, Nanoseconds
from enginebench.records.view import Evidence, Severity, StageView

BAND = 0.95
IN_A_ROW, OUTSIDE = 20, 3


@dataclass(frozen=True, slots=True)
class Disruption:
    """Nanoseconds since the run's start; an event has no length."""

    what: str
    start: Nanoseconds
    end: Nanoseconds
    is_event: bool = False


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds. `back` counts from the disruption's end; `None` where latency did not come back before the next one."""

    band: float
    peak: float | None  # longest TTFT (user) of those whose first token came after it began
    failed: int  # since it began, also of those that were in flight then
    back: float | None


def recovery(run: RunData, stages: Sequence[StageView]) -> Iterator[Evidence]:
    """One for each disruption that fell into a steady window."""
    for window in windows_of(run):
        requests = window.scheduled(run.requests)
        disruptions = sorted([*_events(run, window), *_bursts(window)], key=lambda disruption: disruption.start)
        ends = [*(following.start for following in disruptions[1:]), window.end]
        for disruption, end in zip(disruptions, ends, strict=False):
            effect = recover(requests, disruptions[0].start, disruption, end)
            if effect is not None:
                severity: Severity = "note" if effect.back is not None else "warn"
                yield Evidence(severity, _words(run, disruption, effect), window.key)


def _events(run: RunData, window: Window) -> Iterator[Disruption]:
    for event in run.meta.events:
        if window.start < event.t < window.end:
            yield Disruption(f"`{event.what}`", event.t, event.t, is_event=True)


def _bursts(window: Window) -> Iterator[Disruption]:
    """The highest parts of a cycle of rates, as far as they lie in the window and something else came before."""
    load = window.load
    if not isinstance(load, Rate) or not load.cycle:
        return
    peak = max(rate for rate, _ in load.cycle)
    at = float(window.stage.start)
    while at < window.end:
        for rate, seconds in load.cycle:
            start, at = at, at + seconds * SECOND
            if rate == peak and start > window.start and at < window.end:
                yield Disruption(f"the burst to {rate:g} req/s", round(start), round(at))


def recover(requests: pl.DataFrame, before: Nanoseconds, disruption: Disruption, until: Nanoseconds) -> Recovery | None:
    """`requests` of one window in the order of `t_sched`; the band is that of those that had ended `before`.

    `None` where fewer than 20 tell what the band is, or more than 5 % of them failed.
    """
    ttft = expression(attempted(Field("ttft_user")))  # null where it was cut off or unsent
    rows = requests.select("t_sched", "t_first", "t_end", ttft=ttft).drop_nulls("ttft")
    usual = np.sort(rows.filter(pl.col("t_end") < before)["ttft"].to_numpy())
    if len(usual) < IN_A_ROW:
        return None
    band = percentile(usual, BAND)
    if np.isinf(band):
        return None
    since = rows.filter(pl.col("t_sched").is_between(disruption.start, until, closed="left"))
    # Those that waited for their first token when it began felt it too.
    felt = rows.filter(
        (pl.col("t_sched") < until) & (pl.col("t_first") >= disruption.start) & pl.col("ttft").is_finite()
    )
    after = since.filter(pl.col("t_sched") >= disruption.end)
    first = _first_run_within(after["ttft"].to_numpy(), band)
    return Recovery(
        band=band,
        peak=felt["ttft"].max(),  # type: ignore[arg-type]
        failed=len(rows.filter(pl.col("ttft").is_infinite() & pl.col("t_end").is_between(disruption.start, until))),
        back=None if first is None else (after["t_sched"].to_list()[first] - disruption.end) / SECOND,
    )


def _first_run_within(values: Floats, band: float) -> int | None:
    """Where the first 20 in a row begin of which no more than 3 are above `band`."""
    outside = np.concatenate(([0], np.cumsum(values > band)))
    if len(values) < IN_A_ROW:
        return None
    runs = np.flatnonzero(outside[IN_A_ROW:] - outside[:-IN_A_ROW] <= OUTSIDE)
    return int(runs[0]) if len(runs) else None


def _words(run: RunData, disruption: Disruption, effect: Recovery) -> str:
    is_event = disruption.is_event
    parts = [f"{counted(effect.failed, 'request')} failed"] if effect.failed or is_event else []
    if is_event and (answer := _first_answer(run, disruption.start)) is not None:
        parts.append(f"the first answer to a request sent after it began {format_seconds(answer)} later")
        if (start := _first_start(run)) is not None:
            parts[-1] += f" (the server's first start had taken {format_seconds(start)})"
    if effect.peak is not None:
        parts.append(f"TTFT (user) peaked at {format_seconds(effect.peak)}")
    band = f"within {format_seconds(effect.band)} (its p95 before)"
    if effect.back is None:
        parts.append(f"it did not return {band}")
    else:
        since = "it" if is_event else "its end"
        parts.append(f"{format_seconds(effect.back)} after {since} TTFT (user) was back {band}")
    return f"after {disruption.what}: {', '.join(parts)}"


def _first_answer(run: RunData, event: Nanoseconds) -> float | None:
    """Seconds from the event to the first token of a request that was sent after it and ended well."""
    sent = run.requests.filter((pl.col("outcome") == "ok") & (pl.col("t_send") >= event))
    first = sent["t_first"].min()
    return None if first is None else (float(first) - event) / SECOND  # type: ignore[arg-type]


def _first_start(run: RunData) -> float | None:
    """Seconds from starting the server to its being ready, where `enginebench run` started it."""
    at = {event.what: event.t for event in run.meta.events}
    return (at[READY] - at[STARTED]) / SECOND if {READY, STARTED} <= at.keys() else None
