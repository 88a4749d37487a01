"""Intervals of percentiles, shares and rates by hand.

Short simulations of them are in tests/validation/statistics/.
"""

import math
import time

import numpy as np
import pytest

from enginebench.analysis.stats.intervals import (
    bin_by_user,
    bin_events,
    min_requests,
    min_samples,
    percentile_intervals,
    rate_interval,
    share_interval,
)
from enginebench.records.rules import answer_of
from enginebench.records.view import Estimate, Missing
from tests.support.analysis.draws import percentile_interval, queueing, width
from tests.support.present import present


def test_tails_need_many_samples() -> None:
    assert [min_samples(q) for q in (0.5, 0.9, 0.95, 0.99)] == [6, 36, 72, 368]
    assert [min_requests(q) for q in (0.5, 0.9, 0.95, 0.99)] == [16, 36, 72, 368]
    assert percentile_interval(np.arange(200.0), 0.99) == Estimate(197.0, n=200, missing=Missing.FEW_REQUESTS)
    spread = percentile_interval(np.random.default_rng(0).permutation(1000), 0.99)
    assert spread.low is not None


def test_failures_are_infinite() -> None:
    """Of 1 000 requests 4 % failed: p95 is a number, its interval reaches into the failures, p99 is one of them."""
    values = np.random.default_rng(1).permutation(np.r_[np.linspace(1, 2, 960), np.full(40, np.inf)])
    p50, p95, p99 = percentile_intervals(values, (0.5, 0.95, 0.99))
    assert present(p50.high) < 1.7
    assert p95.value == pytest.approx(1.9896, abs=1e-3)
    assert p95.high == math.inf
    assert p99.value == math.inf
    assert p99.low == math.inf


def test_a_percentile_that_depends_on_cut_off_requests_is_withheld() -> None:
    """300 requests from 1 to 2 s, of which 30 were cut off after 1.5 s: p50 is known, p95 is not."""
    rng = np.random.default_rng(2)
    values, censored = rng.permutation(np.linspace(1, 2, 300)), np.zeros(300, dtype=bool)
    late = rng.choice(np.flatnonzero(values > 1.5), 30, replace=False)
    values[late], censored[late] = 1.5, True
    p50, p95 = percentile_intervals(values, (0.4, 0.95), censored=censored)
    assert p50.value == pytest.approx(1.4, abs=0.01)
    assert p50.high is not None
    assert p95 == Estimate(None, n=300, missing=Missing.CUT_OFF)
    near = percentile_interval(values, 0.49, censored=censored)
    assert near.value == pytest.approx(1.49, abs=0.01)
    assert near.low == pytest.approx(1.42, abs=0.02)
    assert near.high == pytest.approx(1.57, abs=0.02)  # as if all that were cut off had taken for ever


def test_an_interval_that_depends_on_cut_off_requests_is_withheld() -> None:
    """The 12 longest of 400 were cut off just before their end: p95 is known, the upper end of its interval is not."""
    rng = np.random.default_rng(3)
    values = rng.permutation(np.linspace(1, 2, 400))
    p95 = percentile_interval(values, 0.95, censored=values > 1.97)
    assert p95.value == pytest.approx(1.95, abs=0.01)
    assert (p95.high, p95.missing) == (None, Missing.CUT_OFF)


def test_a_few_cut_off_requests_leave_the_median_known() -> None:
    """Three of 300, which had waited for next to nothing, move the median by two thousandths at most."""
    rng = np.random.default_rng(4)
    values, censored = rng.permutation(np.linspace(1, 2, 300)), np.zeros(300, dtype=bool)
    values[[50, 150, 250]], censored[[50, 150, 250]] = 0.01, True
    p50 = percentile_interval(values, 0.5, censored=censored)
    assert p50.value == pytest.approx(1.5, abs=0.01)
    assert p50.low is not None


def test_latencies_that_are_all_the_same_have_an_interval_of_no_width() -> None:
    assert percentile_interval(np.full(100, 0.3), 0.5) == Estimate(0.3, 0.3, 0.3, 100)


def test_share_interval_near_zero() -> None:
    """Clopper and Pearson by hand: no failure in 100 leaves up to 1 − 0.025^(1/100)."""
    none = share_interval(np.zeros(100, dtype=bool))
    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 100))
    assert share_interval([]).value is None


def test_correlated_failures_widen_the_interval_of_their_share() -> None:
    rng = np.random.default_rng(8)
    bad = queueing(rng, 10_000, 0.9) > 3.6  # the slowest tenth, in bursts
    assert width(share_interval(bad)) > 2 * width(share_interval(rng.permutation(bad)))


@pytest.mark.parametrize(
    ("good", "n", "q", "answer"),
    [
        pytest.param(20, 20, 0.99, "not confirmed", id="20 requests cannot meet a p99"),
        pytest.param(400, 400, 0.99, "met", id="400 without a miss can: 0.025^(1/400) = 0.9908"),
        pytest.param(360, 400, 0.95, "missed", id="90 % are not 95 %"),
        pytest.param(380, 400, 0.95, "not confirmed", id="just 95 % may be less"),
    ],
)
def test_an_objective_has_three_answers(good: int, n: int, q: float, answer: str) -> None:
    hits = np.random.default_rng(9).permutation(n) < good
    share = share_interval(hits)
    assert answer_of(share.low, share.high, q) == answer


def test_rates_are_amounts_over_seconds() -> None:
    rng = np.random.default_rng(10)
    times, users = rng.uniform(-5, 65, 7000), rng.integers(40, size=7000)
    inside = int(((times >= 0) & (times < 60)).sum())
    rate = rate_interval(3 * bin_events(times, 0, 60), 60)
    assert rate.value == pytest.approx(3 * inside / 60)
    # Poisson: the standard deviation of the rate is 3 √N / T.
    assert width(rate) == pytest.approx(2 * 2.12 * 3 * math.sqrt(inside) / 60, rel=0.35)
    cells = bin_by_user(times, users, 0, 60)
    assert cells.sum() == inside
    assert cells.shape == (40, 16)


def test_a_users_own_pace_widens_a_rate() -> None:
    """Half of the users are four times as fast; with another draw of users the rate would be another."""
    rng = np.random.default_rng(11)
    users = rng.choice(40, 4000, p=np.where(np.arange(40) % 2 == 0, 4, 1) / 100)
    times = rng.uniform(0, 60, 4000)
    amounts = bin_events(times, 0, 60)
    widened = rate_interval(amounts, 60, bin_by_user(times, users, 0, 60))
    # Totals of 160 and 40 requests a user: √40 · 60 of 4 000.
    assert width(widened) == pytest.approx(math.sqrt(1.5) * 2 * 2.02 * math.sqrt(40) * 60 / 60, rel=0.15)
    assert width(rate_interval(amounts, 60)) < 0.5 * width(widened)


def test_the_edges_of_a_window_decide_a_rate_in_rigid_cycles() -> None:
    wave = 100 * (1 + np.sin(np.arange(240) * 2 * math.pi * 12.5 / 240))
    found = rate_interval(wave, 240)
    assert (found.low, found.missing) == (None, Missing.CYCLIC)
    assert rate_interval(np.r_[np.ones(3), np.zeros(237)], 60).missing is Missing.FEW_REQUESTS


def test_loose_cycles_leave_a_rate_what_is_slower_than_they_are() -> None:
    """Sines of standard deviation 1 in noise of 0.85: the autocorrelation is 0.58, and the noise decides the width."""
    noise = 0.85 * np.random.default_rng(18).standard_normal(240)
    found = rate_interval(10 + math.sqrt(2) * np.sin(np.arange(240) * 2 * math.pi * 12.5 / 240) + noise, 240)
    assert present(found.low) < 10 < present(found.high)
    assert width(found) < 3 * 2 * 1.96 * 0.85 / math.sqrt(240)
    few = rate_interval(10 + math.sqrt(2) * np.sin(np.arange(240) * 2 * math.pi / 75) + noise, 240)
    assert width(few) > 3 * width(found), "three cycles are as slow as what the window shows, and count"


def test_a_million_requests_take_moments() -> None:
    rng = np.random.default_rng(17)
    values, users = rng.lognormal(0, 1, 1_000_000), rng.integers(200, size=1_000_000)
    start = time.process_time()
    found = percentile_intervals(values, (0.5, 0.9, 0.95, 0.99), users)
    assert time.process_time() - start < 2.5  # 0.4 s on a quiet machine
    assert all(estimate.low is not None for estimate in found)
