"""The load that one replica bears: the largest at which every objective is met, its interval, and what limits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analysis.plan.scalability import DRAWS, ENDS, draws
from analysis.plan.steps import Floats, Generator
from analysis.summary.slo import Verdict, objective_text
from analysis.summary.ttft_parts import NAMES
from records.formatting import format_share
from records.slo import Objective
from records.view import Estimate, StageView

DECODING = "decoding"
NARROW = 1e-3  # width of an interval of a share, below which it counts no more


@dataclass(frozen=True, slots=True)
class Limit:
    """The objective that is missed first as the load grows, in which share of the bootstrap's draws; and the part of
    its latency that grew most from the last load that met it to the first that did not. `part` is `None` where the
    server told no durations, or nothing grew."""

    objective: Objective
    draws: float
    part: str | None

    @property
    def sentence(self) -> str:
        """`TTFT p95 ≤ 300 ms (waiting for admission grows most)`"""
        certain = "" if self.draws > 0.95 else f" in {format_share(self.draws)} of resamples"
        grown = "" if self.part is None else f" ({self.part} grows most)"
        return f"{objective_text(self.objective)}{certain}{grown}"


@dataclass(frozen=True, slots=True)
class SafeLoad:
    """The largest load of one replica that meets every objective, in `unit`; without a value where no measured load
    did, and a lower bound where all did (`why`)."""

    load: Estimate
    unit: str
    limit: Limit | None  # None where every measured load met every objective


def safe_load(stages: Sequence[StageView]) -> SafeLoad | None:
    """From stages that differ in load alone; `None` where no objective was judged."""
    judged = sorted((s for s in stages if s.attainment is not None), key=lambda s: s.load)
    if not judged or len({s.load_unit for s in judged}) > 1:
        return None
    loads, unit = np.array([s.load for s in judged]), judged[0].load_unit
    verdicts = list(zip(*(s.attainment.verdicts for s in judged if s.attainment is not None), strict=True))
    objectives = [of[0].objective for of in verdicts]
    values = [np.array([one.share.value or 0.0 for one in of]) for of in verdicts]
    found = [crossing(loads, v, of[0].objective.q, _weights(of)) for v, of in zip(values, verdicts, strict=True)]
    rng = np.random.default_rng(0)
    drawn = np.column_stack([_drawn(loads, of, rng) for of in verdicts])
    first = int(np.argmin(found))
    value, certain = found[first], float((drawn.argmin(axis=1) == first).mean())
    missed = Limit(objectives[first], certain, _grown(judged, value, objectives[first]))
    if value < loads[0]:
        why = f"missed at {loads[0]:g} {unit}, the lowest measured"
        return SafeLoad(Estimate(None, n=len(loads), why=why), unit, missed)
    low, high = np.quantile(drawn.min(axis=1), ENDS, method="inverted_cdf")
    met = f"met at {loads[-1]:g} {unit}, the highest measured" if value >= loads[-1] else None
    return SafeLoad(Estimate(value, float(low), float(high), len(loads), met), unit, None if met else missed)


def _drawn(loads: Floats, verdicts: Sequence[Verdict], rng: Generator) -> Floats:
    """The load up to which one objective is met, in each draw of the shares that met it at each load."""
    shares = np.column_stack([draws(one.share, rng, DRAWS) for one in verdicts])
    weights = _weights(verdicts)
    return np.array([crossing(loads, row, verdicts[0].objective.q, weights) for row in shares])


def _weights(verdicts: Sequence[Verdict]) -> Floats:
    """Of the shares, by the widths of their intervals: a few users in a closed loop tell little."""
    ends = [(one.share.low, one.share.high) for one in verdicts]
    return np.array([1.0 if low is None or high is None else max(high - low, NARROW) ** -2 for low, high in ends])


def crossing(loads: Floats, shares: Floats, q: float, weights: Floats) -> float:
    """The load at which the share falls below `q`, between two measured ones by a straight line; 0 where it never was.

    Attainment does not rise with the load: neighbours that say so are averaged (pool adjacent violators).
    """
    falling = _falling(shares, weights)
    if falling[0] < q:
        return 0.0
    below = np.flatnonzero(falling < q)
    if not len(below):
        return float(loads[-1])
    after = int(below[0])
    before = after - 1
    part = (falling[before] - q) / (falling[before] - falling[after])
    return float(loads[before] + part * (loads[after] - loads[before]))


def _falling(shares: Floats, weights: Floats) -> Floats:
    blocks: list[tuple[float, float, int]] = []  # (mean, weight, loads)
    for share, own in zip(shares.tolist(), weights.tolist(), strict=True):
        mean, weight, count = share, own, 1
        while blocks and blocks[-1][0] < mean:
            earlier, more, many = blocks.pop()
            mean, weight, count = (earlier * more + mean * weight) / (more + weight), more + weight, many + count
        blocks.append((mean, weight, count))
    return np.concatenate([np.full(count, mean) for mean, _, count in blocks])


def _grown(judged: Sequence[StageView], safe: float, objective: Objective) -> str | None:
    """The part of the objective's latency that grew most from the load before `safe` to the one after it."""
    below, above = ([s for s in judged if (s.load <= safe) is within] for within in (True, False))
    if objective.column is None or not below or not above:
        return None
    if objective.metric == "tpot":
        return DECODING
    before = _parts([s for s in below if s.load == below[-1].load], objective)
    after = _parts([s for s in above if s.load == above[0].load], objective)
    grown = {name: after[name] - length for name, length in before.items() if name in after}
    name, most = max(grown.items(), key=lambda one: one[1], default=("", 0.0))
    return {**NAMES, DECODING: DECODING}[name] if most > 0 else None


def _parts(stages: Sequence[StageView], objective: Objective) -> dict[str, float]:
    """Mean seconds of each part over repeats of a load; empty where some repeat has none."""
    parts = [stage.ttft_parts for stage in stages]
    if any(part is None for part in parts):
        return {}
    found = {name: sum(part.lengths[name] for part in parts if part is not None) / len(parts) for name in NAMES}
    if objective.metric in {"e2e", "ntpot"}:
        means = [(s.latencies["e2e"].mean, s.latencies["ttft"].mean) for s in stages]
        decoding = [e2e - ttft for e2e, ttft in means if e2e is not None and ttft is not None]
        found |= {DECODING: sum(decoding) / len(decoding)} if decoding else {}
    return found
