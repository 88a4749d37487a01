"""A model of one replica, fitted to records: what a step costs, how many requests run, and how prompts are prefilled;
and the futures in which it is simulated, each with its own draw of what the fit leaves open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from statistics import NormalDist
from typing import Any

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.step_cost import Fit, StepCost, fit_cost
from enginebench.analysis.plan.steps import Generator, Steps

MIN_SEEN = 10  # steps from which a limit is read
MIN_SEEN_SHARE = 0.01  # of a stage's steps in which more requests than the engine reports must have run to refute it
MIN_DELIVERY = 1e-6  # seconds: a user's next request comes after the step that ended the last one
MIN_PILED = 3 * MIN_SEEN  # steps at a limit that is told from what is below it
BELOW = 3  # numbers below, of which it has more steps than all together
NEARLY = 0.98
AGREED = 0.5  # share of them that must show the same number


class SlotsFrom(Enum):
    UNKNOWN = "not seen"
    SATURATION = "saturation"  # requests were waiting for a slot
    ENGINE = "engine"  # as the engine reports them


@dataclass(frozen=True, slots=True)
class EngineModel:
    """What the simulation needs to know of a replica.

    `slots` is how many requests run at a time; `None` if no limit was seen, and then `most_running` is how many did.
    """

    cost: StepCost
    synchronised: bool = True  # one batch; else every request has steps of its own
    slots: int | None = None
    slots_from: SlotsFrom = SlotsFrom.UNKNOWN
    most_running: int = 0
    pauses: bool = False  # running requests pause while prompts are prefilled
    late_handover: bool = False  # a waiting request gets a freed slot one step late
    delivery: float = 0.0  # seconds of TTFT outside the engine's steps
    tokens_per_step: float = 1.0
    drift: float = 0.0  # standard deviation of the step cost over periods of ten seconds, as a share of it
    noise: Floats = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)  # of each measured step

    def slowed(self, deviations: float) -> EngineModel:
        """Return the replica on another day, slower than usual by `deviations` standard deviations of its drift."""
        if self.drift == 0:
            return self
        return replace(self, cost=self.cost.scaled(math.exp(self.drift * deviations)))

    def as_document(self) -> dict[str, Any]:
        """For JSON, without the noise."""
        values = {name: value for name, value in asdict(self).items() if name != "noise"}
        return values | {"slots_from": self.slots_from.value}


@dataclass(frozen=True, slots=True)
class FittedModel:
    """`costs` are other step costs that the same records allow."""

    model: EngineModel
    fit: Fit
    costs: tuple[StepCost, ...]

    def with_cost(self, number: int) -> EngineModel:
        return replace(self.model, cost=self.costs[number % len(self.costs)])


@dataclass(frozen=True, slots=True)
class Future:
    """One simulated future, by its number: random draws, and how fast the machine is on that day."""

    number: int
    seed: int = 0

    @property
    def rng(self) -> Generator:
        """From its beginning, so that other fleets meet the same future (common random numbers)."""
        return np.random.default_rng([self.seed, self.number])

    @property
    def slower(self) -> float:
        """Standard deviations of its drift by which the machine is slower than usual: normal quantiles at the points of
        van der Corput's sequence, which are spread evenly for any number of futures."""
        point, part = 0.0, 0.5
        digits = self.number + 1
        while digits:
            digits, digit = divmod(digits, 2)
            point, part = point + digit * part, part / 2
        return NormalDist().inv_cdf(point)

    def usual(self, model: EngineModel) -> EngineModel:
        """Return the model on that day."""
        return model.slowed(self.slower)

    def drawn(self, fitted: FittedModel) -> EngineModel:
        """Return one of the models that the records allow, on that day."""
        return self.usual(fitted.with_cost(self.number))


def futures(count: int, seed: int = 0) -> list[Future]:
    return [Future(number, seed) for number in range(count)]


def fit_model(stages: Sequence[Steps], declared_slots: int | None = None) -> FittedModel:
    """Fit the model of a replica. `declared_slots` is what the engine reports. Raises `CannotPlan`."""
    if not stages:
        raise CannotPlan(NotPlanned.FEW_STEPS)
    running = [float(steps.occupied.mean()) if _several(steps) else 0.0 for steps in stages]
    in_batch = 2 * sum(n for n, steps in zip(running, stages, strict=True) if steps.synchronised) >= sum(running)
    # A stage with one user shows no batch, and belongs to either kind.
    fitted = [steps for steps in stages if steps.synchronised == in_batch or not _several(steps)]
    if declared_slots is not None and max(map(_ran_at_once, fitted), default=0) > declared_slots:
        declared_slots = None
    slots, source = saturated_slots(fitted) if in_batch else None, SlotsFrom.SATURATION
    if slots is None:
        slots, source = declared_slots, SlotsFrom.UNKNOWN if declared_slots is None else SlotsFrom.ENGINE
    fit = fit_cost(fitted, slots)
    delivery = _delivery(fitted, slots, fit.cost)
    model = EngineModel(
        cost=fit.cost,
        synchronised=in_batch,
        slots=slots,
        slots_from=source,
        most_running=int(max(steps.occupied.max(initial=0) for steps in fitted)),
        pauses=in_batch and _pauses(fitted),
        # If delivery takes longer than a step, slots are empty while requests are on their way.
        late_handover=slots is not None
        and in_batch
        and delivery < fit.cost.seconds(1)
        and _late_handover(fitted, slots),
        delivery=delivery,
        tokens_per_step=float(
            np.average([s.tokens_per_step for s in fitted], weights=[len(s.seconds) for s in fitted])
        ),
        drift=fit.drift,
        noise=fit.noise,
    )
    return FittedModel(model, fit, fit.draws)


def _several(steps: Steps) -> bool:
    return bool(steps.occupied.max(initial=0) > 1)


def _ran_at_once(steps: Steps) -> int:
    """Return how many requests certainly ran at a time: at least that many did in `MIN_SEEN` steps, and in 1 %."""
    running = steps.occupied if steps.synchronised else _streams(steps)
    rank = max(MIN_SEEN, math.ceil(MIN_SEEN_SHARE * len(running)))
    return int(np.sort(running)[-rank]) if len(running) >= rank else 0


def _streams(steps: Steps) -> Floats:
    """Count the requests between two tokens at the end of each gap between tokens: they wait for no slot."""
    decoding = steps.prompts == 0
    end, seconds = steps.end[decoding], steps.seconds[decoding]
    begun = np.searchsorted(np.sort(end - seconds), end, side="left")
    return np.asarray(begun - np.arange(len(end)), dtype=np.float64)


def saturated_slots(stages: Sequence[Steps]) -> int | None:
    """Return the number of running requests at which others were left waiting; `None` if that never happened."""
    # If nothing runs, what waits is still on its way to the engine.
    kept = [(steps.left > 0) & (steps.prompts == 0) & (steps.occupied > 0) for steps in stages]
    full = np.concatenate([steps.occupied[rows] for steps, rows in zip(stages, kept, strict=True)])
    if len(full) < MIN_SEEN:
        return None
    counts = np.bincount(full.astype(np.int64))
    usual = int(np.argmax(counts))
    if counts[usual] >= AGREED * len(full):
        return usual
    # Over a slow network, requests on their way seem to wait at any number of running ones. The limit is then the
    # number at which they pile up, and that no step exceeds.
    most = len(counts) - 1
    piled = counts[most] >= MIN_PILED and counts[most] > counts[max(most - BELOW, 0) : most].sum()
    return most if piled and all(steps.occupied.max(initial=0) <= most for steps in stages) else None


def _pauses(stages: Sequence[Steps]) -> bool:
    """Whether more prefills were computed alone than together with tokens of running requests."""
    joined = sum(int((steps.mixed & (steps.occupied > steps.prompts)).sum()) for steps in stages)
    return sum(int(steps.alone.sum()) for steps in stages) > joined


def _late_handover(stages: Sequence[Steps], slots: int) -> bool:
    """Whether freed slots stay empty for a step while requests wait: the queue is outside the engine."""
    empty = sum(int(((s.left > 0) & (s.prompts == 0) & (s.occupied < slots)).sum()) for s in stages)
    filled = sum(int(((s.left > 0) & (s.prompts > 0)).sum()) for s in stages)
    return empty >= MIN_SEEN and empty > AGREED * filled


def _delivery(stages: Sequence[Steps], slots: int | None, cost: StepCost) -> float:
    """Return the seconds from when a request is due to when the engine has it, both ways of the network included.

    TTFT of requests to an idle engine shows it. Without such requests, one that was due shortly before a step and was
    not in it bounds it from below (`missed`), and one that was in it from above (`caught`). What waited while all slots
    were taken is left out.
    """
    waited = np.concatenate([steps.waited for steps in stages])
    if len(waited) >= MIN_SEEN:
        tokens = np.concatenate([steps.waited_tokens for steps in stages])
        return max(float(np.median(waited - cost.seconds(1, 0, 1) - cost.per_token * tokens)), MIN_DELIVERY)
    free = np.concatenate([steps.beside for steps in stages]) < (math.inf if slots is None else slots)
    missed, caught = (np.concatenate([getattr(steps, name) for steps in stages])[free] for name in ("missed", "caught"))
    # The least number above zero in nearly as many of the intervals (`missed`, `caught`] as any number is.
    at = np.concatenate([missed, caught])
    order = np.argsort(at, kind="stable")
    overlap = np.cumsum(np.concatenate([np.ones(len(missed)), -np.ones(len(caught))])[order])
    overlap[at[order] < 0] = 0
    if overlap.max(initial=0) <= 0:
        return MIN_DELIVERY
    least = float(at[order][np.argmax(overlap >= NEARLY * overlap.max())])
    return max(least, 0.0) + MIN_DELIVERY
