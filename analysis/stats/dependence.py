"""The error of a mean whose values are correlated along time and by user.

Along time: the projections of the series on its first few cosines estimate the spectrum near frequency zero, which is
the long-run variance of the mean (equal-weighted cosine estimator: Müller 2007; Lazarus, Lewis, Stock & Watson 2018).
They are nearly independent and normal whatever the correlation, so a t quantile applies. No batch length has to be
chosen, so none can coincide with the period of a cyclic load.

By user: users who stay with one replica are clusters. The variance between clusters is added to the one along time,
less what is counted in both (two-way clustering: Cameron, Gelbach & Miller 2011).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from analysis.stats.estimate import Floats, t_quantile
from analysis.stats.series import first_cosines, ranks_of

Codes = npt.NDArray[np.intp]

# The larger of two estimates: 16 cosines are less noisy, 8 are less biased where the correlation is long.
COSINES = (8, 16)
POINTS_PER_COSINE = 4  # at least; so 16 values are the fewest with an error
LEAST_POINTS = 16
MOST_POINTS = 20_000  # longer series are averaged in groups first, which keeps their low frequencies
SKEW_BATCHES = 32
PARTS = 16  # of the window: cells of user and part hold what is counted both along time and by user
CONGESTION = 1.44  # users of one replica wait for each other: more of them make it slower, which clusters don't show
QUEUES = 1.8  # the same where requests are correlated along time, so that there are queues
SERVED = 1.3  # and where they are independent, so that there are none
QUEUEING = 3.0  # times the variance of independent values: from here on there certainly are queues
CYCLE = 0.45  # autocorrelation after one cycle from which a series counts as cyclic
MULTIPLE = 0.8  # of the largest autocorrelation: the first so large is that of one cycle
CYCLE_POINTS = 65_536  # of a long series in which cycles are looked for


@dataclass(frozen=True, slots=True)
class MeanError:
    """Variance and skewness of the error of a mean, and the degrees of freedom with which the variance is known."""

    variance: float
    freedom: float
    skewness: float

    def limits(self) -> tuple[float, float]:
        """How far the true mean may lie below (negative) and above the observed one, with 95 % confidence.

        Johnson's (1978) t for skewed values in the closed form of Willink (2005); it only ever widens an interval.
        """
        error, t = math.sqrt(self.variance), t_quantile(self.freedom)
        below, above = skewed_quantile(t, -self.skewness), skewed_quantile(t, self.skewness)
        return -below * error, above * error


def skewed_quantile(t: float, skewness: float) -> float:
    """The distance, in standard errors, from the observed to the true mean on the side of the longer tail: at least
    `t`, and more where the mean's error is positively skewed (Willink 2005, equation 12)."""
    beta = skewness / 6
    if beta < 1e-4:
        return t
    return max(t, float(1 - np.cbrt(1 - 6 * beta * (t + beta))) / (2 * beta))


def user_codes(users: npt.ArrayLike | None) -> Codes | None:
    """Users numbered from 0; `None` where most requests have a user of their own and so tell nothing of users."""
    if users is None:
        return None
    given = np.asarray(users)
    if given.dtype.kind == "i" and len(given) and 0 <= given.min() <= given.max() < len(given):
        there = np.bincount(given) > 0  # small numbers need no sorting
        count, codes = int(there.sum()), (np.cumsum(there) - 1)[given]
    else:
        names, codes = np.unique(given, return_inverse=True)
        count = len(names)
    return codes if 2 <= count <= len(codes) / 2 else None


def mean_error(
    values: Floats, codes: Codes | None = None, cosines: int = COSINES[-1], along_time: MeanError | None = None
) -> MeanError | None:
    """The error of the mean of `values` in time order; `codes` from `user_codes`. `None` below `LEAST_POINTS`.

    `along_time` is the error without `codes`, where it is known.
    """
    if len(values) < LEAST_POINTS:
        return None
    residuals = values - values.mean()
    along_time = along_time or _along_time(residuals, cosines)
    if codes is None:
        return along_time
    parts = _parts(len(values))
    inflation = along_time.variance * len(values) / float(residuals.var() or 1.0)
    queues = min(1.0, max(0.0, (inflation - 1) / (QUEUEING - 1)))
    congestion = SERVED + (QUEUES - SERVED) * queues
    return with_users(along_time, sums_by_cell(codes, parts, residuals) / len(values), congestion)


@lru_cache(maxsize=8)  # as in series.py
def _parts(n: int) -> npt.NDArray[np.intp]:
    """Of n values in time order: in which of the window's parts each one is."""
    return np.arange(n) * PARTS // n


def _along_time(residuals: Floats, most: int) -> MeanError:
    group = -(-len(residuals) // MOST_POINTS)
    groups = residuals[: len(residuals) // group * group].reshape(-1, group)
    points = np.einsum("ij->i", groups) / group  # three times as fast as `mean` of so short rows
    most = min(most, len(points) // POINTS_PER_COSINE)
    powers = first_cosines(points, most)[1:] ** 2 / len(points)
    variance = max(float(powers[:k].mean()) for k in COSINES)
    return MeanError(variance, most, _skewness(points))


def _skewness(points: Floats) -> float:
    """Skewness of the mean: that of the means of batches, divided by the root of their number."""
    size = max(1, len(points) // SKEW_BATCHES)
    batches = points[: len(points) // size * size].reshape(-1, size).mean(axis=1)
    deviation = float(batches.std())
    if deviation <= 1e-12 * float(np.abs(points).max(initial=0.0)):
        return 0.0
    return float(((batches - batches.mean()) ** 3).mean()) / deviation**3 / math.sqrt(len(batches))


def sums_by_cell(codes: Codes, parts: npt.NDArray[np.intp], weights: Floats) -> Floats:
    """Sums of `weights` by user (rows) and part of the window (columns)."""
    users = int(codes.max()) + 1
    sums = np.bincount(codes * PARTS + parts, weights=weights, minlength=users * PARTS)
    return sums.astype(np.float64).reshape(users, PARTS)


def with_users(along_time: MeanError, cells: Floats, congestion: float = CONGESTION) -> MeanError:
    """Adds the variance between users. `cells` are the shares of users × parts in the mean's error."""
    users, parts = cells.shape
    by_user = float((cells.sum(axis=1) ** 2).sum()) * users / (users - 1)
    by_both = float((cells**2).sum())
    # Where users are all alike the two differ by chance, with twice this standard deviation: half of it is ignored.
    noise = by_both * math.sqrt(0.5 / (users - 1))
    excess = max(0.0, by_user - by_both - noise) * parts / (parts - 1) * congestion
    total = along_time.variance + excess
    if total <= 0:
        return along_time
    freedom = total**2 / (along_time.variance**2 / along_time.freedom + excess**2 / (users - 1))  # Satterthwaite 1946
    return MeanError(total, freedom, along_time.skewness * (along_time.variance / total) ** 1.5)


@dataclass(frozen=True, slots=True)
class Cycle:
    """After how many values a series repeats itself, and its autocorrelation at that lag."""

    length: int
    rho: float


def cycle_length(values: Floats) -> int | None:
    found = find_cycle(values)
    return None if found is None else found.length


def find_cycle(values: Floats) -> Cycle | None:
    """The cycle of a series that repeats itself, as users in lock step make it do; `None` if it does not.

    The lag of the first large autocorrelation of the ranks after their first zero crossing, where it exceeds `CYCLE`
    and the series holds at least three cycles. A series that repeats itself does not show how its pattern would vary
    from one run to the next, so no interval can be had from it.
    """
    ranks = ranks_of(values[:CYCLE_POINTS])
    centred = ranks - ranks.mean()
    n, lags = len(centred), len(centred) // 3
    power = float(np.einsum("i,i->", centred, centred))  # as in series.py, without BLAS
    if lags < 3 or power <= 0:
        return None
    size = 1 << (2 * n - 1).bit_length()  # padded, so that the ends do not wrap round
    spectrum = np.fft.rfft(centred, size)
    rho = np.fft.irfft(spectrum * np.conj(spectrum), size)[:lags] / power * n / (n - np.arange(lags))
    crossings = np.flatnonzero(rho <= 0)
    if not len(crossings):
        return None
    later = np.where(np.arange(lags) < crossings[0], -1.0, rho)
    if later.max() <= CYCLE:
        return None
    lag = int(np.flatnonzero(later > MULTIPLE * later.max())[0])  # the cycle and not one of its multiples
    while lag + 1 < lags and later[lag + 1] > later[lag]:
        lag += 1
    return Cycle(lag, float(later[lag]))
