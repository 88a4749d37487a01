"""Ranks and cosines of a series. NumPy alone: importing `scipy.stats` takes longer than judging a run. Products by
`einsum`: BLAS would start a thread for each core, and other threads have work for them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from analysis.stats.estimate import Floats


def ranks_of(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[which]
    return ranks


def first_cosines(values: Floats, most: int) -> Floats:
    """Coefficients 0 to `most` of the orthonormal DCT-II, which is all that low frequencies need."""
    coefficients: Floats = np.einsum("ij,j->i", _basis(len(values), most), values)
    return coefficients


@lru_cache(maxsize=8)  # the series of a stage have one length, and there are hundreds of them
def _basis(n: int, most: int) -> Floats:
    """A row for each coefficient."""
    numbers = np.arange(min(most, n - 1) + 1)
    waves: Floats = np.cos(np.pi / n * np.outer(numbers, np.arange(n) + 0.5)) * np.sqrt(2 / n)
    waves[0] /= np.sqrt(2)
    return waves
