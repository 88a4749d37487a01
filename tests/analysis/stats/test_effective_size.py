"""Requests that are correlated, repeat in cycles, or belong to users who differ; ranks and cosines against SciPy's."""

import math

import numpy as np
import pytest
import scipy

from enginebench.analysis.stats.effective_size import (
    EffectiveSampleSize,
    effective_size,
    find_cycle,
    first_cosines,
    mean_error,
    ranks_of,
    user_codes,
)
from enginebench.analysis.stats.intervals import share_interval
from enginebench.records.view import Missing
from tests.support.analysis.draws import percentile_interval, queueing
from tests.support.present import present


@pytest.mark.parametrize(
    ("rho", "expected"),
    [
        pytest.param(0.0, 1.0, id="independent values count fully"),
        pytest.param(0.5, 3.0, id="(1 + 0.5) / (1 − 0.5)"),
        pytest.param(0.8, 9.0, id="(1 + 0.8) / (1 − 0.8)"),
    ],
)
def test_long_run_variance_of_a_known_process(rho: float, expected: float) -> None:
    rng = np.random.default_rng(3)
    variances = [mean_error(np.log(queueing(rng, 4000, rho))).variance * 4000 for _ in range(200)]
    # The larger of two estimates with 8 and 16 degrees of freedom is 8 % too large on average.
    assert np.mean(variances) == pytest.approx(1.08 * expected, rel=0.1)


def test_open_loop_requests_have_no_users_to_tell_apart() -> None:
    assert user_codes(np.arange(1000)) is None
    assert user_codes(np.zeros(1000)) is None
    codes = present(user_codes(["a", "b", "a", "b"]))
    assert codes.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("rho", "worth"),
    [
        pytest.param(0.0, 1.0, id="each independent request counts as one"),
        # P(both below the median) = 1/4 + asin(ρ)/2π, so the lag-k correlation of the indicator is asin(ρ^k) · 2/π.
        pytest.param(0.8, 1 / (1 + 2 * sum(math.asin(0.8**k) * 2 / math.pi for k in range(1, 60))), id="AR(1) of 0.8"),
    ],
)
def test_the_effective_size_of_the_median_of_a_known_process(rho: float, worth: float) -> None:
    rng, sizes = np.random.default_rng(9), []
    for _ in range(100):
        values = queueing(rng, 4000, rho)
        sizes.append(effective_size(values <= np.median(values)))
    along_time = np.median([size.along_time for size in sizes])
    assert along_time == pytest.approx(4000 * worth, rel=0.12)
    # Korn & Graubard: the t quantile of 16 degrees of freedom is 2.12, squared 1.17 times that of the normal.
    uncapped = [size.size / size.along_time for size in sizes if size.along_time < 4000]
    assert np.median(uncapped) == pytest.approx((1.96 / 2.12) ** 2, rel=0.01)


def test_users_who_differ_are_the_samples() -> None:
    rng = np.random.default_rng(7)
    users = rng.integers(40, size=4000)
    slow = rng.random(4000) < np.where(users % 2 == 0, 0.8, 0.2)
    differ, alike = (effective_size(slow, user_codes(codes)) for codes in (users, rng.permutation(users)))
    assert (differ.users_differ, alike.users_differ) == (True, False)
    # 40 users of shares 0.8 and 0.2 have a variance of 0.36 · 1/4 each, half as large again for congestion.
    assert differ.size == pytest.approx(40 / (0.36 * 1.5), rel=0.2)
    assert alike.size == pytest.approx(alike.along_time * (1.96 / 2.12) ** 2, rel=0.01)
    assert effective_size(np.ones(100, dtype=bool)) == EffectiveSampleSize(100, 100, 100)


def test_requests_that_repeat_in_cycles_have_no_interval() -> None:
    """Forty users in lock step: the same forty latencies again and again."""
    rng = np.random.default_rng(6)
    pattern = np.tile(rng.uniform(1, 2, 40), 25) + 0.01 * rng.standard_normal(1000)
    cycle = present(find_cycle(pattern))
    assert cycle.length == 40
    assert percentile_interval(pattern, 0.5).missing is Missing.CYCLIC
    assert share_interval(pattern < 1.9, latencies=pattern).missing is Missing.CYCLIC
    within = share_interval(pattern < 3, latencies=pattern)  # all of them: each of the 25 cycles counts as one
    assert within.low == pytest.approx(0.025 ** (1 / 25))
    assert find_cycle(rng.standard_normal(1000)) is None
    assert find_cycle(np.log(queueing(rng, 3000, 0.9))) is None
    assert find_cycle(np.ones(1000)) is None


@pytest.mark.parametrize("n", [24, 48])
def test_a_few_requests_without_a_cycle_seldom_seem_to_have_one(n: int) -> None:
    """A run has a dozen such series, and a note for any of them."""
    rng = np.random.default_rng(n)
    assert sum(find_cycle(rng.standard_normal(n)) is not None for _ in range(400)) <= 4
    lock_step = np.tile(rng.uniform(1, 2, n // 4), 4) + 0.05 * rng.standard_normal(n)
    assert find_cycle(lock_step) is not None


@pytest.mark.parametrize("n", [1, 2, 59, 60, 241])
def test_series_are_ranked_and_transformed_as_by_scipy(n: int) -> None:
    values = np.random.default_rng(n).integers(0, 20, n).astype(np.float64)  # with ties
    assert ranks_of(values).tolist() == scipy.stats.rankdata(values).tolist()
    assert first_cosines(values, 16) == pytest.approx(scipy.fft.dct(values, type=2, norm="ortho")[:17], abs=1e-9)
