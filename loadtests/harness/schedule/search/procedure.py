"""The search for capacity: the highest load at which every objective is met.

    locate     short probes: double or halve the load until capacity lies between two of them, then bisect on a
               logarithmic scale; a probe that cannot decide leans to where its share lies
    certify    fresh probes a little below and a little above the estimate, which end when a confidence sequence has
               decided them; one that cannot decide is followed by one further out

Pure: no clock, no sleep, no I/O. The caller runs the probes, and calls `look` with the evidence so far at any time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from loadtests.harness.schedule.search.confidence import log_evidence
from loadtests.harness.schedule.search.evidence import Evidence, Share, overloaded, shares
from loadtests.harness.schedule.search.location import Location, Sample, locate
from records.search import Role, Verdict

CERTIFYING = ("below", "above")

MOST: dict[Role, int] = {"locate": 2000, "refine": 5000, "below": 20_000, "above": 20_000}  # requests at q = 0.95
USUAL = 0.05
PRECISE, IN_THE_END, REFINEMENTS = 0.05, 0.03, 4  # standard deviation of the estimate, and probes to reach it
NARROW = 2  # users between the certified ends, which leave nothing to refine
FIRST_LOOK, LOOKS = 100, 1.1  # requests at the first look, and the ratio of each further look to the one before
FIRST_CERTIFYING_LOOK = 1000
MEMORIES = 10.0
LEAST_EFFECTIVE, DOUBTED = 20.0, 4.0
ERROR, CERTIFICATES = 0.05, 6  # the probability of a wrong certificate, shared by so many probes
LOCATE_ERROR = 0.1
STEP, WIDER = 0.08, 1.6  # distance of the first certifying probes from the estimate; ratio of each further one
SPREADS = 1.5  # it is at least so many standard deviations of the estimate
NEARBY = 0.07  # in the logarithm of the load
CLOSE = 1.2  # ratio of loads between which locating stops bisecting
WARM_UP_SHARE = 0.25  # of a probe's requests, at most
RELAXATIONS = 3.0  # warm-up in correlation times
STAYS = 3.0  # warm-up in mean times that a request is in flight
ARRIVALS_OFF = 0.02  # share by which the arrivals of a probe may miss its load in the direction of its verdict
OVERLOAD_REQUESTS = 300
FUTILE = 2.0  # a probe that would need so many times its most requests is given up


@dataclass(frozen=True, slots=True)
class Goal:
    """What is searched for: `shares` are the shares of requests that must meet each objective.

    Loads are requests per second, or whole numbers where `whole`. `warm_up` is in seconds, at least.
    """

    shares: tuple[float, ...]
    start: float = 1.0
    lowest: float = 1 / 64
    highest: float = math.inf
    whole: bool = False
    warm_up: float = 1.0
    probes: int = 40

    @property
    def rarest(self) -> float:
        """The share of requests that may miss the strictest objective."""
        return min(1 - q for q in self.shares)


@dataclass(frozen=True, slots=True)
class Probe:
    """One load to apply. `warm_up` in seconds; `most_requests` are counted at most after it."""

    number: int
    load: float
    role: Role
    warm_up: float
    most_requests: int


@dataclass(frozen=True, slots=True)
class Decision:
    """How a probe ended. `leans` is what locating goes by where the probe decided nothing."""

    probe: Probe
    verdict: Verdict
    reason: str
    leans: Literal["met", "missed"]
    shares: tuple[Share, ...]
    requests: int
    relaxation: float  # seconds in which the system forgets, from the correlation seen
    stay: float  # mean time in seconds that a request was in flight


def _gain(share: Share, q: float) -> tuple[float, float]:
    """The evidence for and against. An effective number near the number of batches may be far smaller in truth."""
    doubt = 1.0 if share.effective >= LEAST_EFFECTIVE else DOUBTED
    good, bad = share.counts
    return log_evidence(good / doubt, bad / doubt, q)


@dataclass(slots=True)
class Search:
    goal: Goal
    decisions: list[Decision] = field(default_factory=list)
    probe: Probe | None = None
    next_look: float = FIRST_LOOK
    _outward: dict[Role, int] = field(default_factory=lambda: {"below": 0, "above": 0})

    def __post_init__(self) -> None:
        self._begin(self._rounded(self.goal.start, up=False), "locate")

    # One probe.

    def look(self, evidence: Evidence, seconds: float, last: bool = False) -> Decision | None:
        """Judge the probe that is on by what `seconds` of it have shown; a decision ends it and begins the next one.

        `last`: the probe ends now, decided or not.
        """
        assert self.probe is not None
        n = evidence.total
        last = last or n >= self.probe.most_requests
        if n < self.next_look and not last:
            return None
        self.next_look = max(self.next_look, n) * LOOKS
        found = shares(evidence) if n else []
        verdict, reason = self._judge(self._tempered(found, n), evidence)
        if verdict is not None and self._misplaced(verdict, n / seconds):
            verdict, reason = None, "the arrivals missed the rate"
        if verdict is None:
            if not last:
                return None
            verdict, reason = "undecided", reason or "not enough evidence"
        leans: Literal["met", "missed"] = "missed"
        if verdict == "met" or (verdict == "undecided" and found and self._looks_met(found)):
            leans = "met"
        gap = seconds / max(n, 1)
        relaxation = max((share.correlation for share in found), default=0.0) * gap
        stay = gap * sum(evidence.in_flight) / max(len(evidence.in_flight), 1)  # L = λW (Little 1961)
        decision = Decision(self.probe, verdict, reason, leans, tuple(found), n, relaxation, stay)
        self.decisions.append(decision)
        self._continue()
        return decision

    def _tempered(self, found: Sequence[Share], n: int) -> list[Share]:
        """Shares with a correlation time no shorter than that of the probes nearby.

        A probe in which few bursts came by chance shows a short one of its own, and would decide too early.
        """
        assert self.probe is not None
        answer = []
        for k, share in enumerate(found):
            tau = max(share.correlation, self._nearby(k, self.probe.load, [(self.probe.load, n, share)]))
            answer.append(Share(share.good, share.effective * share.correlation / tau, tau))
        return answer

    def _nearby(self, k: int, load: float, more: Sequence[tuple[float, int, Share]] = ()) -> float:
        """The mean correlation time of objective `k` in probes near a load, weighted by their requests."""
        seen = [(d.probe.load, d.requests, d.shares[k]) for d in self.decisions if d.shares]
        seen += more
        weights = [n * math.exp(-0.5 * (math.log(other / load) / NEARBY) ** 2) for other, n, _ in seen]
        return sum(w * share.correlation for w, (_, _, share) in zip(weights, seen, strict=True)) / sum(weights)

    def _misplaced(self, verdict: Verdict, rate: float) -> bool:
        """Whether fewer arrivals came than a load that is met must have, or more than one that is missed.

        Arrivals that come in bursts may for a long time show another load than the planned one.
        """
        assert self.probe is not None
        if self.goal.whole:
            return False
        surplus = rate / self.probe.load - 1
        return (verdict == "met" and surplus < -ARRIVALS_OFF) or (verdict == "missed" and surplus > ARRIVALS_OFF)

    def _looks_met(self, found: Sequence[Share]) -> bool:
        return all(share.good >= q for share, q in zip(found, self.goal.shares, strict=True))

    def _judge(self, found: Sequence[Share], evidence: Evidence) -> tuple[Verdict | None, str]:
        assert self.probe is not None
        n = evidence.total
        if n >= OVERLOAD_REQUESTS and overloaded(evidence):
            return "missed", "the backlog grew without end"
        if not found:
            return None, ""
        error = ERROR / CERTIFICATES if self.probe.role in CERTIFYING else LOCATE_ERROR
        needed = -math.log(error)
        if self.probe.role == "refine":
            return None, ""  # stopping early would let chance decide what is learnt
        trusted = [share.effective >= LEAST_EFFECTIVE for share in found]
        gains = [_gain(share, q) for share, q in zip(found, self.goal.shares, strict=True)]
        if all(gain[0] >= needed and enough for gain, enough in zip(gains, trusted, strict=True)):
            return "met", "every objective was met"
        several = needed + math.log(len(found))  # any of them may be missed by chance
        if any(gain[1] >= several for gain in gains):
            return "missed", "an objective was missed"
        if self.probe.role in CERTIFYING and n >= 0.25 * self.probe.most_requests:
            progress = max(min(gain[0] for gain in gains) / needed, max(gain[1] for gain in gains) / several)
            if progress * FUTILE * self.probe.most_requests < n:
                return "undecided", "too close to the limit to be decided"
        return None, ""

    # The next probe.

    def _begin(self, load: float, role: Role) -> None:
        goal = self.goal
        most_requests = MOST[role] if goal.rarest >= USUAL else round(MOST[role] * USUAL / goal.rarest)
        nearest = min(self.decisions, key=lambda d: abs(math.log(d.probe.load / load)), default=None)
        relaxing = RELAXATIONS * nearest.relaxation if nearest else 0.0
        if not goal.whole:
            relaxing = min(relaxing, WARM_UP_SHARE * most_requests / load)
        stay = max((d.stay for d in self.decisions if d.leans == "met"), default=0.0)
        warm_up = max(goal.warm_up, relaxing, STAYS * stay)
        memory = max((share.correlation for share in nearest.shares), default=0.0) if nearest else 0.0
        self.next_look = max(FIRST_CERTIFYING_LOOK, MEMORIES * memory) if role in CERTIFYING else FIRST_LOOK
        self.probe = Probe(len(self.decisions), load, role, warm_up, most_requests)

    def _continue(self) -> None:
        self.probe = None
        if len(self.decisions) >= self.goal.probes:
            return
        located = self._locating()
        if located is not None:
            self._begin(located, "locate")
            return
        where = self.location()
        if where is None:
            return
        met, missed = self.bracket
        uncertified = all(d.probe.role not in CERTIFYING for d in self.decisions)
        if met is not None and missed is not None and self.goal.whole and missed - met <= NARROW:
            return
        certified = met is not None and missed is not None
        if (uncertified and self._imprecise(where, PRECISE, 1)) or (
            certified and self._imprecise(where, IN_THE_END, 2)
        ):
            self._begin(self._rounded(where.load, up=False), "refine")
            return
        for decision in self.decisions[-1:]:
            if decision.probe.role in CERTIFYING and decision.verdict == "undecided":
                self._outward[decision.probe.role] += 1
        if met is None:
            self._begin(self._beside(where, "below"), "below")
        elif missed is None:
            self._begin(self._beside(where, "above"), "above")

    def _locating(self) -> float | None:
        """The next load by doubling, halving or bisecting; `None` when capacity is located, or cannot be."""
        goal = self.goal
        lows = [d.probe.load for d in self.decisions if d.leans == "met"]
        highs = [d.probe.load for d in self.decisions if d.leans == "missed"]
        if not highs:
            return self._rounded(min(2 * max(lows), goal.highest), up=False) if max(lows) < goal.highest else None
        if not lows:
            return self._rounded(max(min(highs) / 2, goal.lowest), up=False) if min(highs) > goal.lowest else None
        if any(d.probe.role in CERTIFYING for d in self.decisions):
            return None
        low, high = max(lows), min(highs)
        if high <= low * CLOSE or (goal.whole and high - low <= 1):
            return None
        middle = self._rounded(math.sqrt(low * high), up=False)
        return max(middle, low + 1) if goal.whole else middle  # never one that has been tried

    def _imprecise(self, where: Location, wanted: float, rounds: int) -> bool:
        """Whether another probe at the estimate is due."""
        if self._between_neighbours is not None:
            return False
        refined = sum(d.probe.role == "refine" for d in self.decisions)
        return where.spread > wanted and refined < rounds * REFINEMENTS

    @property
    def _between_neighbours(self) -> float | None:
        """A whole number that was decided to be met, while the next one was decided to be missed."""
        met = max((d.probe.load for d in self.decisions if d.verdict == "met"), default=0.0)
        missed = min((d.probe.load for d in self.decisions if d.verdict == "missed"), default=math.inf)
        return met if self.goal.whole and missed - met == 1 else None

    def location(self) -> Location | None:
        """Where capacity probably lies; `None` while it is not between two probes."""
        leans = {d.leans for d in self.decisions}
        if leans != {"met", "missed"}:
            return None
        loads = [d.probe.load for d in self.decisions if d.shares]
        lows = max(d.probe.load for d in self.decisions if d.leans == "met")
        highs = min(d.probe.load for d in self.decisions if d.leans == "missed")
        low, high = min(lows, highs) / 1.5, max(lows, highs) * 1.5
        found = []
        for k, q in enumerate(self.goal.shares):
            samples = self._samples(k)
            found.append(locate(samples, q, low, high))
        assert loads
        return min(found, key=lambda each: each.load)

    def _samples(self, k: int) -> list[Sample]:
        """Each probe's counts of objective `k`, by a correlation time smoothed over loads.

        A probe's own is short when by chance it saw few slow requests, and would weigh that chance too heavily.
        """
        samples = []
        for d in self.decisions:
            if d.shares:
                effective, good = d.requests / self._nearby(k, d.probe.load), d.shares[k].good
                samples.append(Sample(d.probe.load, good * effective, (1 - good) * effective))
        return samples

    def _beside(self, where: Location, side: Role) -> float:
        """A load further out than the last one on this side."""
        distance = max(STEP, min(SPREADS * where.spread, 3 * STEP)) * WIDER ** self._outward[side]
        if side == "below":
            load = self._rounded(max(where.load / (1 + distance), self.goal.lowest), up=False)
        else:
            load = self._rounded(min(where.load * (1 + distance), self.goal.highest), up=True)
        return load

    def _rounded(self, load: float, up: bool) -> float:
        if not self.goal.whole:
            return float(f"{load:.4g}")
        return float(max(1, math.ceil(load - 1e-9) if up else math.floor(load + 1e-9)))

    # What came of it.

    @property
    def bracket(self) -> tuple[float | None, float | None]:
        """The highest load certified as met, and the lowest certified as missed."""
        certified = [d for d in self.decisions if d.probe.role in CERTIFYING]
        met = max((d.probe.load for d in certified if d.verdict == "met"), default=None)
        missed = min((d.probe.load for d in certified if d.verdict == "missed"), default=None)
        return met, missed

    @property
    def found(self) -> bool:
        met, missed = self.bracket
        return met is not None and missed is not None and met < missed

    @property
    def estimate(self) -> float | None:
        """The most probable capacity, inside the certified bracket."""
        where = self.location()
        if where is None:
            return None
        met, missed = self.bracket
        load = min(max(self._between_neighbours or where.load, met or 0.0), missed or math.inf)
        return math.floor(load + 1e-9) if self.goal.whole else load
