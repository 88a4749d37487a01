"""Ranks and cosine transform of a series. NumPy alone: importing `scipy.stats` takes longer than judging a run."""

from __future__ import annotations

import numpy as np

from analysis.verdict.statistics.estimate import Floats


def ranks_of(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2)[which]
    return ranks


def cosine_transform(values: Floats) -> Floats:
    """The orthonormal DCT-II, by one Fourier transform of the even values followed by the odd ones (Makhoul 1980)."""
    n = len(values)
    spectrum = np.fft.fft(np.concatenate((values[::2], values[1::2][::-1])))
    cosines: Floats = (spectrum * np.exp(-0.5j * np.pi * np.arange(n) / n)).real * np.sqrt(2 / n)
    cosines[0] /= np.sqrt(2)
    return cosines
