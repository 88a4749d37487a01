"""How accurate the search for capacity is, in virtual time, on servers of known capacity; what fixed probes need.

The same search as in a real run judges the same counts by slice of time. Requests are those sent, warm-ups included.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadtests.harness.schedule.search.evidence import CEILING, Evidence, Series
from loadtests.harness.schedule.search.procedure import LOOKS, Decision, Goal, Probe, Search
from validation.statistics.capacity_systems import System, Trace
from validation.statistics.systems import Generator

ARRIVALS_PER_SLICE = 4
CLOSE = 0.05  # an estimate counts as close within this share of the true capacity
WANTED = 0.95
FIXED_SIZES = (2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
SPARE = 1.05  # requests simulated beyond those that a probe may judge


@dataclass(frozen=True, slots=True)
class Searched:
    """One search: what it said, and whether that was right."""

    error: float  # of the estimate, as a share of the true capacity
    bracketed: bool
    holds: bool
    wrong: bool  # at least one wrong certificate
    width: float  # ratio of the certified bracket's ends
    requests: int


@dataclass(frozen=True, slots=True)
class Cell:
    """Shares of searches of one system. `fixed_*`: probes of one length, whose bracket of 5 % holds
    the truth as often as the estimate is within 5 %."""

    system: str
    capacity: float
    seeds: int
    close: float
    bracketed: float
    holds: float
    wrong: float
    bias: float
    width: float
    requests: float
    fixed_size: int | None = None
    fixed_holds: float | None = None
    fixed_requests: float | None = None


def search_once(system: System, capacity: float, seed: int) -> Searched:
    rng = np.random.default_rng([seed, 13])
    search = Search(goal_of(system))
    requests = 0
    while (probe := search.probe) is not None:
        requests += run_probe(system, search, probe, rng)
    met, missed = search.bracket
    certified = [decision for decision in search.decisions if decision.probe.role in {"below", "above"}]
    return Searched(
        error=(search.estimate or math.inf) / capacity - 1,
        bracketed=search.found,
        holds=met is not None and missed is not None and met <= capacity <= missed,
        wrong=any(is_wrong(decision, capacity) for decision in certified),
        width=missed / met if met is not None and missed is not None else math.nan,
        requests=requests,
    )


def goal_of(system: System) -> Goal:
    start = system.saturation / 20
    return Goal((system.q,), start=start, lowest=start / 1024, warm_up=10 * system.limit)


def is_wrong(decision: Decision, capacity: float) -> bool:
    load = decision.probe.load
    return (decision.verdict == "met" and load > capacity) or (decision.verdict == "missed" and load < capacity)


def run_probe(system: System, search: Search, probe: Probe, rng: Generator) -> int:
    """Apply one probe in virtual time until the search has decided. Returns how many requests were sent by then."""
    count = round(probe.load * probe.warm_up + SPARE * probe.most_requests) + 200
    trace = system.run(probe.load, count, rng)
    counts = Counted.of(trace, probe.warm_up, ARRIVALS_PER_SLICE / probe.load, system.limit)
    look = 0.0
    while True:
        slices = min(int(np.searchsorted(counts.total, max(look, search.next_look))) + 1, len(counts.total) - 1)
        now = counts.closed[slices - 1]
        decision = search.look(
            counts.evidence(slices, now), slices * counts.length, last=slices == len(counts.total) - 1
        )
        if decision is not None:
            return int(np.searchsorted(trace.sent, probe.warm_up + now))
        look = counts.total[slices - 1] * LOOKS


@dataclass(frozen=True, slots=True)
class Counted:
    """A trace's counts by slice from the end of the warm-up. `closed`: when all requests up to a slice have ended."""

    length: float
    total: Sequence[int]
    closed: Sequence[float]
    requests: list[int]
    series: Series
    in_flight: list[int]

    @classmethod
    def of(cls, trace: Trace, warm_up: float, length: float, limit: float) -> Counted:
        first = int(np.searchsorted(trace.sent, warm_up))
        sent, latency = trace.sent[first:] - warm_up, trace.latency[first:]
        slices = (sent / length).astype(np.int64)
        number = int(slices[-1]) + 1
        edges = length * np.arange(1, number + 1)
        requests = np.bincount(slices, minlength=number)
        total = np.cumsum(requests)
        ended = np.maximum.accumulate(trace.ended[first:]) - warm_up
        last_ended = np.where(total > 0, ended[np.maximum(total - 1, 0)], 0.0)
        level = np.minimum(latency / limit, CEILING)
        bad, sums, squares = (
            np.bincount(slices, weights, number) for weights in ((latency > limit).astype(float), level, level**2)
        )
        arrived = np.searchsorted(trace.sent, edges + warm_up)
        left = np.searchsorted(np.sort(trace.ended), edges + warm_up)
        return cls(
            length,
            total.tolist(),
            np.maximum.accumulate(np.maximum(edges, last_ended)).tolist(),
            requests.tolist(),
            Series(bad.tolist(), sums.tolist(), squares.tolist()),
            (arrived - left).tolist(),
        )

    def evidence(self, slices: int, now: float) -> Evidence:
        one = self.series
        series = Series(one.bad[:slices], one.level[:slices], one.squares[:slices])
        return Evidence(self.requests[:slices], [series], self.in_flight[: int(now / self.length)])


def fixed_once(system: System, capacity: float, size: int, ratio: float, seed: int) -> tuple[bool, int]:
    """What is usually done: probes of `size` requests judged by their share alone, halving until the bracket's ends are
    `ratio` apart. Returns whether the bracket holds the capacity, and the requests sent."""
    rng = np.random.default_rng([seed, 14])
    goal = goal_of(system)
    low, high, load, requests = 0.0, math.inf, goal.start, 0
    while high > low * ratio:
        warm_up = round(load * goal.warm_up)
        latency = system.run(load, warm_up + size, rng).latency[warm_up:]
        requests += warm_up + size
        if (latency <= system.limit).mean() >= system.q:
            low = load
        else:
            high = load
        load = 2 * low if high == math.inf else high / 2 if low == 0 else math.sqrt(low * high)
    return low <= capacity <= high, requests


def capacity_of(system: System, seed: int, requests: int) -> float:
    """The truth, simulated with so many requests where there is no exact law."""
    return system.capacity(np.random.default_rng([seed, 12]), requests)


def measure(system: System, capacity: float, seeds: Sequence[int], fixed: int = 0) -> Cell:
    """`fixed`: with so many seeds, how long fixed probes must be to find the truth within 5 % as often."""
    searched = [search_once(system, capacity, seed) for seed in seeds]
    close = float(np.mean([abs(each.error) <= CLOSE for each in searched]))
    holds = float(np.mean([each.holds for each in searched]))
    size, fixed_holds, fixed_requests = None, None, None
    for size in FIXED_SIZES if fixed else ():
        found = [fixed_once(system, capacity, size, 1 + CLOSE, seed) for seed in seeds[:fixed]]
        fixed_holds, fixed_requests = (float(np.mean(column)) for column in zip(*found, strict=True))
        if fixed_holds >= min(close, WANTED):
            break
    return Cell(
        system=f"{system.name}, p{100 * system.q:g}",
        capacity=capacity,
        seeds=len(seeds),
        close=close,
        bracketed=float(np.mean([each.bracketed for each in searched])),
        holds=holds,
        wrong=float(np.mean([each.wrong for each in searched])),
        bias=float(np.median([each.error for each in searched])),
        width=float(np.nanmedian([each.width for each in searched])),
        requests=float(np.mean([each.requests for each in searched])),
        fixed_size=size,
        fixed_holds=fixed_holds,
        fixed_requests=fixed_requests,
    )


def table(cells: Sequence[Cell]) -> str:
    """Markdown, as docs/statistics.md shows it."""
    rows = [
        "| system | capacity | estimate within 5 % | bracket found | holds the truth | wrong certificate | width | "
        "requests | fixed probes as good |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in cells:
        shares = (cell.close, cell.bracketed, cell.holds, cell.wrong)
        fixed = ""
        if cell.fixed_requests is not None and cell.fixed_holds is not None:
            fixed = f"{cell.fixed_requests:,.0f} ({cell.fixed_holds:.0%} hold)"
        numbers = [f"{100 * share:.1f} %" for share in shares]
        texts = [cell.system, f"{cell.capacity:.4g}", *numbers, f"{cell.width:.2f}", f"{cell.requests:,.0f}", fixed]
        rows.append(f"| {' | '.join(texts)} |")
    return "\n".join(rows) + "\n"
