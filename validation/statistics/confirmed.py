"""How often is a load wrongly confirmed as met or as missed?

Loads around capacity are simulated by the same requests with limits around the true percentile: at each limit, a known
share of requests misses it in the long run. A verdict confirmed by an interval is wrong if that share is on the other
side of the objective; a verdict confirmed only by the agreement of runs is wrong if most runs of its length are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from enginebench.analysis.stats.intervals import share_bounds, share_intervals
from enginebench.analysis.verdict.capacity import LoadVerdict, confirm_implied
from enginebench.analysis.verdict.slo_verdict import SloVerdict, Status, judge
from enginebench.records.rules import answer_of, nearest_rank
from enginebench.records.slo import Objective
from enginebench.records.view import Judgement, StageView
from validation.statistics.coverage import SYSTEMS
from validation.statistics.decisions import template
from validation.statistics.systems import Generator, Trace

NAMES = (
    "independent, 300 requests, 20 users",
    "independent, 3000 requests, 5 users",
    "AR(1) 0.5, 1000 requests",
    "AR(1) 0.9, 600 requests",
    "AR(1) 0.9, 3000 requests",
    "4 pinned replicas, 200 users, 4000 requests",
    "closed loop, 10 users, 2 servers, 1000 requests",
    "closed loop, 40 users, 4 servers, think time, 3000 requests",
    "open loop, 4 servers at 70 %, 3000 requests",
    "M/M/1 at 80 %, 3000 requests",
    "batches of 8 arrivals, 4 servers at 60 %, 4000 requests",
    "20 slow bursts, 3000 requests",
)
REPEATS = (1, 3, 5)
QS = (0.9, 0.95)
MISSES = (0.25, 0.5, 0.7, 0.85, 1.15, 1.3, 1.6, 3.0)  # true share of misses, as a multiple of the permitted share
SPREADS = (0.0, 0.05, 0.1)  # standard deviation of the speed from run to run


@dataclass(frozen=True, slots=True)
class ConfirmedCell:
    """Numbers of verdicts of one system over all loads. `met` and `missed` were confirmed by the load's own requests or
    runs, `implied_met` and `implied_missed` by another load's; `…_wrong` are those of them that are wrong."""

    system: str
    spread: float
    repeats: int
    verdicts: int
    met: int
    met_wrong: int
    missed: int
    missed_wrong: int
    implied_met: int
    implied_met_wrong: int
    implied_missed: int
    implied_missed_wrong: int


def measure(name: str, runs: int, seed: int) -> list[ConfirmedCell]:
    """Simulate tests of one load, and ladders: tests of all loads, each in separate runs, the lightest first."""
    rng = np.random.default_rng([seed, 5, NAMES.index(name)])
    cells = []
    for spread in SPREADS:
        truth, traces = (_runs(name, runs, spread, rng) for _ in range(2))
        counts = {repeats: Counter[str]() for repeats in REPEATS}
        for q in QS:
            limits = _limits(truth, q)
            views = [list(_views(trace, q, limits)) for trace in traces]
            ladders: dict[int, list[list[_Verdict]]] = {repeats: [] for repeats in REPEATS}
            for at, limit in enumerate(limits):
                long_run = _share(truth, limit) >= q
                meets = float(np.mean([_met(trace, q, limit) for trace in truth])) > 0.5
                for repeats in REPEATS:
                    order = rng.permutation(runs).tolist()
                    stages = [[views[run][at] for run in group] for group in _groups(order, repeats)]
                    ladders[repeats].append(
                        [_Verdict(judge(group, [Objective("ttft", q, limit)]), long_run, meets) for group in stages]
                    )
            for repeats, loads in ladders.items():
                for ladder in zip(*loads, strict=True):
                    counts[repeats].update(_counted(ladder))
        for repeats, count in counts.items():
            parts = [count[field.name] for field in fields(ConfirmedCell)[3:]]
            cells.append(ConfirmedCell(name, spread, repeats, *parts))
    return cells


def _groups(order: Sequence[int], repeats: int) -> Iterator[Sequence[int]]:
    for first in range(0, len(order) - repeats + 1, repeats):
        yield order[first : first + repeats]


def _runs(name: str, runs: int, spread: float, rng: Generator) -> list[Trace]:
    traces = SYSTEMS[name](rng, runs)
    return [replace(trace, latency=trace.latency * math.exp(spread * rng.standard_normal())) for trace in traces]


def _limits(truth: Sequence[Trace], q: float) -> list[float]:
    pool = np.sort(np.concatenate([trace.latency for trace in truth]))
    return [float(pool[nearest_rank(len(pool), 1 - multiple * (1 - q)) - 1]) for multiple in MISSES]


def _share(traces: Sequence[Trace], limit: float) -> float:
    """Average the share within the limit over runs, because runs are the samples."""
    return float(np.mean([(trace.latency <= limit).mean() for trace in traces]))


def _met(trace: Trace, q: float, limit: float) -> bool:
    return int((trace.latency <= limit).sum()) >= nearest_rank(len(trace.latency), q)


def _views(trace: Trace, q: float, limits: Sequence[float]) -> Iterator[StageView]:
    """Yield the tool's view of one run at each of the limits."""
    _, stage = template()
    shares = share_intervals([trace.latency <= limit for limit in limits], trace.user, trace.latency)
    for share, limit in zip(shares, limits, strict=True):
        objective = Objective("ttft", q, limit)
        answer = answer_of(*share_bounds(share, trace.latency, trace.user), q)
        yield replace(stage, outcomes={"ok": share.n}, judgements=(Judgement(objective, share, answer),))


@dataclass(frozen=True, slots=True)
class _Verdict:
    """A verdict at one load, and whether that load meets the objective in the long run, and in most runs."""

    slo: SloVerdict
    long_run: bool
    most_runs: bool

    @property
    def wrong(self) -> bool:
        by_interval = self.slo.objectives[0].judgement.answer == self.slo.status.value
        by_runs = self.slo.confirmed and not by_interval
        return (self.most_runs if by_runs else self.long_run) is not (self.slo.status is Status.MET)


def _counted(ladder: Sequence[_Verdict]) -> Iterator[str]:
    """Yield the fields of a cell that this ladder increments, by each load alone and by what other loads imply."""
    loads = tuple(LoadVerdict((str(at),), float(at), verdict.slo) for at, verdict in enumerate(ladder))
    for verdict, load in zip(ladder, confirm_implied(loads), strict=True):
        yield "verdicts"
        for kind, confirmed in (("", verdict.slo.confirmed), ("implied_", load.slo.confirmed)):
            if confirmed and (kind == "" or not verdict.slo.confirmed):
                yield f"{kind}{verdict.slo.status.value}"
                if verdict.wrong:
                    yield f"{kind}{verdict.slo.status.value}_wrong"


def table(cells: Sequence[ConfirmedCell]) -> str:
    """Write a Markdown table over all systems."""
    rows = [
        "| speed from run to run | repeats | confirmed | wrong, of met | wrong, of missed |"
        " with implied loads | wrong, of met | wrong, of missed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for spread in SPREADS:
        for repeats in REPEATS:
            group = [cell for cell in cells if (cell.spread, cell.repeats) == (spread, repeats)]
            met, missed = (sum(getattr(cell, name) for cell in group) for name in ("met", "missed"))
            wrong = [sum(getattr(cell, f"{name}_wrong") for cell in group) for name in ("met", "missed")]
            shares = [
                (met + missed) / max(1, sum(cell.verdicts for cell in group)),
                wrong[0] / max(1, met),
                wrong[1] / max(1, missed),
            ]
            implied = [sum(getattr(cell, f"implied_{name}") for cell in group) for name in ("met", "missed")]
            wrongly = [sum(getattr(cell, f"implied_{name}_wrong") for cell in group) for name in ("met", "missed")]
            shares += [
                (met + missed + sum(implied)) / max(1, sum(cell.verdicts for cell in group)),
                (wrong[0] + wrongly[0]) / max(1, met + implied[0]),
                (wrong[1] + wrongly[1]) / max(1, missed + implied[1]),
            ]
            cells_of = [f"{100 * share:.1f} %" for share in shares]
            rows.append(f"| ± {100 * spread:g} % | {repeats} | {' | '.join(cells_of)} |")
    return "\n".join(rows) + "\n"
