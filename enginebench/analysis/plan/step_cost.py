"""What a step of an engine costs, fitted to the steps that were recovered from the records:

    seconds = base + per_running · running + per_token · prompt tokens prefilled + per_prompt · prompts prefilled
              + batched, if several requests run or a prompt is prefilled
              + per_running_beyond · running requests beyond the knee

Prompt tokens and prompts are nearly collinear where prompts have similar lengths; then only one of them is kept.
A step of one request multiplies matrices by a vector, which some engines compute in a much cheaper way than a batch of
two; `batched` is what that saves, and is fitted only where it explains the steps clearly better. An accelerator reads
its weights in the same time for one request or many, until computing takes longer than reading: from the knee on, a
request more costs more. The knee, too, is fitted only where the steps show it clearly.

Least squares keeps the mean, which throughput depends on; least absolute deviations finds the undisturbed cost. Where
the two differ, steps are sometimes much longer than usual.

Both are of relative errors. Jitter and disturbances are shares of a step, and a prefill takes ten times as long as a
decoding step: in absolute errors the few long steps would decide what the short ones cost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from enginebench.analysis.arrays import Flags, Floats
from enginebench.analysis.plan.fit_error import fit_draws
from enginebench.analysis.plan.settings import CannotPlan
from enginebench.analysis.plan.steps import Steps

COLLINEAR = 0.9  # correlation of prompts and prompt tokens from which one of them is dropped
BETTER = 0.01  # share of the squared error that a coefficient more must save
MUCH_BETTER = 0.05  # that `batched` must save
REWEIGHTINGS = 30
ROUNDS = 5  # of the fit that errors are relative to
NEGLIGIBLE = 1e-4  # share of the mean, below which nothing is divided by it; most steps may have taken no time at all
BENT = 0.2  # that a knee must save: the noise of a few loads may look like a slight one
KNEES = 24  # that are tried at most
DRIFT_SECONDS = 10.0
MOST_NOISE = 5.0  # of a step's cost: what is longer was no step
LEAST_STEPS = 20  # of ten seconds, to be judged; of one request and of several, to fit `batched`
DRIFTED, DRIFTING = 1.25, 1.1  # ratio of measured and fitted time of ten seconds: refused, and warned of
DIFFERENT = 1.1  # ratio of the two fits' typical step that is warned of
BASE, RUNNING, TOKENS, PROMPTS, BATCHED, BEYOND = range(6)


@dataclass(frozen=True, slots=True)
class StepCost:
    """Seconds. `spread` is the standard deviation of a step's duration, as a share of it; `batched` is what a step of
    several requests, or with a prompt, costs besides, and `per_running_beyond` what each request beyond `knee` does.
    """

    base: float
    per_running: float
    per_token: float
    per_prompt: float
    spread: float = 0.0
    batched: float = 0.0
    per_running_beyond: float = 0.0
    knee: float = math.inf

    def seconds(self, running: float, tokens: float = 0.0, prompts: float = 0.0) -> float:
        fixed = self.base + self.batched if running > 1 or prompts > 0 else self.base
        if running > self.knee:
            fixed += self.per_running_beyond * (running - self.knee)
        return fixed + self.per_running * running + self.per_token * tokens + self.per_prompt * prompts

    def scaled(self, factor: float) -> StepCost:
        """Every step so many times as long."""
        return replace(
            self,
            base=factor * self.base,
            per_running=factor * self.per_running,
            per_token=factor * self.per_token,
            per_prompt=factor * self.per_prompt,
            batched=factor * self.batched,
            per_running_beyond=factor * self.per_running_beyond,
        )


@dataclass(frozen=True, slots=True)
class TenSeconds:
    """Measured by fitted step time of ten seconds of a stage; 1 where the cost holds."""

    stage: str
    start: float  # seconds since the run's start
    ratio: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A step's cost, and how well it describes the steps it was fitted to."""

    cost: StepCost  # least squares: keeps means
    undisturbed: StepCost  # least absolute deviations: of the usual step
    draws: tuple[StepCost, ...]  # costs that the same steps allow as well
    steps: int
    explained: float  # share of the steps' variance, R², with the weights of the fit
    ratios: tuple[TenSeconds, ...]
    noise: Floats  # relative error of every step, in order: by what share it took longer than its cost
    warnings: tuple[str, ...]

    @property
    def drift(self) -> float:
        """Standard deviation of the ratio of measured and fitted time over periods of ten seconds."""
        ratios = [period.ratio for period in self.ratios]
        return float(np.std(ratios, ddof=1)) if len(ratios) > 1 else 0.0

    @property
    def worst(self) -> TenSeconds | None:
        return max(self.ratios, key=lambda period: abs(np.log(period.ratio)), default=None)

    @property
    def drifted(self) -> bool:
        return self.worst is not None and _off(self.worst.ratio) > DRIFTED


def too_few(visible: int) -> CannotPlan:
    return CannotPlan(
        f"only {visible} steps of the engine can be seen in these records, too few to fit what a step costs: "
        "measure with streamed answers, for a longer time."
    )


def fit_cost(stages: Sequence[tuple[str, Steps]], slots: int | None) -> Fit:
    """Fit the cost to the steps of stages, each with its name. `slots` limits the requests that run, where known.

    Raises `CannotPlan` with too few steps.
    """
    parts = [(name, steps, _usable(steps, slots)) for name, steps in stages]
    features = np.concatenate([_features(steps, slots)[kept] for _, steps, kept in parts])
    seconds = np.concatenate([steps.seconds[kept] for _, steps, kept in parts])
    visible = int(np.count_nonzero(seconds))  # chunks that are read together leave no time between them
    if visible < 2 * LEAST_STEPS:
        raise too_few(visible)
    knee = _knee(features, seconds)
    features[:, BEYOND] = _beyond(features[:, RUNNING], knee)
    rows, ratio = _relative(features, seconds)
    chosen = _chosen(features, rows, ratio)
    cost, error = _least_squares(rows, ratio, chosen)
    undisturbed = _least_absolute(rows, ratio, chosen)
    fitted = features @ cost
    noise = np.minimum((seconds - fitted) / np.maximum(fitted, 1e-9), MOST_NOISE)
    spread = float(np.sqrt(np.mean(noise**2)))
    ends = [steps.end[kept] for _, steps, kept in parts]
    ratios = tuple(period for name, steps, kept in parts for period in _ratios(name, steps, kept, cost, slots, knee))
    fit = Fit(
        _step_cost(cost, spread, knee),
        _step_cost(undisturbed, spread, knee),
        tuple(_step_cost(draw, spread, knee) for draw in fit_draws(rows, ratio, chosen, cost, ends)),
        len(seconds),
        1 - error / max(_least_squares(rows, ratio, [BASE])[1], 1e-30),
        ratios,
        noise,
        (),
    )
    return replace(fit, warnings=tuple(_warnings(fit, features)))


def _step_cost(coefficients: Floats, spread: float, knee: float) -> StepCost:
    base, running, tokens, prompts, batched, beyond = coefficients.tolist()
    return StepCost(base, running, tokens, prompts, spread, batched, beyond, knee)


def _usable(steps: Steps, slots: int | None) -> Flags:
    """A first chunk of an engine without a common batch tells the prefill only where it did not wait for a slot."""
    if steps.synchronised or slots is None:
        return np.ones(len(steps.seconds), dtype=bool)
    usable: Flags = (steps.prompts == 0) | (steps.occupied <= slots)
    return usable


def _features(steps: Steps, slots: int | None, knee: float = math.inf) -> Floats:
    running = steps.running if slots is None else np.minimum(steps.running, slots)
    batched = (running > 1) | (steps.prompts > 0)
    beyond = _beyond(running, knee)
    return np.column_stack([np.ones(len(running)), running, steps.tokens, steps.prompts, batched, beyond])


def _beyond(running: Floats, knee: float) -> Floats:
    return np.maximum(running - knee, 0.0)


def _knee(features: Floats, seconds: Floats) -> float:
    """The number of running requests from which each costs more; +∞ where the steps show none.

    On either side of it there are steps of at least two numbers of requests.
    """
    rows, ratio = _relative(features, seconds)
    chosen = _chosen(features, rows, ratio)
    _, straight = _least_squares(rows, ratio, chosen)
    numbers, counts = np.unique(features[:, RUNNING], return_counts=True)
    seen = numbers[counts >= LEAST_STEPS]
    best, least = math.inf, (1 - BENT) * straight
    for knee in np.unique(np.linspace(seen[1], seen[-2] - 1, KNEES).round()).tolist() if len(seen) >= 4 else ():
        rows[:, BEYOND] = _beyond(features[:, RUNNING], knee) * rows[:, BASE]
        _, error = _least_squares(rows, ratio, [*chosen, BEYOND])
        if error < least:
            best, least = knee, error
    return best


def _relative(features: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """Both divided by how long each step takes by a fit, which is made anew with the errors relative to the one before
    (generalised least squares: Carroll & Ruppert 1988, section 2.1). Divided by the measured seconds, steps that were
    short by chance would count most."""
    rows, ratio = features, seconds
    for _ in range(ROUNDS):
        cost, _ = _least_squares(rows, ratio, _chosen(features, rows, ratio))
        expected = np.maximum(features @ cost, NEGLIGIBLE * float(np.mean(seconds)))
        rows, ratio = features / expected[:, None], seconds / expected
    return rows, ratio


def _chosen(features: Floats, rows: Floats, ratio: Floats) -> list[int]:
    """The columns of the fit; `BATCHED` only with steps of one, of two and of more requests, `BEYOND` with a knee."""
    chosen = _prefill_columns(features, rows, ratio) + [BEYOND] * bool(features[:, BEYOND].any())
    alone = features[:, BATCHED] == 0
    decoding = features[~alone & (features[:, PROMPTS] == 0)]
    if min(int(alone.sum()), len(decoding)) < LEAST_STEPS or np.ptp(decoding[:, RUNNING]) == 0:
        return chosen
    without, error = (_least_squares(rows, ratio, columns)[1] for columns in (chosen, [*chosen, BATCHED]))
    return [*chosen, BATCHED] if error < (1 - MUCH_BETTER) * without else chosen


def _prefill_columns(features: Floats, rows: Floats, ratio: Floats) -> list[int]:
    """Without `BATCHED`; of prompt tokens and prompts one, or both where they can be told apart."""
    fixed = [BASE] if np.ptp(features[:, RUNNING]) == 0 else [BASE, RUNNING]
    prefills = features[features[:, PROMPTS] > 0]
    if not len(prefills):
        return fixed
    errors = {extra: _least_squares(rows, ratio, [*fixed, *extra])[1] for extra in ((TOKENS,), (PROMPTS,))}
    best = (PROMPTS,) if errors[(PROMPTS,)] < (1 - BETTER) * errors[(TOKENS,)] else (TOKENS,)
    if min(np.ptp(prefills[:, TOKENS]), np.ptp(prefills[:, PROMPTS] + prefills[:, TOKENS])) > 0:
        varied = np.std(prefills[:, PROMPTS]) == 0 or np.std(prefills[:, TOKENS]) == 0
        correlation = 0.0 if varied else float(np.corrcoef(prefills[:, PROMPTS], prefills[:, TOKENS])[0, 1])
        both = _least_squares(rows, ratio, [*fixed, TOKENS, PROMPTS])[1]
        if abs(correlation) < COLLINEAR and both < (1 - BETTER) * errors[best]:
            return [*fixed, TOKENS, PROMPTS]
    return [*fixed, *best]


def _least_squares(
    rows: Floats, values: Floats, chosen: list[int], weights: Floats | None = None
) -> tuple[Floats, float]:
    """Coefficients, none below zero, and the sum of squared errors."""
    used = rows[:, chosen]
    scale = np.maximum(np.abs(used).max(axis=0), 1e-12)
    root = np.ones(len(values)) if weights is None else np.sqrt(weights)
    # nnls on the triangular factor costs the same whatever the number of steps.
    q, r = np.linalg.qr(used / scale * root[:, None])
    coefficients, _ = nnls(r, q.T @ (values * root))
    whole = np.zeros(rows.shape[1])
    whole[chosen] = coefficients / scale
    return whole, float(((rows @ whole - values) ** 2).sum())


def _least_absolute(rows: Floats, values: Floats, chosen: list[int]) -> Floats:
    """By iteratively reweighted least squares (Schlossmacher 1973)."""
    whole, _ = _least_squares(rows, values, chosen)
    floor = NEGLIGIBLE * float(np.mean(values))
    for _ in range(REWEIGHTINGS):
        weights = 1 / np.maximum(np.abs(values - rows @ whole), floor)
        whole, _ = _least_squares(rows, values, chosen, weights / weights.mean())
    return whole


def _ratios(name: str, steps: Steps, kept: Flags, cost: Floats, slots: int | None, knee: float) -> list[TenSeconds]:
    fitted, measured, end = (_features(steps, slots, knee) @ cost)[kept], steps.seconds[kept], steps.end[kept]
    if not len(end):
        return []
    period = np.floor((end - end[0]) / DRIFT_SECONDS).astype(np.int64)
    count = np.bincount(period)
    ratio = np.bincount(period, weights=measured) / np.maximum(np.bincount(period, weights=fitted), 1e-12)
    return [
        TenSeconds(name, float(end[0] + k * DRIFT_SECONDS), float(ratio[k]))
        for k in np.flatnonzero((count >= LEAST_STEPS) & (ratio > 0))
    ]


def _off(ratio: float) -> float:
    return max(ratio, 1 / ratio)


def _warnings(fit: Fit, features: Floats) -> list[str]:
    typical = np.median(features[:, RUNNING : PROMPTS + 1], axis=0).tolist()
    mean, usual = (cost.seconds(*typical) for cost in (fit.cost, fit.undisturbed))
    warnings = []
    if usual > 0 and _off(mean / usual) > DIFFERENT:
        warnings.append(
            f"the mean step takes {mean / usual:.2f} times the usual one: some steps are much longer, so p99 latencies "
            "may be underestimated"
        )
    if fit.worst is not None and _off(fit.worst.ratio) > DRIFTING:
        warnings.append(
            f"steps took {fit.worst.ratio:.2f} times the fitted cost for 10 s at {fit.worst.stage} "
            f"({fit.worst.start:.0f} s into the run): the machine drifted, or the cost is not linear"
        )
    return warnings
