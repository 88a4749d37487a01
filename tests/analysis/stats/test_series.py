"""Ranks, transforms and quantiles that are computed here without scipy.stats, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy

from analysis.stats.estimate import interval_ranks, t_p_value
from analysis.stats.series import first_cosines, ranks_of
from analysis.stats.steadiness import _line


@pytest.mark.parametrize("n", [1, 2, 59, 60, 241])
def test_series_are_ranked_transformed_and_fitted_as_by_scipy(n: int) -> None:
    values = np.random.default_rng(n).integers(0, 20, n).astype(np.float64)  # with ties
    assert ranks_of(values).tolist() == scipy.stats.rankdata(values).tolist()
    transformed = scipy.fft.dct(values, type=2, norm="ortho")
    assert first_cosines(values, 16) == pytest.approx(transformed[:17], abs=1e-9)
    if n > 1:
        slope, residuals = _line(values)
        assert slope == pytest.approx(scipy.stats.linregress(np.arange(n), values).slope)
        assert residuals == pytest.approx(scipy.signal.detrend(values), abs=1e-9)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9, 0.99])
def test_ranks_of_an_interval_are_quantiles_of_the_binomial(q: float) -> None:
    sizes = np.array([1, 2, 7, 36, 72, 100, 368, 1000, 12_345, 1_000_000])
    low, high = (scipy.stats.binom.ppf(share, sizes, q) for share in (0.025, 0.975))
    assert [interval_ranks(int(n), q) for n in sizes] == [(int(a), int(b) + 1) for a, b in zip(low, high, strict=True)]


@pytest.mark.parametrize(("t", "freedom"), [(0.0, 3.0), (2.5, 4.7), (-2.5, 4.7), (30.0, 12.0)])
def test_p_values_are_two_sided(t: float, freedom: float) -> None:
    assert t_p_value(t, freedom) == pytest.approx(2 * scipy.stats.t.sf(abs(t), freedom))
