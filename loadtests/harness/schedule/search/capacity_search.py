"""Which load to probe next, and what is certified: a search for capacity without a clock.

Attainment does not grow with load. So a probe that meets the objectives is evidence for every lower load, one that
misses them against every higher load, and the evidence of all such probes multiplies. Doubling and bisection
locate capacity, and are no evidence. Then probes below and above the estimate certify a bracket. What a
probe speaks for is fixed before it runs, and loads are read from the outermost one inwards until one is not certified,
so that one test is made on each side, however many probes there are.
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
LEAST_MET = 2900  # requests that a certificate of "met" rests on: what is rare may not have shown yet
DOUBLING, BISECTING = (20, math.log(5), math.log(100)), (150, math.log(20), math.log(20))
"""Requests at least, and the evidence for "met" and for "missed" that ends such a probe."""
BY_FAR = 0.25  # share of requests that miss an objective where doubling ends
MOST: dict[ProbeRole, int] = {"locate": 600, "below": 4000, "above": 4000}  # requests, if 5 % may miss
LONG = 120.0  # correlation times of a certifying probe, where that is more
CLOSE = 1.06  # ratio of loads between which bisection stops
WIDE_PRECISION, WIDE_ENDS = 0.3, 1.64  # a bracket so wide is certified first, by probes as for that ratio of its ends
INSIDE, NEAREST = 0.45, 0.35  # powers of the ratio of a bracket's ends: distances of probes, at first and at least
OUTWARD = 1.12  # ratio of a probe's distance to the one before, while a side has no certificate
WARM_UP, WARM_UP_TIMES, STAYS = 200, 4.0, 3.0  # requests, correlation times, and mean times that a request is in flight
BISECTING_STAYS = 6.0  # mean times in flight that a bisecting probe lasts at least
FIRST_LOOK, LOOKS = 200, 1.15  # requests, and the ratio of each look to the one before
FUTILE, FUTILE_AFTER = -1.0, 600  # logarithm of a probe's own evidence that gives it up, after so many requests
MOST_PROBES = 150


@dataclass(frozen=True, slots=True)
class Goal:
    """`shares` of requests may miss each objective. Loads are requests per second, or whole numbers. `warm_up` is in
    seconds, at least; `precision` half the bracket as a share of its middle."""

    shares: tuple[float, ...]
    precision: float = 0.2
    start: float = 1.0
    lowest: float = 1 / 64
    highest: float = math.inf
    whole: bool = False
    warm_up: float = 1.0

    @property
    def scale(self) -> float:
        """How much longer probes are because misses must be rarer than 5 %."""
        return max(1.0, 0.05 / min(self.shares))

    @property
    def ends(self) -> float:
        """Ratio of the ends of the bracket as asked."""
        return (1 + self.precision) / (1 - self.precision)

    def rounded(self, load: float) -> float:
        load = min(max(load, self.lowest), self.highest)
        return float(round(load)) if self.whole else float(f"{load:.4g}")


@dataclass(slots=True, eq=False)
class Probe:
    """One load to apply, and what came of it. `warm_up` in seconds and `warm_up_requests`: whichever takes longer."""

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
        """Its logarithm."""
        assert self.role in ("below", "above"), "what locates is no evidence"
        kept = self._evidence.get((objective, size))
        if kept is None or kept[0] is not self.outcomes:
            shares = self.outcomes.batches(objective, size)
            kept = self._evidence[objective, size] = self.outcomes, log_evidence(shares, alpha, self.role)
        return kept[1]


@dataclass(slots=True)
class Search:
    """`probe` is the one to run now, `None` when the search has ended. `met` is the highest load that is certified to
    meet all objectives, `missed` the lowest that is certified to miss one."""

    goal: Goal
    probes: list[Probe] = field(default_factory=list)  # that have ended
    probe: Probe | None = None
    next_look: float = 0
    met: float | None = None
    missed: float | None = None
    estimate: float | None = None

    def __post_init__(self) -> None:
        self._begin(self.goal.rounded(self.goal.start), "locate")

    def look(self, outcomes: ProbeOutcomes, last: bool = False) -> Probe | None:
        """Judge the probe that is on by what it has shown; returns it if that ended it: then the next one is due.

        `last`: it ends now, decided or not.
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
        self._continue()
        return probe

    # One probe.

    def _located(self, probe: Probe) -> bool:
        """By a likelihood ratio: as many miss an objective as half of those that may, or twice as many?

        Twice the capacity is missed by far. So doubling goes on where it looks missed by little: a cold start or a
        stall of the server would hold the search at a low load.
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
        """Certify loads from the outermost one inwards, each by all probes of its side at it or beyond it."""
        probes, below = [p for p in (*self.probes, current) if p.role == side], side == "below"
        for load in sorted({p.load for p in probes}, reverse=not below):
            pool = [p for p in probes if (p.load >= load if below else p.load <= load)]
            few = below and sum(p.outcomes.total for p in pool) < LEAST_MET
            if few or self._evidence(side, pool) < CERTAIN:
                return
            if below:
                self.met = max(load, self.met or load)
            else:
                self.missed = min(load, self.missed or load)

    def _evidence(self, side: Side, pool: Sequence[Probe]) -> float:
        """Its logarithm. Every objective must be met; any may be missed, so their mean speaks for that."""
        mean = self._correlation()  # a probe may by chance have seen few bursts
        sizes = [batch_size(max(mean, p.outcomes.correlation)) for p in pool]
        logs = [
            sum(p.evidence(k, alpha, size) for p, size in zip(pool, sizes, strict=True))
            for k, alpha in enumerate(self.goal.shares)
        ]
        return min(logs) if side == "below" else log_mean(logs)

    def _correlation(self) -> float:
        """The mean τ of all probes."""
        seen = [p.outcomes for p in (*self.probes, self.probe) if p is not None and p.outcomes.total]
        return sum(each.correlation * each.total for each in seen) / sum(each.total for each in seen) if seen else 1.0

    @property
    def _stay(self) -> float:
        """Seconds that a request is in flight, where the load seems to be met."""
        return max((p.outcomes.stay for p in self.probes if p.verdict == "met"), default=0.0)

    # The next probe.

    def _begin(self, load: float, role: ProbeRole) -> None:
        certifying, correlation = role in ("below", "above"), self._correlation()
        most = MOST[role] * self.goal.scale
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
        if len(self.probes) >= MOST_PROBES:
            return
        if (load := self._locating()) is not None:
            self._begin(load, "locate")
        elif not self._enclosed:  # every load of the range seems to be met, or none
            if self.met is None and self.missed is None:
                self._begin(*((self.goal.highest, "below") if self._leaning("met") else (self.goal.lowest, "above")))
        else:
            self.estimate = self._estimated()
            if not self.precise and (following := self._beside(self.estimate)) is not None:
                self._begin(*following)

    def _leaning(self, verdict: ProbeVerdict) -> list[float]:
        return [p.load for p in self.probes if p.role == "locate" and p.verdict == verdict]

    @property
    def _enclosed(self) -> bool:
        """Whether locating has found a load that seems to be met and one that does not."""
        return bool(self._leaning("met") and self._leaning("missed"))

    def _locating(self) -> float | None:
        """The next load by doubling, halving or bisecting; `None` when capacity is located, or cannot be."""
        goal, lows, highs = self.goal, self._leaning("met"), self._leaning("missed")
        tried = [p.load for p in self.probes if p.role == "locate"]
        if len(tried) < len(self.probes):
            return None
        if not highs:
            return goal.rounded(2 * max(tried)) if max(tried) < goal.highest else None
        if not lows:
            return goal.rounded(min(tried) / 2) if min(tried) > goal.lowest else None
        low, high = max(lows), min(highs)
        ends = [p for p in self.probes if low <= p.load <= high]
        undecided = any(p.outcomes.total >= p.most_requests for p in ends)  # so that one is about capacity
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
        if not short:  # whatever a stall said
            low, high = max(self._leaning("met")), min(self._leaning("missed"))
        return min(max(min(loads), low), high) if low < high else min(loads)

    def _beside(self, estimate: float) -> tuple[float, Side] | None:
        """A load on the side with the larger gap to the estimate, on the other if that one has none left."""
        gaps: dict[Side, float] = {
            "above": self.missed / estimate if self.missed else math.inf,  # at first: it is decided soon
            "below": estimate / self.met if self.met else math.inf,
        }
        tries: dict[Side, int] = {side: sum(p.role == side for p in self.probes) for side in gaps}
        for side in sorted(gaps, key=lambda side: (-gaps[side], tries[side])):
            load = self._placed(estimate, side, OUTWARD ** tries[side] if gaps[side] == math.inf else 1.0)
            if (self.met or 0.0) < load < (self.missed or math.inf):
                return load, side
        return None

    def _placed(self, estimate: float, side: Side, outward: float) -> float:
        """A whole number next to the estimate or beyond it; or the load of an earlier probe that is near enough."""
        ends = self.goal.ends if self.width <= WIDE_PRECISION else max(self.goal.ends, WIDE_ENDS)
        distance, nearest = ends**INSIDE * outward, ends**NEAREST
        if side == "below":
            load, limit = estimate / distance, estimate / nearest
            completes = self.missed / ends if self.missed else 0.0  # the bracket as asked
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
        known = [p.load for p in self.probes if p.role == side and low <= p.load <= high]
        inside = [each for each in known if (self.met or 0.0) < each < (self.missed or math.inf)]
        return inside[-1] if inside else load

    # What came of it.

    @property
    def width(self) -> float:
        """Half the certified bracket, as a share of its middle; infinite without a bracket."""
        if self.met is None or self.missed is None or self.met >= self.missed:
            return math.inf
        return (self.missed - self.met) / (self.missed + self.met)

    @property
    def precise(self) -> bool:
        """Whether the bracket is as narrow as was asked, or as whole numbers can be."""
        neighbours = self.goal.whole and self.met is not None and self.missed == self.met + 1
        return self.width <= self.goal.precision or neighbours

    def more_requests(self) -> float | None:
        """About how many more would give the precision asked, if they show what the last ones did; `None` if those do
        not show where capacity is."""
        if self.estimate is None:
            return None
        total = 0.0
        ends: dict[Side, float | None] = {"below": self.met, "above": self.missed}
        for side, end in ends.items():
            if end is not None and max(end / self.estimate, self.estimate / end) <= self.goal.ends**0.5:
                continue
            probes = [p for p in (*self.probes, self.probe) if p is not None and p.role == side and p.outcomes.total]
            if not probes:
                total += MOST[side] * self.goal.scale
                continue
            shown, farther = self._evidence(side, probes[-1:]), abs(math.log(probes[-1].load / self.estimate))
            if shown <= 0:
                return None
            more = max(1.0, farther / (INSIDE * math.log(self.goal.ends))) ** 2  # evidence grows as distance squared
            counts = probes[-1].verdict == "undecided"  # for loads nearer to the estimate it does not
            total += probes[-1].outcomes.total * max(0.5, more * CERTAIN / shown - counts)
        return total
