"""The variance of a mean whose values are correlated along time and by user.

Along time: the projections of the series on the first few cosines estimate its spectrum near frequency zero, which is
the variance of the mean (equal-weighted cosines: Müller 2004; Lazarus, Lewis, Stock & Watson 2018). They are nearly
independent and normal whatever the correlation, so that a t quantile with as many degrees of freedom holds, and a
periodic load (users in lock step) does not disturb them while its cycles are shorter than the fastest of the cosines.

By user: users who stay with one replica are clusters. The variance between clusters is added to that along time, and
what is counted in both is taken away (two-way clustering: Cameron, Gelbach & Miller 2011).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import fft

from analysis.verdict.statistics.estimate import Floats

COSINES = 12
POINTS = 20_000  # a longer series is averaged in groups first: its mean's variance lies in its lowest frequencies
PARTS = 16  # parts of the window in which a user's values are told from his values elsewhere


@dataclass(frozen=True, slots=True)
class Dependence:
    """Variance of the mean of a series, and the degrees of freedom with which it is known."""

    variance: float
    freedom: float


def dependence(in_time_order: npt.ArrayLike, users: npt.ArrayLike | None = None) -> Dependence | None:
    """`users` names the user of each value. `None` where the series is too short to tell."""
    values = np.asarray(in_time_order, dtype=np.float64)
    n = len(values)
    if n < 2 * COSINES:
        return None
    residuals = values - values.mean()
    along_time = _along_time(residuals)
    if users is None:
        return Dependence(along_time, COSINES)
    _, codes = np.unique(np.asarray(users), return_inverse=True)
    return _with_users(along_time, table_by_user(residuals, codes) / n)


def _along_time(residuals: Floats) -> float:
    group = -(-len(residuals) // POINTS)
    whole = len(residuals) // group * group
    means = residuals[:whole].reshape(-1, group).mean(axis=1)
    powers = fft.dct(means, type=2, norm="ortho")[1 : COSINES + 1] ** 2
    return float(powers.mean()) / len(means)


def table_by_user(values: Floats, codes: npt.NDArray[np.intp]) -> Floats:
    """Sums by user (rows) and equal part of the window (columns)."""
    parts = np.arange(len(values)) * PARTS // len(values)
    users = int(codes.max()) + 1
    sums = np.bincount(codes * PARTS + parts, weights=values, minlength=users * PARTS)
    return sums.astype(np.float64).reshape(users, PARTS)


def _with_users(along_time: float, sums: Floats) -> Dependence:
    """`sums` by user and part of the window, of residuals divided so that they add up to the mean's error."""
    users, parts = sums.shape
    if users < 2:
        return Dependence(along_time, COSINES)
    by_user = float((sums.sum(axis=1) ** 2).sum()) * users / (users - 1)
    by_both = float((sums**2).sum())
    excess = max(0.0, by_user - by_both) * parts / (parts - 1)
    total = along_time + excess
    weights = along_time**2 / COSINES + excess**2 / (users - 1)
    return Dependence(total, total**2 / weights if weights > 0 else COSINES)
