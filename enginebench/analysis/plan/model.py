"""A model of one replica, fitted to records: what a step costs, how many requests run, how prompts are prefilled; and
the futures in which it is simulated, each with what the fit leaves open drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.step_cost import Fit, StepCost, fit_cost, too_few
from enginebench.analysis.plan.steps import Generator, Steps

LEAST_SEEN = 10  # steps from which a limit is read
SEEN = 0.01  # share of a stage's steps in which more requests than the engine reports must have run to refute it
LEAST_DELIVERY = 1e-6  # seconds: a user's next request comes after the step that ended the last one
PILED = 3 * LEAST_SEEN  # steps at a limit that is told from what is below it
BELOW = 3  # numbers below, of which it has more steps than all together
NEARLY = 0.98
AGREED = 0.5  # share of them that must show the same number


@dataclass(frozen=True, slots=True)
class EngineModel:
    """What the simulation needs to know of a replica.

    `slots` is how many requests run at a time; `None` where no limit was seen, and then `most_running` is how many did.
    `admits` limits the prompts of one prefill.
    """

    cost: StepCost
    synchronised: bool = True  # one batch; else every request has steps of its own
    grouped: bool = False  # of the batch, only requests of the same length are computed together
    slots: int | None = None
    slots_from: str = "not seen"  # or "saturation", "engine"
    most_running: int = 0
    pauses: bool = False  # running requests pause while prompts are prefilled
    admits: int | None = None
    late_handover: bool = False  # a waiting request gets a freed slot one step late
    delivery: float = 0.0  # seconds of TTFT outside the engine's steps
    tokens_per_step: float = 1.0
    drift: float = 0.0  # standard deviation of the step cost over periods of ten seconds, as a share of it
    noise: Floats = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)  # of each measured step

    def slowed(self, deviations: float) -> EngineModel:
        """The same replica on another day, which is slower than usual by so many standard deviations of its drift."""
        if self.drift == 0:
            return self
        return replace(self, cost=self.cost.scaled(math.exp(self.drift * deviations)))

    def as_document(self) -> dict[str, Any]:
        """For JSON, without the noise."""
        return {name: value for name, value in asdict(self).items() if name != "noise"}


@dataclass(frozen=True, slots=True)
class FittedModel:
    """`draws` are models that the same records allow as well: other step costs, another delivery. `declared_slots` is
    what the engine says of itself, `None` where more requests than that were seen running."""

    model: EngineModel
    fit: Fit
    warnings: tuple[str, ...]
    draws: tuple[EngineModel, ...]
    declared_slots: int | None = None


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
        van der Corput's sequence, of which any number of futures has evenly many on either side of usual."""
        point, part = 0.0, 0.5
        digits = self.number + 1
        while digits:
            digits, digit = divmod(digits, 2)
            point, part = point + digit * part, part / 2
        return NormalDist().inv_cdf(point)

    def usual(self, model: EngineModel) -> EngineModel:
        """The model on that day."""
        return model.slowed(self.slower)

    def drawn(self, fitted: FittedModel) -> EngineModel:
        """One of the models that the records allow, on that day."""
        return self.usual(fitted.draws[self.number % len(fitted.draws)])


def futures(count: int, seed: int = 0) -> list[Future]:
    return [Future(number, seed) for number in range(count)]


def fit_model(stages: Sequence[tuple[str, Steps]], declared_slots: int | None = None) -> FittedModel:
    """`declared_slots` is what the engine says of itself. Raises `CannotPlan`."""
    if not stages:
        raise too_few(0)
    running = [float(steps.occupied.mean()) if steps.occupied.max(initial=0) > 1 else 0.0 for _, steps in stages]
    in_batch = 2 * sum(n for n, (_, steps) in zip(running, stages, strict=True) if steps.synchronised) >= sum(running)
    # A stage with one user shows no batch, and belongs to either kind.
    chosen = [(name, s) for name, s in stages if s.synchronised == in_batch or s.occupied.max(initial=0) <= 1]
    warnings = []
    if len(chosen) < len(stages):
        left_out = [name for name, _ in stages if name not in {kept for kept, _ in chosen}]
        seen = "no common steps were" if in_batch else "common steps, of which the other stages show none, were"
        warnings.append(f"{seen} found at {', '.join(left_out)}, which the fit leaves out")
    fitted = [steps for _, steps in chosen]
    ran = max(map(_ran_at_once, fitted), default=0)
    if declared_slots is not None and ran > declared_slots:
        warnings.append(
            f"the engine reports {declared_slots} slots, but {ran} requests ran at a time: its number is not used"
        )
        declared_slots = None
    several = [s for s in fitted if s.occupied.max(initial=0) > 1]
    grouped = in_batch and 2 * sum(s.grouped for s in several) > len(several)
    # In groups, what waits for its turn cannot be told from what waits for a slot.
    slots, source = (saturated_slots(fitted), "saturation") if in_batch and not grouped else (None, "not seen")
    if slots is None:
        slots, source = (declared_slots, "engine") if declared_slots is not None else (None, "not seen")
    fit = fit_cost(chosen, slots)
    waits = _Waits.of(fitted, slots, by_steps=not grouped)
    delivery = waits.delivery(fit.cost)
    tokens = float(np.average([s.tokens_per_step for s in fitted], weights=[len(s.seconds) for s in fitted]))
    model = EngineModel(
        cost=fit.cost,
        synchronised=in_batch,
        grouped=grouped,
        slots=slots,
        slots_from=source,
        most_running=int(max(steps.occupied.max(initial=0) for steps in fitted)),
        pauses=in_batch and _pauses(fitted),
        admits=_admits(fitted, slots) if in_batch and not grouped else None,
        # Where delivery takes longer than a step, slots are empty while requests are on their way.
        late_handover=slots is not None
        and in_batch
        and not grouped
        and delivery < fit.cost.seconds(1)
        and _late_handover(fitted, slots),
        delivery=delivery,
        tokens_per_step=tokens,
        drift=fit.drift,
        noise=fit.noise,
    )
    rng = np.random.default_rng(1)
    draws = tuple(replace(model, cost=cost, delivery=waits.resampled(rng).delivery(cost)) for cost in fit.draws)
    return FittedModel(model, fit, (*fit.warnings, *warnings), draws, declared_slots)


def _ran_at_once(steps: Steps) -> int:
    """Requests that certainly ran at a time: in `LEAST_SEEN` steps, and in 1 % of them, so many or more did."""
    running = steps.occupied if steps.synchronised else _streams(steps)
    rank = max(LEAST_SEEN, math.ceil(SEEN * len(running)))
    return int(np.sort(running)[-rank]) if len(running) >= rank else 0


def _streams(steps: Steps) -> Floats:
    """At the end of each gap between two tokens of a request with steps of its own: how many requests were between two
    tokens, and so were not waiting for a slot."""
    decoding = steps.prompts == 0
    end, seconds = steps.end[decoding], steps.seconds[decoding]
    begun = np.searchsorted(np.sort(end - seconds), end, side="left")
    return np.asarray(begun - np.arange(len(end)), dtype=np.float64)


def saturated_slots(stages: Sequence[Steps]) -> int | None:
    """The number of running requests at which others were left waiting; `None` where that never happened."""
    # Where nothing runs, what waits is still on its way to the engine.
    kept = [(steps.left > 0) & (steps.prompts == 0) & (steps.occupied > 0) for steps in stages]
    full = np.concatenate([steps.occupied[rows] for steps, rows in zip(stages, kept, strict=True)])
    if len(full) < LEAST_SEEN:
        return None
    counts = np.bincount(full.astype(np.int64))
    usual = int(np.argmax(counts))
    if counts[usual] >= AGREED * len(full):
        return usual
    # Over a slow network, requests on their way seem to wait beside any number of running ones. The limit is then the
    # number at which they pile up, and that no step exceeds.
    most = len(counts) - 1
    piled = counts[most] >= PILED and counts[most] > counts[max(most - BELOW, 0) : most].sum()
    return most if piled and all(steps.occupied.max(initial=0) <= most for steps in stages) else None


def _pauses(stages: Sequence[Steps]) -> bool:
    return sum(int(steps.alone.sum()) for steps in stages) > sum(int(_joined(steps)) for steps in stages)


def _joined(steps: Steps) -> int:
    """Prefills beside which running requests received tokens."""
    return int((steps.mixed & (steps.occupied > steps.prompts)).sum())


def _admits(stages: Sequence[Steps], slots: int | None) -> int | None:
    """The most prompts that a step admitted where it left others waiting although several slots were free."""
    most = slots - 1 if slots is not None else np.inf
    held = [s.prompts[(s.left > 0) & (s.prompts > 0) & (s.occupied < most)] for s in stages]
    together = np.concatenate(held)
    if len(together) < LEAST_SEEN or np.mean(together == together.max()) < AGREED:
        return None
    return int(together.max())


def _late_handover(stages: Sequence[Steps], slots: int) -> bool:
    """Whether freed slots stay empty for a step while requests wait: the queue is outside the engine."""
    empty = sum(int(((s.left > 0) & (s.prompts == 0) & (s.occupied < slots)).sum()) for s in stages)
    filled = sum(int(((s.left > 0) & (s.prompts > 0)).sum()) for s in stages)
    return empty >= LEAST_SEEN and empty > AGREED * filled


@dataclass(frozen=True, slots=True)
class _Waits:
    """What tells the seconds from when a request is due to when the engine has it, both ways of the network included.

    TTFT of requests to an idle engine tells it (`waited`). Without such requests, one that was due shortly before a
    step and was not in it bounds it from below (`missed`), and one that was in it from above (`caught`): the least
    seconds that agree with most requests. What waited while all slots were taken is left out, and so is all of it where
    prompts wait for their group's turn.
    """

    waited: Floats
    tokens: Floats
    missed: Floats
    caught: Floats

    @classmethod
    def of(cls, stages: Sequence[Steps], slots: int | None, by_steps: bool) -> _Waits:
        free = np.concatenate([steps.beside for steps in stages]) < (math.inf if slots is None else slots)
        free &= by_steps
        return cls(
            np.concatenate([steps.waited for steps in stages]),
            np.concatenate([steps.waited_tokens for steps in stages]),
            np.concatenate([steps.missed for steps in stages])[free],
            np.concatenate([steps.caught for steps in stages])[free],
        )

    def resampled(self, rng: Generator) -> _Waits:
        idle, others = (
            rng.integers(len(of), size=len(of)) if len(of) else slice(0) for of in (self.waited, self.missed)
        )
        return _Waits(self.waited[idle], self.tokens[idle], self.missed[others], self.caught[others])

    def delivery(self, cost: StepCost) -> float:
        if len(self.waited) >= LEAST_SEEN:
            alone = cost.seconds(1, 0, 1) + cost.per_token * self.tokens
            return max(float(np.median(self.waited - alone)), LEAST_DELIVERY)
        return _agreed(self.missed, self.caught)


def _agreed(missed: Floats, caught: Floats) -> float:
    """The least number above zero in nearly as many of the intervals (`missed`, `caught`] as any number is."""
    at = np.concatenate([missed, caught])
    order = np.argsort(at, kind="stable")
    overlap = np.cumsum(np.concatenate([np.ones(len(missed)), -np.ones(len(caught))])[order])
    overlap[at[order] < 0] = 0
    if overlap.max(initial=0) <= 0:
        return LEAST_DELIVERY
    least = float(at[order][np.argmax(overlap >= NEARLY * overlap.max())])
    return max(least, 0.0) + LEAST_DELIVERY
