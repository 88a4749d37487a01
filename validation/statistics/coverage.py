"""How often the 95 % intervals contain the true value, by system and by number shown.

The true value of a system comes from the same number of other runs, pooled. `effective` is the number of independent
requests that would show the same spread from run to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from enginebench.analysis.stats.intervals import (
    bin_by_user,
    bin_events,
    percentile_intervals,
    rate_interval,
    share_interval,
)
from enginebench.analysis.stats.repeats import ratio_test
from enginebench.records.view import Estimate
from validation.statistics import systems
from validation.statistics.capacity_systems import exponential, hyperexponential
from validation.statistics.systems import Floats, Generator, Trace, batches, lognormal

System = Callable[[Generator, int], list[Trace]]
PERCENTILES = (0.5, 0.9, 0.95, 0.99)
SHARES = (0.5, 0.9, 0.99)  # shares of requests within a limit
MIN_SHOWN = 0.02  # share of simulations with an interval below which the coverage is left out
RATIOS = ("p50", "p95", "rate")  # ratios of two engines, `REPEATS` runs each
REPEATS = 5
SHUFFLES = 100  # random assignments of the runs to pairs of engines
NAMES = (
    *(f"p{100 * q:g}" for q in PERCENTILES),
    *(f"share {q:g}" for q in SHARES),
    "rate",
    *(f"ratio of {number}" for number in RATIOS),
)

SYSTEMS: dict[str, System] = {
    "independent, 300 requests, 20 users": partial(systems.autocorrelated, requests=300, users=20, rho=0),
    "independent, 1500 requests, 8 users": partial(systems.autocorrelated, requests=1500, users=8, rho=0),
    "independent, 3000 requests, 5 users": partial(systems.autocorrelated, requests=3000, users=5, rho=0),
    "independent, 20000 requests, 100 users": partial(systems.autocorrelated, requests=20000, users=100, rho=0),
    "AR(1) 0.5, 1000 requests": partial(systems.autocorrelated, requests=1000, rho=0.5),
    "AR(1) 0.8, 3000 requests": partial(systems.autocorrelated, requests=3000, rho=0.8),
    "AR(1) 0.9, 600 requests": partial(systems.autocorrelated, requests=600, users=10, rho=0.9),
    "AR(1) 0.9, 3000 requests": partial(systems.autocorrelated, requests=3000, rho=0.9),
    "AR(1) 0.9, 20000 requests": partial(systems.autocorrelated, requests=20000, rho=0.9),
    "convoys: 40 users, 16 slots": partial(systems.batching, slots=16, seconds=120),
    "convoys: 40 users, 40 slots": partial(systems.batching, slots=40, seconds=120),
    "convoys: 40 users, 30 servers, lengths ± 10 %": partial(
        systems.closed_queue, servers=30, requests=3000, draw=lognormal(0.1), answer=3.0
    ),
    "convoys: 40 users, 16 servers, lengths ± 30 %": partial(
        systems.closed_queue, servers=16, requests=3000, draw=lognormal(0.3), answer=3.0
    ),
    "4 pinned replicas, 20 users, 600 requests": partial(systems.pinned, users=20, requests=600),
    "4 pinned replicas, 40 users, 2000 requests": partial(systems.pinned, users=40, requests=2000),
    "4 pinned replicas, 200 users, 4000 requests": partial(systems.pinned, users=200, requests=4000),
    "4 pinned replicas, 500 users, 10000 requests": partial(systems.pinned, users=500, requests=10000),
    "4 pinned replicas with queues, 60 users, 6000 requests": partial(systems.replicas),
    "closed loop, 10 users, 2 servers, 1000 requests": partial(systems.closed_queue, users=10, servers=2),
    "closed loop, 10 users, 2 servers, 6000 requests": partial(
        systems.closed_queue, users=10, servers=2, requests=6000
    ),
    "closed loop, 40 users, 4 servers, 1000 requests": partial(systems.closed_queue),
    "closed loop, 40 users, 4 servers, think time, 3000 requests": partial(
        systems.closed_queue, requests=3000, think=1.8
    ),
    "closed loop, continuous batching, lengths ± 50 %": partial(
        systems.batching, draw=systems.lognormal(0.5), seconds=300, ramp=10.0, tokens=50, step=0.04
    ),
    "open loop, 4 servers at 70 %, 3000 requests": partial(systems.open_queue),
    "open loop, 4 servers at 70 %, 12000 requests": partial(systems.open_queue, requests=12000),
    "open loop, 4 servers at 90 %, 10000 requests": partial(systems.open_queue, requests=10000, load=0.9),
    "M/M/1 at 80 %, 3000 requests": partial(systems.open_queue, servers=1, load=0.8, gap=exponential, draw=exponential),
    "M/D/1 at 80 %, 5000 requests": partial(
        systems.open_queue, servers=1, requests=5000, load=0.8, gap=exponential, draw=lognormal(0.0)
    ),
    "M/H2/1 at 70 %, cv 2, 5000 requests": partial(
        systems.open_queue, servers=1, requests=5000, gap=exponential, draw=hyperexponential(2.0)
    ),
    "batches of 8 arrivals, 4 servers at 60 %, 4000 requests": partial(
        systems.open_queue, requests=4000, load=0.6, gap=batches(8)
    ),
    "bursts of arrivals at a queue, 10000 requests": partial(
        systems.open_queue, requests=10000, load=0.6, gap=lognormal(3.0)
    ),
    "20 slow bursts, 3000 requests": partial(systems.bursts),
    "60 slow bursts, 6000 requests": partial(systems.bursts, requests=6000, seconds=300.0, bursts_per_run=60),
    "slow for a third of the time, 30 times, 4000 requests": partial(
        systems.bursts, requests=4000, seconds=100.0, bursts_per_run=30, slow_share=0.3, arrivals=1.0
    ),
    "200 slow bursts, 6000 requests": partial(
        systems.bursts, requests=6000, seconds=600.0, bursts_per_run=200, slow_share=0.05
    ),
    "4 pinned replicas, slower with more users, 200 users, 6000 requests": partial(
        systems.pinned, users=200, requests=6000, crowding=0.5
    ),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of a system: shares of simulations, and the median half width ÷ 1.96 standard deviations of the number.
    `unbounded` is the share of all simulations whose interval has no upper end; `width` leaves them out."""

    system: str
    number: str
    runs: int
    requests: float
    effective: float
    shown: float
    unbounded: float
    coverage: float | None
    width: float | None


def true_values(traces: list[Trace]) -> dict[str, float]:
    pool = np.sort(np.concatenate([trace.latency for trace in traces]))
    at = {q: float(pool[math.ceil(round(q * len(pool), 9)) - 1]) for q in {*PERCENTILES, *SHARES}}
    truth = {f"p{100 * q:g}": at[q] for q in PERCENTILES}
    truth |= {f"limit {q:g}": at[q] for q in SHARES}
    truth |= {f"share {q:g}": float((pool <= at[q]).mean()) for q in SHARES}
    rate = float(np.mean([len(trace.ended) / trace.seconds for trace in traces]))
    return truth | {"rate": rate}


def estimates(trace: Trace, truth: dict[str, float]) -> dict[str, Estimate]:
    """Return the numbers that the tool would show for one run, by name."""
    intervals = percentile_intervals(trace.latency, PERCENTILES, trace.user)
    shown = {f"p{100 * q:g}": estimate for q, estimate in zip(PERCENTILES, intervals, strict=True)}
    for q in SHARES:
        shown[f"share {q:g}"] = share_interval(trace.latency <= truth[f"limit {q:g}"], trace.user, trace.latency)
    by_user = bin_by_user(trace.ended, trace.ended_user, 0, trace.seconds)
    shown["rate"] = rate_interval(bin_events(trace.ended, 0, trace.seconds), trace.seconds, by_user)
    return shown


def measure(name: str, runs: int, seed: int) -> list[Cell]:
    """Simulate a system, and check the intervals of each of its numbers."""
    rng = np.random.default_rng([seed, list(SYSTEMS).index(name)])
    truth = true_values(SYSTEMS[name](rng, runs))
    traces = SYSTEMS[name](rng, runs)
    shown = [estimates(trace, truth) for trace in traces]
    requests = float(np.mean([len(trace.latency) for trace in traces]))
    sample = {number: [shown_numbers[number] for shown_numbers in shown] for number in shown[0]}
    ratios = {f"ratio of {number}": _ratios(sample[number], rng) for number in RATIOS}
    truth |= dict.fromkeys(ratios, 1.0)
    return [_cell(name, number, requests, (sample | ratios)[number], traces, truth) for number in NAMES]


def _ratios(runs: list[Estimate], rng: Generator) -> list[Estimate]:
    """Return ratios of two identical engines, from runs drawn without replacement.

    Ratios of different engines would be a multiple of these.
    """
    values, ratios = [run.value for run in runs if run.value is not None], []
    for _ in range(SHUFFLES):
        order = rng.permutation(values).tolist()
        engines = [order[at : at + REPEATS] for at in range(0, len(order) - REPEATS + 1, REPEATS)]
        pairs = zip(engines[::2], engines[1::2], strict=False)
        ratios += [ratio_test(ours, theirs, False)[0] for ours, theirs in pairs]
    return ratios


def _cell(
    system: str,
    number: str,
    requests: float,
    sample: list[Estimate],
    traces: list[Trace],
    truth: dict[str, float],
) -> Cell:
    intervals = [(e.low, e.high) for e in sample if e.low is not None and e.high is not None]
    holds = [low <= truth[number] <= high for low, high in intervals]
    deviation = float(np.std([e.value for e in sample if e.value is not None]))
    halves = [(high - low) / 2 for low, high in intervals if high < math.inf]
    return Cell(
        system,
        number,
        len(sample),
        round(requests),
        round(_effective(number, traces, truth)),
        len(intervals) / len(sample),
        (len(intervals) - len(halves)) / len(sample),
        float(np.mean(holds)) if intervals else None,
        float(np.median(halves)) / (1.96 * deviation) if halves and deviation > 0 else None,
    )


def _effective(number: str, traces: list[Trace], truth: dict[str, float]) -> float:
    """Return the effective sample size of the indicator "at or below the percentile"; for rates and ratios, the
    percentile is the median."""
    limit = truth[number.replace("share", "limit")] if number.startswith(("p", "share")) else truth["p50"]
    shares: Floats = np.array([float((trace.latency <= limit).mean()) for trace in traces])
    share = float(shares.mean())
    return share * (1 - share) / max(float(shares.var()), 1e-9)


def table(cells: list[Cell]) -> str:
    """Write the Markdown table of docs/simulations.md: coverage in per cent, with the share shown if it is below 90 %,
    and the share without an upper end if it is above 10 %."""
    rows = [f"| system | effective | {' | '.join(NAMES)} |", f"|{'---|' * (len(NAMES) + 2)}"]
    for at in range(0, len(cells), len(NAMES)):
        of_system = cells[at : at + len(NAMES)]
        effective = f"{of_system[0].effective:,}".replace(",", " ")
        rows.append(f"| {of_system[0].system} | {effective} | {' | '.join(map(_text, of_system))} |")
    return "\n".join(rows) + "\n"


def _text(cell: Cell) -> str:
    if cell.coverage is None or cell.shown < MIN_SHOWN:
        return "n/a"
    notes = [] if cell.shown >= 0.9 else [f"{100 * cell.shown:.0f} %"]
    notes += [f"∞ {100 * cell.unbounded:.0f} %"] if cell.unbounded > 0.1 else []
    return f"{100 * cell.coverage:.1f}" + (f" ({', '.join(notes)})" if notes else "")
