"""A search for capacity: the next load to probe, and the certified bracket. There is no clock here.

Attainment does not grow with load. So a probe that meets the objectives is evidence that every lower load meets them,
a probe that misses them is evidence against every higher load, and the evidence of several probes is multiplied.
Doubling and bisection locate capacity and are not used as evidence. Then probes below and above the estimate certify a
bracket. The side of a probe is fixed before it runs, and loads are tested from the outermost one inwards until one is
not certified, so each side has a single test, for any number of probes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from enginebench.records.search import ProbeRole, ProbeVerdict
from loadtests.harness.schedule.search.capacity_estimate import FAR_WEIGHT, Sample, crossing
from loadtests.harness.schedule.search.evidence import (
    ProbeOutcomes,
    Side,
    batch_size,
    log_evidence,
    log_mean,
)

CERTAIN = math.log(40)  # evidence of a certificate: on each side, at most 2.5 % of searches are wrong
MIN_MET = 2900  # requests for a certificate of "met", because rare events may not have happened yet
DOUBLING, BISECTING = (20, math.log(5), math.log(100)), (150, math.log(20), math.log(20))
"""Minimum of requests, and the evidence for "met" and for "missed" that ends the probe."""
BY_FAR = 0.25  # share of requests that miss an objective, which ends doubling
MAX_REQUESTS: dict[ProbeRole, int] = {"locate": 600, "below": 4000, "above": 4000}  # if 5 % may miss
LONG = 120.0  # correlation times of a certifying probe, if these are more requests than `MAX_REQUESTS`
CLOSE = 1.06  # ratio of two loads at which bisection stops
WIDE_PRECISION, WIDE_ENDS = 0.3, 1.64  # first, a bracket of this precision is certified, with this ratio of its ends
INSIDE, NEAREST = 0.45, 0.35  # powers of the ratio of a bracket's ends: first and smallest distance of probes
OUTWARD = 1.12  # ratio between the distances of successive probes, until a side has a certificate
WARM_UP, WARM_UP_TIMES, STAYS = 200, 4.0, 3.0  # requests, correlation times, and mean times that a request is in flight
BISECTING_STAYS = 6.0  # minimum of a bisecting probe, in mean times in flight
FIRST_LOOK, LOOKS = 200, 1.15  # requests, and the ratio of each look to the one before
FUTILE, FUTILE_AFTER = -1.0, 600  # logarithm of a probe's evidence at which it ends, after this number of requests
MAX_PROBES = 150


@dataclass(frozen=True, slots=True)
class SearchGoal:
    """The goal of a search: `shares` of requests may miss each objective, and half of the bracket is at most
    `precision` of its middle. Loads are requests per second, or `whole` numbers. `warm_up` is a minimum in seconds."""

    shares: tuple[float, ...]
    precision: float = 0.2
    start: float = 1.0
    lowest: float = 1 / 64
    highest: float = math.inf
    whole: bool = False
    warm_up: float = 1.0

    @property
    def scale(self) -> float:
        """Return the factor by which probes are longer, if less than 5 % of requests may miss an objective."""
        return max(1.0, 0.05 / min(self.shares))

    @property
    def ends(self) -> float:
        """Return the ratio of the ends of a bracket with the goal's precision."""
        return (1 + self.precision) / (1 - self.precision)

    def rounded(self, load: float) -> float:
        rounded = float(round(load)) if self.whole else float(f"{load:.4g}")
        return min(max(rounded, self.lowest), self.highest)  # last, so that the ends of the range are reached


@dataclass(slots=True, eq=False)
class Probe:
    """A load to apply, and its outcomes. The warm-up ends after `warm_up` seconds and `warm_up_requests`."""

    number: int
    load: float
    role: ProbeRole
    warm_up: float
    warm_up_requests: int
    most_requests: int
    outcomes: ProbeOutcomes = field(default_factory=lambda: ProbeOutcomes((), ((),), ((),)))
    verdict: ProbeVerdict = "undecided"
    _evidence: dict[tuple[int, float], tuple[ProbeOutcomes, float]] = field(default_factory=dict)

    def evidence(self, objective: int, alpha: float, size: float) -> float:
        """Return the logarithm of the evidence."""
        assert self.role in ("below", "above"), "a locating probe has no evidence"
        kept = self._evidence.get((objective, size))
        if kept is None or kept[0] is not self.outcomes:
            shares = self.outcomes.batches(objective, size)
            kept = self._evidence[objective, size] = self.outcomes, log_evidence(shares, alpha, self.role)
        return kept[1]


@dataclass(slots=True)
class Search:
    """`probe` is the current one, `None` when the search has ended. `met` is the highest load that is certified to meet
    all objectives, `missed` the lowest load that is certified to miss one."""

    goal: SearchGoal
    probes: list[Probe] = field(default_factory=list)  # ended probes
    probe: Probe | None = None
    next_look: float = 0
    met: float | None = None
    missed: float | None = None
    estimate: float | None = None

    def __post_init__(self) -> None:
        self._begin(self.goal.rounded(self.goal.start), "locate")

    def look(self, outcomes: ProbeOutcomes, last: bool = False) -> Probe | None:
        """Judge the current probe. If that ends the probe, return it and begin the next.

        `last` ends the probe in any case.
        """
        probe = self.probe
        assert probe is not None
        last = last or outcomes.total >= probe.most_requests
        if outcomes.total < self.next_look and not last:
            return None
        self.next_look = max(self.next_look, outcomes.total) * LOOKS
        probe.outcomes = outcomes
        decided = self._certified(probe, probe.role) if probe.role in ("below", "above") else self._located(probe)
        if not (decided or last):
            return None
        self.probes.append(probe)
        self.probe = None
        if not self._enclosed and probe.role != "locate" and probe.verdict == "undecided":
            self._correct(probe)
        self._continue()
        return probe

    # One probe.

    def _located(self, probe: Probe) -> bool:
        """Decide a locating probe by a likelihood ratio: does half of the permitted share miss an objective, or twice?

        At twice the capacity, far more requests miss it. So doubling continues if the objective seems to be narrowly
        missed: otherwise a cold start or a stall of the server would keep the search at a low load.
        """
        least, met, missed = BISECTING if self._enclosed else DOUBLING
        n, ratios, far = probe.outcomes.total, [], False
        if self._enclosed:  # beyond capacity, a queue takes that long to grow
            least = max(least, round(BISECTING_STAYS * self._stay * probe.load))
        for k, alpha in enumerate(self.goal.shares):
            few, many, bad = alpha / 2, min(2 * alpha, (1 + alpha) / 2), sum(probe.outcomes.missed[k])
            ratios.append(bad * math.log(few / many) + (n - bad) * math.log((1 - few) / (1 - many)))
            far = far or bad >= n * min(max(BY_FAR, 2 * many), (1 + alpha) / 2)
        conclusive = far or self._enclosed or probe.load in (self.goal.lowest, self.goal.highest)
        probe.verdict = (
            "undecided" if n == 0 else "met" if min(ratios) >= 0 else "missed" if conclusive else "undecided"
        )
        return probe.role == "locate" and n >= least and not -missed < min(ratios) < met

    def _certified(self, probe: Probe, side: Side) -> bool:
        self._read(side, probe)
        if side == "below" and self.met is not None and probe.load <= self.met:
            probe.verdict = "met"
        if side == "above" and self.missed is not None and probe.load >= self.missed:
            probe.verdict = "missed"
        futile = probe.outcomes.total >= FUTILE_AFTER and self._evidence(side, [probe]) < FUTILE
        return probe.verdict != "undecided" or futile or self.precise

    def _read(self, side: Side, current: Probe) -> None:
        """Certify loads from the outermost one inwards, each with all probes of its side at this load or beyond."""
        probes, below = [p for p in (*self.probes, current) if p.role == side], side == "below"
        for load in sorted({p.load for p in probes}, reverse=not below):
            pool = [p for p in probes if (p.load >= load if below else p.load <= load)]
            few = below and sum(p.outcomes.total for p in pool) < MIN_MET
            if few or self._evidence(side, pool) < CERTAIN:
                return
            if below:
                self.met = max(load, self.met or load)
            else:
                self.missed = min(load, self.missed or load)

    def _evidence(self, side: Side, pool: Sequence[Probe]) -> float:
        """Return the logarithm of the evidence of several probes: the minimum over the objectives for "all are met", or
        the mean for "one is missed"."""
        mean = self._correlation()  # a single probe may have had few bursts by chance
        sizes = [batch_size(max(mean, p.outcomes.correlation)) for p in pool]
        logs = [
            sum(p.evidence(k, alpha, size) for p, size in zip(pool, sizes, strict=True))
            for k, alpha in enumerate(self.goal.shares)
        ]
        return min(logs) if side == "below" else log_mean(logs)

    def _correlation(self) -> float:
        """Return the mean τ of all probes."""
        probes = [p.outcomes for p in (*self.probes, self.probe) if p is not None and p.outcomes.total]
        return sum(p.correlation * p.total for p in probes) / sum(p.total for p in probes) if probes else 1.0

    @property
    def _stay(self) -> float:
        """Return the mean seconds in flight of a request at loads that seem to be met."""
        return max((p.outcomes.stay for p in self.probes if p.verdict == "met"), default=0.0)

    def _correct(self, futile: Probe) -> None:
        """Turn the verdict of the locating probes at an end of the range that a longer probe does not confirm: a cold
        start or a few good requests misled them."""
        for probe in self.probes:
            if probe.role == "locate" and probe.load == futile.load:
                probe.verdict = "met" if futile.role == "above" else "missed"

    # The next probe.

    def _begin(self, load: float, role: ProbeRole) -> None:
        certifying, correlation = role in ("below", "above"), self._correlation()
        most = MAX_REQUESTS[role] * self.goal.scale
        self.probe = Probe(
            len(self.probes),
            load,
            role,
            warm_up=max(self.goal.warm_up, STAYS * self._stay),
            warm_up_requests=0 if role == "locate" else round(max(WARM_UP, WARM_UP_TIMES * correlation)),
            most_requests=round(max(most, LONG * correlation) if certifying else most),
        )
        self.next_look = DOUBLING[0] if role == "locate" else FIRST_LOOK

    def _continue(self) -> None:
        if len(self.probes) >= MAX_PROBES or (self.precise and not self._enclosed):
            return
        if (load := self._locating()) is not None:
            self._begin(load, "locate")
        elif not self._enclosed:  # every load of the range seems to be met, or none
            if self.met is None and self.missed is None:
                self._begin(*((self.goal.highest, "below") if self._leaning("met") else (self.goal.lowest, "above")))
        else:
            self.estimate = self._estimated()
            if not self.precise and (following := self._next_to(self.estimate)) is not None:
                self._begin(*following)

    def _leaning(self, verdict: ProbeVerdict) -> list[float]:
        return [p.load for p in self.probes if p.role == "locate" and p.verdict == verdict]

    @property
    def _enclosed(self) -> bool:
        """Return whether one load seems to be met and another one missed."""
        return bool(self._leaning("met") and self._leaning("missed"))

    def _locating(self) -> float | None:
        """Return the next load by doubling, halving or bisecting; `None` if capacity is located, or cannot be."""
        goal, lows, highs = self.goal, self._leaning("met"), self._leaning("missed")
        tried = [p.load for p in self.probes if p.role == "locate"]
        if self._enclosed and len(tried) < len(self.probes):
            return None
        if not highs:
            return goal.rounded(2 * max(tried)) if max(tried) < goal.highest else None
        if not lows:
            return goal.rounded(min(tried) / 2) if min(tried) > goal.lowest else None
        low, high = max(lows), min(highs)
        ends = [p for p in self.probes if low <= p.load <= high]
        undecided = any(p.outcomes.total >= p.most_requests for p in ends)  # so its load is near capacity
        if high <= low * CLOSE or undecided or (goal.whole and high - low <= 1):
            return None
        middle = goal.rounded(math.sqrt(low * high))
        return max(middle, low + 1) if goal.whole else middle

    def _estimated(self) -> float:
        tau, loads = self._correlation(), []
        short = () if self.met is None and self.missed is None else ("locate",)
        for k, alpha in enumerate(self.goal.shares):
            samples = []
            for p in self.probes:
                effective = p.outcomes.total / max(tau, p.outcomes.correlation)
                most = FAR_WEIGHT if p.role in short else math.inf
                samples.append(Sample(p.load, p.outcomes.shares[k], min(effective, most)))
            loads.append(crossing(samples, alpha))
        low, high = self.met or 0.0, self.missed or math.inf
        if not short:  # a stall may have given wrong certificates
            low, high = max(self._leaning("met")), min(self._leaning("missed"))
        return min(max(min(loads), low), high) if low < high else min(loads)

    def _next_to(self, estimate: float) -> tuple[float, Side] | None:
        """Return a load on the side with the larger gap to the estimate, or on the other side if the gap is closed."""
        gaps: dict[Side, float] = {
            "above": self.missed / estimate if self.missed else math.inf,  # the first side, because it takes less time
            "below": estimate / self.met if self.met else math.inf,
        }
        tries: dict[Side, int] = {side: sum(p.role == side for p in self.probes) for side in gaps}
        for side in sorted(gaps, key=lambda side: (-gaps[side], tries[side])):
            load = self._placed(estimate, side, OUTWARD ** tries[side] if gaps[side] == math.inf else 1.0)
            if (self.met or 0.0) < load < (self.missed or math.inf):
                return load, side
        return None

    def _placed(self, estimate: float, side: Side, outward: float) -> float:
        """Return a load next to the estimate, or the load of an earlier probe that is near enough."""
        ends = self.goal.ends if self.width <= WIDE_PRECISION else max(self.goal.ends, WIDE_ENDS)
        distance, nearest = ends**INSIDE * outward, ends**NEAREST
        if side == "below":
            load, limit = estimate / distance, estimate / nearest
            completes = self.missed / ends if self.missed else 0.0  # the bracket of the goal
            load = completes if load < completes < limit else load
        else:
            load, limit = estimate * distance, estimate * nearest
            completes = self.met * ends if self.met else math.inf
            load = completes if limit < completes < load else load
        low, high = sorted((load, limit))
        load, near = self.goal.rounded(load), math.floor(estimate)
        if self.goal.whole:
            low, high = (self.met or 0) + 1, (self.missed or math.inf) - 1
            return float(min(max(load, low), near) if side == "below" else max(min(load, high), near + 1))
        met, missed = self.met or 0.0, self.missed or math.inf
        earlier = [p.load for p in self.probes if p.role == side and low <= p.load <= high and met < p.load < missed]
        return earlier[-1] if earlier else load

    # The result.

    @property
    def width(self) -> float:
        """Return half of the certified bracket as a share of its middle; infinite without a bracket."""
        if self.met is None or self.missed is None or self.met >= self.missed:
            return math.inf
        return (self.missed - self.met) / (self.missed + self.met)

    @property
    def precise(self) -> bool:
        """Return whether the bracket has the goal's precision, or its ends are neighbouring whole numbers."""
        neighbours = self.goal.whole and self.met is not None and self.missed == self.met + 1
        return self.width <= self.goal.precision or neighbours
