"""A model of one replica, fitted to records: the cost of a step, how many requests run, how prompts are prefilled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.step_cost import Fit, fit_cost
from enginebench.analysis.plan.steps import Generator, Steps

MIN_SEEN = 10  # steps needed to infer a limit
MIN_SEEN_SHARE = 0.01  # share of a stage's steps above the reported limit that refutes it
MIN_DELIVERY = 1e-6  # seconds: a user's next request comes after the step that ended the last one
MIN_PILED = 3 * MIN_SEEN  # steps that must be at a limit on running requests
BELOW = 3  # numbers just below a limit, which have fewer steps together than the limit
NEARLY = 0.98  # share of the largest overlap of intervals
AGREED = 0.5  # share of steps that must show the same number


@dataclass(frozen=True, slots=True)
class EngineModel:
    """A replica, as far as the simulation needs it. `slots` is how many requests can run at a time, `None` if no limit
    was seen. Steps take `slower` times as long as in the fit."""

    fit: Fit
    slots: int | None = None
    pauses: bool = False  # running requests pause while prompts are prefilled
    late_handover: bool = False  # a waiting request gets a freed slot one step late
    delivery: float = 0.0  # seconds of TTFT outside the engine's steps
    tokens_per_step: float = 1.0
    slower: float = 1.0


@dataclass(frozen=True, slots=True)
class Future:
    """A simulated future, by its number: random draws, and the speed of the machine on that day."""

    number: int
    seed: int = 0

    @property
    def rng(self) -> Generator:
        """Restart the draws, so that all fleets meet the same future (common random numbers)."""
        return np.random.default_rng([self.seed, self.number])

    @property
    def deviations(self) -> float:
        """Return by how many standard deviations of its drift the machine is slower than usual. Futures have the normal
        quantiles of van der Corput's sequence, which is evenly spread for any number of them."""
        point, part = 0.0, 0.5
        digits = self.number + 1
        while digits:
            digits, digit = divmod(digits, 2)
            point, part = point + digit * part, part / 2
        return NormalDist().inv_cdf(point)

    def drifted(self, model: EngineModel) -> EngineModel:
        """Return the replica on that day."""
        return replace(model, slower=math.exp(model.fit.drift * self.deviations))


def futures(count: int, seed: int = 0) -> list[Future]:
    return [Future(number, seed) for number in range(count)]


def fit_model(stages: Sequence[Steps], declared_slots: int | None = None) -> EngineModel:
    """Fit the model of a replica. `declared_slots` is what the engine reports. Raises `CannotPlan`."""
    if not stages:
        raise CannotPlan(NotPlanned.FEW_STEPS)
    fitted = [steps for steps in stages if steps.synchronised]
    if not fitted or 2 * sum(map(_running, fitted)) < sum(map(_running, stages)):
        raise CannotPlan(NotPlanned.NO_BATCH)
    if declared_slots is not None and max(map(_ran_at_once, fitted)) > declared_slots:
        declared_slots = None
    late_handover = _late_handover(fitted)
    slots = saturated_slots(fitted, late_handover)
    if slots is None:
        slots = declared_slots
    fit = fit_cost(fitted)
    delivery = _delivery(fitted, slots, fit)
    tokens, weights = [steps.tokens_per_step for steps in fitted], [len(steps.seconds) for steps in fitted]
    return EngineModel(
        fit=fit,
        slots=slots,
        pauses=_pauses(fitted),
        # If delivery takes longer than a step, slots are empty while requests are on their way.
        late_handover=slots is not None and delivery < fit.cost.seconds(1) and late_handover,
        delivery=delivery,
        tokens_per_step=float(np.average(tokens, weights=weights)),
    )


def _running(steps: Steps) -> float:
    """Return the mean number of running requests; 0 with a single user, who neither shows nor refutes a batch."""
    return float(steps.occupied.mean()) if steps.occupied.max(initial=0) > 1 else 0.0


def _ran_at_once(steps: Steps) -> int:
    """Return how many requests certainly ran at a time: at least that many in `MIN_SEEN` steps and in 1 % of steps."""
    rank = max(MIN_SEEN, math.ceil(MIN_SEEN_SHARE * len(steps.occupied)))
    return int(np.sort(steps.occupied)[-rank]) if len(steps.occupied) >= rank else 0


def saturated_slots(stages: Sequence[Steps], late_handover: bool = False) -> int | None:
    """Return the number of running requests at which other requests had to wait; `None` if that never happened."""
    full = np.concatenate([_taken(steps, late_handover) for steps in stages])
    if len(full) < MIN_SEEN:
        return None
    counts = np.bincount(full.astype(np.int64))
    usual = int(np.argmax(counts))
    if counts[usual] >= AGREED * len(full):
        return usual
    # Over a slow network, requests in transit seem to wait at any number of running requests. The limit is then the
    # number that no step exceeds and at which steps pile up.
    most = len(counts) - 1
    piled = counts[most] >= MIN_PILED and counts[most] > counts[max(most - BELOW, 0) : most].sum()
    return most if piled and all(steps.occupied.max(initial=0) <= most for steps in stages) else None


def _taken(steps: Steps, late_handover: bool) -> Floats:
    """Return the slots that were taken in each step that left requests waiting."""
    if late_handover:  # requests that the previous step ended still occupy their slots
        kept: Floats = (steps.occupied[:-1] + steps.prompts[1:])[steps.left[1:] > 0]
        return kept
    # If nothing runs, waiting requests are still in transit to the engine.
    full: Floats = steps.occupied[(steps.left > 0) & (steps.prompts == 0) & (steps.occupied > 0)]
    return full


def _pauses(stages: Sequence[Steps]) -> bool:
    """Return whether more prefills were computed alone than together with tokens of running requests."""
    joined = sum(int((steps.mixed & (steps.occupied > steps.prompts)).sum()) for steps in stages)
    return sum(int(steps.alone.sum()) for steps in stages) > joined


def _late_handover(stages: Sequence[Steps]) -> bool:
    """Return whether freed slots stay empty for a step while requests wait: the queue is outside the engine.

    With a full queue, a step admits as many requests as the previous step ended or, if late, the one before that.
    """
    at_once = late = 0
    for steps in stages:
        ended = steps.occupied[:-1] - steps.occupied[1:] + steps.prompts[1:]  # by each step but the last one
        last, before, admitted = ended[1:], ended[:-1], steps.prompts[2:]
        telling = (steps.left[2:] > 0) & (last != before)
        at_once += int((telling & (admitted == last)).sum())
        late += int((telling & (admitted == before)).sum())
    return late >= MIN_SEEN and late > at_once


def _delivery(stages: Sequence[Steps], slots: int | None, fit: Fit) -> float:
    """Return the seconds from when a request is due to when the engine has it, including both ways of the network.

    TTFT of requests to an idle engine shows the delay. Without such requests, a request that was due shortly before a
    step bounds the delay from below if it missed the step (`missed`), else from above (`caught`). Requests that waited
    while all slots were taken are left out.
    """
    waited = np.concatenate([steps.waited for steps in stages])
    if len(waited) >= MIN_SEEN:
        tokens = np.concatenate([steps.waited_tokens for steps in stages])
        first_step = fit.cost.seconds(1, 0, 1) + fit.cost.per_token * tokens
        return max(float(np.median(waited - first_step)), MIN_DELIVERY)
    free = np.concatenate([steps.beside for steps in stages]) < (math.inf if slots is None else slots)
    missed, caught = (np.concatenate([getattr(steps, name) for steps in stages])[free] for name in ("missed", "caught"))
    # The least number ≥ 0 that is in nearly as many of the intervals (`missed`, `caught`] as any other number.
    at = np.maximum(np.concatenate([missed, caught]), 0)
    order = np.argsort(at, kind="stable")
    overlap = np.cumsum(np.concatenate([np.ones(len(missed)), -np.ones(len(caught))])[order])
    if overlap.max(initial=0) <= 0:
        return MIN_DELIVERY
    least = float(at[order][np.argmax(overlap >= NEARLY * overlap.max())])
    return least + MIN_DELIVERY
