"""What a fit of step costs leaves open: costs that the same steps allow as well.

A bootstrap of blocks of seconds within each stage (Künsch 1989), because the speed of a machine changes in phases that
last for many steps. Every stage adds an error of its own: as much as stages deviate from the law beyond what their
blocks explain, which is how a law that is not quite the engine's shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from enginebench.analysis.arrays import Floats, Integers

DRAWS = 64
BLOCK_SECONDS = 10.0
LEAST_BLOCKS = 6  # of a stage; of a short stage they are shorter
RIDGE = 1e-10  # keeps normal equations solvable where a draw holds no step of some kind


def fit_draws(
    rows: Floats, ratio: Floats, chosen: list[int], coefficients: Floats, ends: Sequence[Floats]
) -> list[Floats]:
    """Coefficients for each draw. `rows` and `ratio` are those of the least squares fit, a row a step; `ends` are the
    instants of the same steps in seconds, stage by stage.

    The normal equations of blocks add up to those of a draw, so that a draw costs the same for any number of steps.
    """
    stages = _blocks(ends)
    used, block = rows[:, chosen], np.concatenate([np.repeat(*counted) for counted in stages])
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    gram = np.add.reduceat(used[:, :, None] * used[:, None, :], starts)
    moment = np.add.reduceat(used * ratio[:, None], starts)
    common = np.add.reduceat(used, starts)  # what an error common to all steps of a block adds to its moment
    residual = np.add.reduceat(ratio - rows @ coefficients, starts)
    error = _stage_error(residual, stages, len(chosen))
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(DRAWS):
        picked = [rng.choice(blocks, len(blocks)) for blocks, _ in stages]
        errors = error * rng.standard_normal(len(stages))
        raised = np.concatenate([np.full(len(blocks), own) for (blocks, _), own in zip(stages, errors, strict=True)])
        weights = np.bincount(np.concatenate(picked), minlength=len(gram)).astype(np.float64)
        total = weights @ (moment + common * raised[:, None])
        draw = np.zeros(rows.shape[1])
        draw[chosen] = _solved(np.einsum("b,bij->ij", weights, gram), total)
        draws.append(draw)
    return draws


def _blocks(ends: Sequence[Floats]) -> list[tuple[Integers, Integers]]:
    """(numbers of its blocks, steps in each) of every stage that has steps."""
    stages: list[tuple[Integers, Integers]] = []
    count = 0
    for end in ends:
        if len(end):
            length = min(BLOCK_SECONDS, max(float(end[-1] - end[0]), 1e-9) / LEAST_BLOCKS)
            _, steps = np.unique(np.floor((end - end[0]) / length), return_counts=True)
            stages.append((count + np.arange(len(steps)), steps))
            count += len(steps)
    return stages


def _solved(gram: Floats, moment: Floats) -> Floats:
    """The non-negative least squares solution of normal equations."""
    scale = 1 / np.sqrt(np.maximum(np.diag(gram), 1e-30))
    lower = np.linalg.cholesky(gram * np.outer(scale, scale) + RIDGE * np.eye(len(scale)))
    coefficients, _ = nnls(lower.T, solve_triangular(lower, moment * scale, lower=True))
    return np.asarray(coefficients * scale, dtype=np.float64)


def _stage_error(residual: Floats, stages: Sequence[tuple[Integers, Integers]], parameters: int) -> float:
    """Standard deviation of whole stages about the law, beyond what the blocks within them explain."""
    means, within = [], []
    for blocks, steps in stages:
        own = residual[blocks]
        mean = own.sum() / steps.sum()
        spread = ((own - mean * steps) ** 2).sum() / steps.sum() ** 2
        means.append(mean)
        within.append(spread * len(blocks) / max(len(blocks) - 1, 1))
    freedom = max(len(stages) - parameters, 1)
    return math.sqrt(max(float(np.square(means).sum()) / freedom - float(np.mean(within)), 0.0))
