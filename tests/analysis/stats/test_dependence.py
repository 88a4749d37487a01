"""Requests that are correlated, repeat in cycles, or belong to users who differ."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
import scipy

from analysis.stats.dependence import MeanError, cycle_length, mean_error, skewed_quantile, user_codes
from analysis.stats.estimate import Floats
from analysis.stats.intervals import IN_CYCLES, share_interval
from tests.support.analysis.draws import percentile_interval, queueing


def width_of_mean(values: Floats, users: npt.ArrayLike | None = None) -> float:
    error = mean_error(values, user_codes(users))
    assert error is not None
    low, high = error.limits()
    return high - low


@pytest.mark.parametrize(
    ("rho", "expected"),
    [
        pytest.param(0.0, 1.0, id="independent values count fully"),
        pytest.param(0.5, 3.0, id="(1 + 0.5) / (1 − 0.5)"),
        pytest.param(0.8, 9.0, id="(1 + 0.8) / (1 − 0.8)"),
    ],
)
def test_long_run_variance_of_a_known_process(rho: float, expected: float) -> None:
    rng, found = np.random.default_rng(3), []
    for _ in range(200):
        error = mean_error(np.log(queueing(rng, 4000, rho)))
        assert error is not None
        found.append(error.variance * 4000)
    # The larger of two estimates with 8 and 16 degrees of freedom is 8 % too large on average.
    assert np.mean(found) == pytest.approx(1.08 * expected, rel=0.1)


def test_users_pinned_to_replicas_widen_an_interval() -> None:
    """Forty users, each always fast or always slow, are forty samples and not two thousand; and the interval is a
    fifth wider, because users of one replica slow each other down."""
    rng = np.random.default_rng(4)
    users = rng.permutation(np.arange(2000) % 40)
    values = np.where(users % 2 == 0, 1.0, 2.0) + 0.1 * rng.standard_normal(2000)
    alone, clustered = width_of_mean(values), width_of_mean(values, users)
    assert clustered == pytest.approx(1.2 * 2 * 2.02 * 0.5 / math.sqrt(40), rel=0.15)
    assert alone < 0.3 * clustered
    named = [f"user {user}" for user in users]
    assert width_of_mean(values, named) == pytest.approx(clustered)


def test_users_that_are_alike_do_not_widen_an_interval() -> None:
    rng, ratios = np.random.default_rng(5), []
    for _ in range(100):
        values, users = rng.standard_normal(2000), rng.integers(40, size=2000)
        ratios.append(width_of_mean(values, users) / width_of_mean(values))
    assert np.mean(ratios) < 1.05


def test_open_loop_requests_have_no_users_to_tell_apart() -> None:
    assert user_codes(np.arange(1000)) is None
    assert user_codes(np.zeros(1000)) is None
    codes = user_codes(["a", "b", "a", "b"])
    assert codes is not None
    assert codes.tolist() == [0, 1, 0, 1]


def test_skewness_widens_the_side_of_the_longer_tail_only() -> None:
    """By hand for γ = 0.2 and t = 2: β = 1/30, (1 − ∛(1 − 0.2 · 2.0333)) · 15 = 2.396."""
    assert skewed_quantile(2.0, 0.0) == 2.0
    assert skewed_quantile(2.0, -0.3) == 2.0
    assert skewed_quantile(2.0, 0.2) == pytest.approx(2.396, abs=0.001)
    low, high = MeanError(1.0, 16.0, 0.5).limits()
    assert -low == pytest.approx(scipy.stats.t.ppf(0.975, 16))
    assert high > 1.2 * -low


def test_requests_that_repeat_in_cycles_have_no_interval() -> None:
    """Forty users in lock step: the same forty latencies again and again."""
    rng = np.random.default_rng(6)
    pattern = np.tile(rng.uniform(1, 2, 40), 25) + 0.01 * rng.standard_normal(1000)
    assert cycle_length(pattern) == 40
    assert percentile_interval(pattern, 0.5).why == IN_CYCLES
    assert share_interval(pattern < 1.9, latencies=pattern).why == IN_CYCLES
    within = share_interval(pattern < 3, latencies=pattern)  # all of them: each of the 25 cycles counts as one
    assert within.low == pytest.approx(0.025 ** (1 / 25))
    assert cycle_length(rng.standard_normal(1000)) is None
    assert cycle_length(np.log(queueing(rng, 3000, 0.9))) is None
    assert cycle_length(np.ones(1000)) is None
