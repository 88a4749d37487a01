"""How many independent requests a window of correlated ones is worth: the effective sample size.

Requests are correlated along time, because they wait in the same queues. The projections of a series on its first few
cosines estimate its spectrum near frequency zero, which is the long-run variance of its mean (equal-weighted cosine
estimator: Müller 2007; Lazarus, Lewis, Stock & Watson 2018). The projections are nearly independent and normal, so a t
quantile applies. No batch length has to be chosen that could coincide with the period of a cyclic load.

Users who stay with one replica are clusters. The variance between clusters is added to the variance along time, minus
their overlap (two-way clustering: Cameron, Gelbach & Miller 2011).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from enginebench.analysis.arrays import Flags, Floats
from enginebench.analysis.stats.student_t import t_quantile

Codes = npt.NDArray[np.intp]

# The larger of two estimates: 16 cosines are less noisy, 8 are less biased if the correlation is long.
COSINES = (8, 16)
POINTS_PER_COSINE = 4  # minimum
MIN_POINTS = 16  # required for an error estimate
MAX_POINTS = 20_000  # longer series are averaged in groups first, which keeps their low frequencies
PARTS = 16  # of the window; cells of user × part measure the overlap of the variances along time and between users
CONGESTION = 1.5  # users of one replica slow each other down, so the variance between clusters is too small
CYCLE = 0.45  # autocorrelation after one cycle from which a series counts as cyclic
CHANCE = 3.5  # also required, in standard deviations of an autocorrelation without a cycle, 1/√n (Bartlett 1946)
MULTIPLE = 0.8  # share of the largest autocorrelation: the first lag above it is one cycle
CYCLE_POINTS = 65_536  # only the beginning of a longer series is searched for cycles


@dataclass(frozen=True, slots=True)
class MeanError:
    """Variance of a mean: the total, the part along time, and the degrees of freedom of the total."""

    variance: float
    along_time: float
    freedom: float

    @property
    def half_width(self) -> float:
        """Return half the width of the 95 % interval."""
        return t_quantile(self.freedom) * math.sqrt(self.variance)


@dataclass(frozen=True, slots=True)
class EffectiveSampleSize:
    """How many independent requests would show a share as precisely as these `n` do.

    `along_time` allows for correlation along time only. `size` allows for users too, and is reduced for the uncertainty
    of the variance: n* of Korn & Graubard (1998). Neither is above `n`.
    """

    n: int
    along_time: float
    size: float
    users_differ: bool = False  # the variance between users exceeds the variance along time

    @property
    def correlation(self) -> float:
        """Return 0 for nearly independent requests, close to 1 for strongly correlated ones. A variance of up to twice
        that of independent requests is within the estimator's noise."""
        return max(0.0, 1 - 2 * self.along_time / self.n)


def effective_size(hits: Flags, codes: Codes | None = None) -> EffectiveSampleSize:
    """Return the effective sample size of the share of true values among at least `MIN_POINTS` values in time order.
    `codes` come from `user_codes`."""
    n, share = len(hits), float(hits.mean())
    if share in (0.0, 1.0):
        return EffectiveSampleSize(n, n, n)
    residuals = hits.astype(np.float64) - share
    error = mean_error(residuals, None if codes is None else cells_by_user(codes, _parts(n), residuals / n))
    if error.variance <= 0:
        return EffectiveSampleSize(n, n, n)
    single = share * (1 - share)  # variance of one value
    certainty = (t_quantile(math.inf) / t_quantile(error.freedom)) ** 2
    along_time = single / error.along_time if error.along_time > 0 else n
    differ = error.variance > 2 * error.along_time
    return EffectiveSampleSize(n, min(n, along_time), min(n, certainty * single / error.variance), differ)


def user_codes(users: npt.ArrayLike | None) -> Codes | None:
    """Number the users from 0; `None` if there is only one, or fewer than two requests per user on average."""
    if users is None:
        return None
    labels = np.asarray(users)
    if labels.dtype.kind == "i" and len(labels) and 0 <= labels.min() <= labels.max() < len(labels):
        present = np.bincount(labels) > 0  # small numbers need no sorting
        count, codes = int(present.sum()), (np.cumsum(present) - 1)[labels]
    else:
        names, codes = np.unique(labels, return_inverse=True)
        count = len(names)
    return codes if 2 <= count <= len(codes) / 2 else None


def cells_by_user(codes: Codes, parts: npt.NDArray[np.intp], weights: Floats) -> Floats:
    """Sum `weights` by user (rows) and part of the window (columns)."""
    users = int(codes.max()) + 1
    sums = np.bincount(codes * PARTS + parts, weights=weights, minlength=users * PARTS)
    return sums.astype(np.float64).reshape(users, PARTS)


@lru_cache(maxsize=8)  # the series of a stage have one length, and there are hundreds of them
def _parts(n: int) -> npt.NDArray[np.intp]:
    """Return the index of the part of the window that holds each of n values in time order."""
    return np.arange(n) * PARTS // n


def mean_error(values: Floats, cells: Floats | None = None) -> MeanError:
    """Return the error of the mean of at least `MIN_POINTS` values in time order.

    `cells` are the contributions of each user (rows) in each part of the window (columns) to the mean's deviation. They
    add the variance between users.
    """
    along_time, freedom = _along_time(values - values.mean())
    if cells is None or len(cells) < 2:
        return MeanError(along_time, along_time, freedom)
    users, parts = cells.shape
    by_user = float((cells.sum(axis=1) ** 2).sum()) * users / (users - 1)
    by_both = float((cells**2).sum())
    # If all users are equal, by_user differs from by_both by chance, with a standard deviation of 2 · noise.
    noise = by_both * math.sqrt(0.5 / (users - 1))
    between = max(0.0, by_user - by_both - noise) * parts / (parts - 1) * CONGESTION
    total = along_time + between
    if total <= 0:
        return MeanError(along_time, along_time, freedom)
    freedom = total**2 / (along_time**2 / freedom + between**2 / (users - 1))  # Satterthwaite 1946
    return MeanError(total, along_time, freedom)


def _along_time(residuals: Floats) -> tuple[float, float]:
    """Return the variance of the mean, and its degrees of freedom."""
    group = -(-len(residuals) // MAX_POINTS)
    groups = residuals[: len(residuals) // group * group].reshape(-1, group)
    points = np.einsum("ij->i", groups) / group  # three times as fast as `mean` for short rows
    most = min(COSINES[-1], len(points) // POINTS_PER_COSINE)
    powers = first_cosines(points, most)[1:] ** 2 / len(points)
    return max(float(powers[:k].mean()) for k in COSINES), float(most)


def first_cosines(values: Floats, most: int) -> Floats:
    """Return coefficients 0 to `most` of the orthonormal DCT-II, its low frequencies. `einsum` is used because BLAS
    would start a thread for each core and slow down other threads."""
    coefficients: Floats = np.einsum("ij,j->i", _cosine_basis(len(values), most), values)
    return coefficients


@lru_cache(maxsize=8)
def _cosine_basis(n: int, most: int) -> Floats:
    """Return one row per coefficient."""
    numbers = np.arange(min(most, n - 1) + 1)
    waves: Floats = np.cos(np.pi / n * np.outer(numbers, np.arange(n) + 0.5)) * np.sqrt(2 / n)
    waves[0] /= np.sqrt(2)
    return waves


def ranks_of(values: Floats) -> Floats:
    """Return ranks from 1; equal values share their mean. `scipy.stats.rankdata` would take a second to import."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[which]
    return ranks


@dataclass(frozen=True, slots=True)
class Cycle:
    """The number of values after which a series repeats itself, and its autocorrelation at that lag."""

    length: int
    rho: float


def find_cycle(values: Floats) -> Cycle | None:
    """Return the cycle of a series that repeats itself, as with users in lock step; `None` if it does not.

    The cycle is the lag of the first large autocorrelation of the ranks after their first zero crossing, if it exceeds
    `CYCLE` and chance and the series has at least three cycles. A series that repeats itself does not show how its
    pattern would vary from one run to the next, so it yields no interval.
    """
    ranks = ranks_of(values[:CYCLE_POINTS])
    centred = ranks - ranks.mean()
    n, lags = len(centred), len(centred) // 3
    power = float(np.einsum("i,i->", centred, centred))
    if lags < 3 or power <= 0:
        return None
    size = 1 << (2 * n - 1).bit_length()  # padded, so that the ends do not wrap round
    spectrum = np.fft.rfft(centred, size)
    rho = np.fft.irfft(spectrum * np.conj(spectrum), size)[:lags] / power * n / (n - np.arange(lags))
    crossings = np.flatnonzero(rho <= 0)
    if not len(crossings):
        return None
    later = np.where(np.arange(lags) < crossings[0], -1.0, rho)
    if later.max() <= max(CYCLE, CHANCE / math.sqrt(n)):
        return None
    lag = int(np.flatnonzero(later > MULTIPLE * later.max())[0])  # the cycle and not one of its multiples
    while lag + 1 < lags and later[lag + 1] > later[lag]:
        lag += 1
    return Cycle(lag, float(later[lag]))
