"""The cost of an engine's step, fitted to the steps that were recovered from the records:

    seconds = base + per_running · running + per_token · prompt tokens prefilled + per_prompt · prompts prefilled
              + batched, if several requests run or a prompt is prefilled
              + per_running_beyond · running requests beyond the knee

Prompt tokens and prompts are nearly collinear if prompts have similar lengths; then only one of them is kept. A step of
one request multiplies matrices by a vector, which is much cheaper in some engines than a batch of two; `batched` is
that difference. An accelerator reads its weights in the same time for one request or many, until computing takes longer
than reading: from the knee on, each further request costs more. The last two terms are fitted only if they explain the
steps clearly better.

The fit minimises squared relative errors, which preserves the mean, on which throughput depends. Jitter is a share of a
step, and a prefill takes ten times as long as a decode step: with absolute errors, a few long steps would determine the
cost of the short ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import nnls

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.steps import Steps

COLLINEAR = 0.9  # correlation of prompts and prompt tokens from which one of them is dropped
MIN_SAVED, MIN_SAVED_BATCHED, MIN_SAVED_KNEE = 0.01, 0.05, 0.2  # share of the squared error that a coefficient saves
ROUNDS = 5  # number of reweightings
NEGLIGIBLE = 1e-4  # share of the mean step that is the smallest divisor: many steps may seem to take no time
MAX_KNEES = 24  # candidates to try
PERIOD = 10.0  # seconds over which drift is measured
MAX_NOISE = 5.0  # as a multiple of a step's cost; anything longer was not a step
MIN_STEPS = 20  # required in a period, with one request, and with several
BASE, RUNNING, TOKENS, PROMPTS, BATCHED, BEYOND = range(6)


@dataclass(frozen=True, slots=True)
class StepCost:
    """Coefficients in seconds."""

    base: float
    per_running: float
    per_token: float
    per_prompt: float
    batched: float = 0.0
    per_running_beyond: float = 0.0
    knee: float = math.inf

    def seconds(self, running: float, tokens: float = 0.0, prompts: float = 0.0) -> float:
        fixed = self.base + self.batched if running > 1 or prompts > 0 else self.base
        if running > self.knee:
            fixed += self.per_running_beyond * (running - self.knee)
        return fixed + self.per_running * running + self.per_token * tokens + self.per_prompt * prompts


@dataclass(frozen=True, slots=True)
class Fit:
    """A step's cost, and how well it describes the `steps` that it was fitted to.

    `explained` is R², with the weights of the fit. `drift` is the standard deviation of measured over fitted time in
    periods of ten seconds; `noise` is the excess of each step as a share of its cost, in order.
    """

    cost: StepCost
    steps: int
    explained: float
    drift: float
    noise: Floats = field(repr=False, compare=False)


def fit_cost(stages: Sequence[Steps]) -> Fit:
    """Fit the cost to the steps of stages. Raises `CannotPlan` with too few steps."""
    features = np.concatenate([_features(steps) for steps in stages])
    seconds = np.concatenate([steps.seconds for steps in stages])
    if np.count_nonzero(seconds) < 2 * MIN_STEPS:  # chunks read together have no time between them
        raise CannotPlan(NotPlanned.FEW_STEPS)
    knee = _knee(features, seconds)
    features[:, BEYOND] = _beyond(features[:, RUNNING], knee)
    rows, ratio = _relative(features, seconds)
    coefficients, error = _least_squares(rows, ratio, _chosen(features, rows, ratio))
    fitted = features @ coefficients
    noise = np.minimum((seconds - fitted) / np.maximum(fitted, 1e-9), MAX_NOISE)
    base, running, tokens, prompts, batched, beyond = coefficients.tolist()
    return Fit(
        cost=StepCost(base, running, tokens, prompts, batched, beyond, knee),
        steps=len(seconds),
        explained=1 - error / max(_least_squares(rows, ratio, [BASE])[1], 1e-30),
        drift=_drift(stages, seconds, fitted),
        noise=noise,
    )


def _features(steps: Steps) -> Floats:
    batched = (steps.running > 1) | (steps.prompts > 0)
    columns = [np.ones(len(batched)), steps.running, steps.tokens, steps.prompts, batched, np.zeros(len(batched))]
    return np.column_stack(columns)


def _beyond(running: Floats, knee: float) -> Floats:
    return np.maximum(running - knee, 0.0)


def _knee(features: Floats, seconds: Floats) -> float:
    """Return the number of running requests from which each costs more; +∞ if the steps show none.

    On each side of a knee, there are steps with at least two different numbers of requests.
    """
    rows, ratio = _relative(features, seconds)
    chosen = _chosen(features, rows, ratio)
    _, straight = _least_squares(rows, ratio, chosen)
    numbers, counts = np.unique(features[:, RUNNING], return_counts=True)
    seen = numbers[counts >= MIN_STEPS]
    best, least = math.inf, (1 - MIN_SAVED_KNEE) * straight
    for knee in np.unique(np.linspace(seen[1], seen[-2] - 1, MAX_KNEES).round()).tolist() if len(seen) >= 4 else ():
        rows[:, BEYOND] = _beyond(features[:, RUNNING], knee) * rows[:, BASE]
        _, error = _least_squares(rows, ratio, [*chosen, BEYOND])
        if error < least:
            best, least = knee, error
    return best


def _relative(features: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """Divide both arrays by the fitted duration of each step; repeat the fit with the errors relative to the last one
    (generalised least squares: Carroll & Ruppert 1988, section 2.1). With measured durations as divisors, steps that
    were short by chance would count most."""
    rows, ratio = features, seconds
    for _ in range(ROUNDS):
        cost, _ = _least_squares(rows, ratio, _chosen(features, rows, ratio))
        expected = np.maximum(features @ cost, NEGLIGIBLE * float(np.mean(seconds)))
        rows, ratio = features / expected[:, None], seconds / expected
    return rows, ratio


def _chosen(features: Floats, rows: Floats, ratio: Floats) -> list[int]:
    """Choose the columns of the fit: `BATCHED` needs steps of one, of two and of more requests, `BEYOND` a knee."""
    chosen = _prefill_columns(features, rows, ratio) + [BEYOND] * bool(features[:, BEYOND].any())
    alone = features[:, BATCHED] == 0
    decoding = features[~alone & (features[:, PROMPTS] == 0)]
    if min(int(alone.sum()), len(decoding)) < MIN_STEPS or np.ptp(decoding[:, RUNNING]) == 0:
        return chosen
    without, error = (_least_squares(rows, ratio, columns)[1] for columns in (chosen, [*chosen, BATCHED]))
    return [*chosen, BATCHED] if error < (1 - MIN_SAVED_BATCHED) * without else chosen


def _prefill_columns(features: Floats, rows: Floats, ratio: Floats) -> list[int]:
    """Choose the columns without `BATCHED`: prompt tokens or prompts, or both if the steps can separate their costs."""
    fixed = [BASE] if np.ptp(features[:, RUNNING]) == 0 else [BASE, RUNNING]
    prefills = features[features[:, PROMPTS] > 0]
    if not len(prefills):
        return fixed
    errors = {extra: _least_squares(rows, ratio, [*fixed, *extra])[1] for extra in ((TOKENS,), (PROMPTS,))}
    best = (PROMPTS,) if errors[(PROMPTS,)] < (1 - MIN_SAVED) * errors[(TOKENS,)] else (TOKENS,)
    if min(np.ptp(prefills[:, TOKENS]), np.ptp(prefills[:, PROMPTS] + prefills[:, TOKENS])) > 0:
        constant = np.std(prefills[:, PROMPTS]) == 0 or np.std(prefills[:, TOKENS]) == 0
        correlation = 0.0 if constant else float(np.corrcoef(prefills[:, PROMPTS], prefills[:, TOKENS])[0, 1])
        both = _least_squares(rows, ratio, [*fixed, TOKENS, PROMPTS])[1]
        if abs(correlation) < COLLINEAR and both < (1 - MIN_SAVED) * errors[best]:
            return [*fixed, TOKENS, PROMPTS]
    return [*fixed, *best]


def _least_squares(rows: Floats, values: Floats, chosen: list[int]) -> tuple[Floats, float]:
    """Return coefficients, none below zero, and the sum of squared errors."""
    used = rows[:, chosen]
    scale = np.maximum(np.abs(used).max(axis=0), 1e-12)
    q, r = np.linalg.qr(used / scale)  # the cost of nnls on the triangular factor is independent of the number of steps
    coefficients, _ = nnls(r, q.T @ values)
    whole = np.zeros(rows.shape[1])
    whole[chosen] = coefficients / scale
    return whole, float(((rows @ whole - values) ** 2).sum())


def _drift(stages: Sequence[Steps], seconds: Floats, fitted: Floats) -> float:
    ratios: list[float] = []
    at = 0
    for steps in stages:
        rows = slice(at, at + len(steps.end))
        at += len(steps.end)
        if len(steps.end):
            period = np.floor((steps.end - steps.end[0]) / PERIOD).astype(np.int64)
            measured, expected = (np.bincount(period, weights=values[rows]) for values in (seconds, fitted))
            enough = (np.bincount(period) >= MIN_STEPS) & (measured > 0)
            ratios += (measured[enough] / np.maximum(expected[enough], 1e-12)).tolist()
    return float(np.std(ratios, ddof=1)) if len(ratios) > 1 else 0.0
