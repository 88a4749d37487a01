"""Percentiles by their definition; intervals, winners and steadiness by hand, and by short simulations in
tests/simulations.
"""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import scipy

from analysis.verdict.statistics import (
    DEPENDS_ON_CUT_OFF,
    IN_CYCLES,
    LOCK_STEP,
    Estimate,
    Floats,
    bin_by_user,
    bin_events,
    interval_ranks,
    least_samples,
    lock_step,
    mean_interval,
    needed,
    objective_answer,
    percentile,
    percentile_interval,
    percentile_intervals,
    rate_interval,
    ratio_interval,
    repeats_interval,
    share_interval,
    steadiness,
    trend,
    winner,
)
from analysis.verdict.statistics.dependence import MeanError, cycle_length, mean_error, skewed_quantile, user_codes
from analysis.verdict.statistics.steadiness import mser


def queueing(rng: np.random.Generator, n: int, rho: float) -> Floats:
    """Lognormal, each value correlated with the one before it."""
    shocks = rng.standard_normal(n + 200) * math.sqrt(1 - rho**2)
    return np.asarray(np.exp(scipy.signal.lfilter([1], [1, -rho], shocks)[200:]), dtype=np.float64)


def width(estimate: Estimate) -> float:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.high - estimate.low


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        pytest.param([1, 2, 3, 4], 0.5, 2, id="the median of four is the second: half do not exceed it"),
        pytest.param([1, 2, 3, 4, 5], 0.5, 3, id="of five the third"),
        pytest.param(range(1, 101), 0.99, 99, id="p99 of a hundred is the 99th, not an interpolation"),
        pytest.param(range(1, 21), 0.95, 19, id="0.95 × 20 is 19, although floats say a hair more"),
        pytest.param([7], 0.99, 7, id="of one value, that value"),
        pytest.param([1, 2, 3], 1.0, 3, id="p100 is the largest"),
    ],
)
def test_percentiles_are_nearest_rank(values: list[float], q: float, expected: float) -> None:
    assert percentile(np.array(values, dtype=np.float64), q) == expected
    assert percentile(np.array(values, dtype=np.float64), q) == np.percentile(values, 100 * q, method="inverted_cdf")


def test_tails_need_many_samples() -> None:
    assert [least_samples(q) for q in (0.5, 0.9, 0.95, 0.99)] == [6, 36, 72, 368]
    assert [needed(q) for q in (0.5, 0.9, 0.95, 0.99)] == [16, 90, 172, 468]
    assert percentile_interval(np.arange(200.0), 0.99) == Estimate(197.0, n=200, why="200 < 468")
    spread = percentile_interval(np.random.default_rng(0).permutation(1000), 0.99)
    assert spread.low is not None


@pytest.mark.parametrize("n", [6, 10, 57, 368, 1000])
@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
def test_interval_ranks_cover_exactly(n: int, q: float) -> None:
    """P(x_(l) ≤ percentile ≤ x_(u)) = P(l ≤ B ≤ u − 1) for B binomial, computed apart from the code."""
    if n < least_samples(q):
        return
    low, high = interval_ranks(n, q)
    mass = [math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(n + 1)]
    assert 1 <= low < high <= n
    assert sum(mass[low:high]) >= 0.95
    assert sum(mass[:low]) <= 0.025
    assert sum(mass[high:]) <= 0.025


def test_failures_are_infinite() -> None:
    """Of 1 000 requests 4 % failed: p95 is a number, its interval reaches into the failures, p99 is one of them."""
    values = np.random.default_rng(1).permutation(np.r_[np.linspace(1, 2, 960), np.full(40, np.inf)])
    p50, p95, p99 = percentile_intervals(values, (0.5, 0.95, 0.99))
    assert p50.high is not None
    assert p50.high < 1.7
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
    assert p95 == Estimate(None, n=300, why=DEPENDS_ON_CUT_OFF)
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
    assert (p95.high, p95.why) == (None, f"interval {DEPENDS_ON_CUT_OFF}")


def test_a_few_cut_off_requests_leave_the_median_known() -> None:
    """Three of 300, which had waited for next to nothing, move the median by two thousandths at most."""
    rng = np.random.default_rng(4)
    values, censored = rng.permutation(np.linspace(1, 2, 300)), np.zeros(300, dtype=bool)
    values[[50, 150, 250]], censored[[50, 150, 250]] = 0.01, True
    p50 = percentile_interval(values, 0.5, censored=censored)
    assert p50.value == pytest.approx(1.5, abs=0.01)
    assert p50.low is not None


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
    alone, clustered = mean_interval(values), mean_interval(values, users)
    assert width(clustered) == pytest.approx(1.2 * 2 * 2.02 * 0.5 / math.sqrt(40), rel=0.15)
    assert width(alone) < 0.3 * width(clustered)
    named = [f"user {user}" for user in users]
    assert width(mean_interval(values, named)) == pytest.approx(width(clustered))


def test_users_that_are_alike_do_not_widen_an_interval() -> None:
    rng, ratios = np.random.default_rng(5), []
    for _ in range(100):
        values, users = rng.standard_normal(2000), rng.integers(40, size=2000)
        ratios.append(width(mean_interval(values, users)) / width(mean_interval(values)))
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
    assert mean_interval(pattern).why == IN_CYCLES
    assert cycle_length(rng.standard_normal(1000)) is None
    assert cycle_length(np.log(queueing(rng, 3000, 0.9))) is None
    assert cycle_length(np.ones(1000)) is None


def test_latencies_that_are_all_the_same_have_an_interval_of_no_width() -> None:
    assert percentile_interval(np.full(100, 0.3), 0.5) == Estimate(0.3, 0.3, 0.3, 100)


def test_share_interval_near_zero() -> None:
    """Clopper and Pearson by hand: no failure in 100 leaves up to 1 − 0.025^(1/100)."""
    none = share_interval(np.zeros(100, dtype=bool))
    assert (none.value, none.low) == (0, 0)
    assert none.high == pytest.approx(1 - 0.025 ** (1 / 100))
    assert share_interval([]).value is None


def test_share_interval_of_independent_trials_is_near_that_of_the_binomial() -> None:
    rng = np.random.default_rng(7)
    exact = scipy.stats.binomtest(900, 1000).proportion_ci(0.95)
    widths = [width(share_interval(rng.permutation(1000) < 900)) for _ in range(100)]
    assert 1.0 < np.mean(widths) / (exact.high - exact.low) < 1.25


def test_correlated_failures_widen_the_interval_of_their_share() -> None:
    rng = np.random.default_rng(8)
    bad = queueing(rng, 10_000, 0.9) > 3.6  # the slowest tenth, in bursts
    assert width(share_interval(bad)) > 2 * width(share_interval(rng.permutation(bad)))


@pytest.mark.parametrize(
    ("good", "n", "q", "answer"),
    [
        pytest.param(20, 20, 0.99, "not enough evidence", id="20 requests cannot meet a p99"),
        pytest.param(400, 400, 0.99, "met", id="400 without a miss can: 0.025^(1/400) = 0.9908"),
        pytest.param(360, 400, 0.95, "missed", id="90 % are not 95 %"),
        pytest.param(380, 400, 0.95, "not enough evidence", id="just 95 % may be less"),
    ],
)
def test_an_objective_has_three_answers(good: int, n: int, q: float, answer: str) -> None:
    hits = np.random.default_rng(9).permutation(n) < good
    assert objective_answer(share_interval(hits), q) == answer


def test_an_objective_without_an_interval_is_not_answered() -> None:
    assert objective_answer(Estimate(1.0, why="no samples"), 0.9) == "not enough evidence"


def test_rates_are_amounts_over_seconds() -> None:
    rng = np.random.default_rng(10)
    times, users = rng.uniform(-5, 65, 7000), rng.integers(40, size=7000)
    inside = int(((times >= 0) & (times < 60)).sum())
    rate = rate_interval(bin_events(times, 0, 60, np.full(7000, 3.0)), 60)
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
    assert width(widened) == pytest.approx(1.2 * 2 * 2.02 * math.sqrt(40) * 60 / 60, rel=0.15)
    assert width(rate_interval(amounts, 60)) < 0.5 * width(widened)


def test_the_edges_of_a_window_decide_a_rate_in_rigid_cycles() -> None:
    wave = 100 * (1 + np.sin(np.arange(240) * 2 * math.pi * 12.5 / 240))
    found = rate_interval(wave, 240)
    assert (found.low, found.why) == (None, IN_CYCLES)
    assert rate_interval(np.r_[np.ones(3), np.zeros(237)], 60).why == "arrivals in 3 of 240 parts of the window"


def test_loose_cycles_leave_a_rate_what_is_slower_than_they_are() -> None:
    """Sines of standard deviation 1 in noise of 0.85: the autocorrelation is 0.58, and the noise decides the width."""
    noise = 0.85 * np.random.default_rng(18).standard_normal(240)
    found = rate_interval(10 + math.sqrt(2) * np.sin(np.arange(240) * 2 * math.pi * 12.5 / 240) + noise, 240)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 10 < found.high
    assert width(found) < 3 * 2 * 1.96 * 0.85 / math.sqrt(240)
    few = 10 + math.sqrt(2) * np.sin(np.arange(240) * 2 * math.pi / 75) + noise
    assert rate_interval(few, 240).why == IN_CYCLES


def test_ratio_interval_is_welchs_on_logarithms() -> None:
    a, b = [3.0, 3.2, 2.9, 3.1, 3.0], [1.0, 1.1, 0.9, 1.05, 1.0]
    one, other = ratio_interval(a, b), ratio_interval(b, a)
    expected = scipy.stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    assert one.low == pytest.approx(math.exp(expected.low))
    assert one.high == pytest.approx(math.exp(expected.high))
    assert one.value is not None
    assert one.high is not None
    assert one.value == pytest.approx(1 / (other.value or 0))
    assert other.low == pytest.approx(1 / one.high)


def test_paired_runs_cancel_what_their_repeats_share() -> None:
    drift = np.array([1.0, 1.3, 0.8, 1.1, 0.9])
    a, b = (1.1 * drift * [1.0, 1.01, 0.99, 1.0, 1.0]).tolist(), drift.tolist()
    assert ratio_interval(a, b, paired=True).low == pytest.approx(1.1, rel=0.02)
    unpaired = ratio_interval(a, b)
    assert unpaired.low is not None
    assert unpaired.low < 0.9
    with pytest.raises(ValueError, match="as many runs"):
        ratio_interval([1.0, 2.0], [1.0], paired=True)


def test_a_ratio_to_nothing_is_none() -> None:
    assert ratio_interval([1.0, 2.0, 3.0], [0.0, 0.0, 0.0]).value is None
    assert ratio_interval([], [1.0]).value is None


def test_two_runs_have_no_interval() -> None:
    assert repeats_interval([1.0, 2.0]) == Estimate(1.5, n=2, why="2 < 3 repeats")
    expected = scipy.stats.t.interval(0.95, 2, 2.0, scipy.stats.sem([1.0, 2.0, 3.0]))
    assert repeats_interval([1.0, 2.0, 3.0]).low == pytest.approx(expected[0])


@pytest.mark.parametrize(
    ("runs", "paired", "named", "why"),
    [
        pytest.param({"a": [100.0], "b": [50.0]}, False, None, "1 < 3 repeats", id="one run each names nobody"),
        pytest.param({"a": [100, 101, 99], "b": [80, 81, 80]}, False, "a", None, id="1.25 times, far beyond chance"),
        pytest.param(
            {"a": [103, 103.1, 102.9], "b": [100, 100.1, 99.9]},
            False,
            None,
            "the ratio to b is below the practical margin of 1.05",
            id="certain, but too small to matter",
        ),
        pytest.param(
            {"a": [130, 90, 110], "b": [100, 95, 105]},
            False,
            None,
            "the difference to b may be chance",
            id="too wide apart",
        ),
        pytest.param(
            {"a": [120, 60, 180], "b": [100, 50, 150]}, True, "a", None, id="1.2 times in each of the repeats"
        ),
        pytest.param({"a": [1.0, 1.0, 1.0]}, False, None, "there is only one engine", id="alone"),
    ],
)
def test_a_winner_needs_repeats_an_interval_and_a_margin(
    runs: dict[str, list[float]], paired: bool, named: str | None, why: str | None
) -> None:
    ranking = winner(runs, paired=paired)
    assert (ranking.winner, ranking.why) == (named, why)
    assert ranking.order[0] == "a"


def test_lower_is_better_for_latencies() -> None:
    ranking = winner({"slow": [1.2, 1.21, 1.19], "fast": [1.0, 1.01, 0.99]}, higher_is_better=False)
    assert ranking.winner == "fast"
    assert ranking.pair("slow", "fast").ratio.value == pytest.approx(1.2, rel=0.01)


def test_holms_correction_over_all_pairs() -> None:
    """p values of 0.01, 0.04 and 0.5 become 0.03, 0.08 and 0.5, by Holm's own rule computed apart."""
    rng = np.random.default_rng(12)
    runs = {
        name: (level * np.exp(0.05 * rng.standard_normal(5))).tolist()
        for name, level in zip("abc", (3, 2, 2.1), strict=True)
    }
    ranking = winner(runs)
    plain = [
        float(scipy.stats.ttest_ind(np.log(runs[p.better]), np.log(runs[p.worse]), equal_var=False).pvalue)
        for p in ranking.pairs
    ]
    expected, largest = {}, 0.0
    for k, p in enumerate(sorted(plain)):
        largest = max(largest, (len(plain) - k) * p)
        expected[p] = min(1.0, largest)
    assert [pair.p for pair in ranking.pairs] == [pytest.approx(expected[p]) for p in plain]
    assert ranking.winner == "a"


def test_mser_cuts_off_an_initial_transient() -> None:
    series = np.r_[np.linspace(10, 1, 50), np.ones(200)] + 0.01 * np.random.default_rng(13).standard_normal(250)
    assert mser(series) == pytest.approx(0.2, abs=0.03)


def test_a_series_that_grows_or_begins_otherwise_is_unsteady() -> None:
    noise = np.random.default_rng(14).standard_normal(120)
    level = steadiness(10 + noise)
    assert level.steady is True
    grown = steadiness(10 + noise + np.linspace(0, 10, 120))
    assert grown.steady is False
    assert grown.trend > 0.8
    assert grown.change == pytest.approx(10 / 15, abs=0.1)
    begun = steadiness(10 + noise + 10 * np.exp(-np.arange(120) / 8))
    assert begun.steady is False
    assert begun.transient_p < 0.01
    assert steadiness(10 + 0.001 * (noise + np.linspace(0, 30, 120))).steady is True  # grows by 0.3 %
    assert steadiness(np.r_[np.full(100, np.nan), noise[:10]]).steady is None
    assert steadiness(np.full(100, 3.0)).steady is True


def test_a_queue_that_is_never_served_is_unsteady() -> None:
    backlog = np.cumsum(np.random.default_rng(15).poisson(3.0, 120) - 2.0)
    assert steadiness(backlog).steady is False


def test_trend_of_a_line() -> None:
    rho, p = trend(np.arange(30.0))
    assert rho == pytest.approx(1.0)
    assert p < 1e-6
    assert trend(-np.arange(30.0))[0] == pytest.approx(-1.0)
    assert trend([3.0] * 30) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("draw", "low", "high"),
    [
        pytest.param(lambda rng: rng.uniform(0, 60, 400), 0.6, 1.5, id="Poisson arrivals have an index of 1"),
        pytest.param(lambda rng: np.arange(400) * 0.15, -0.1, 0.1, id="evenly spread ones of almost 0"),
        pytest.param(
            lambda rng: np.repeat(np.arange(10) * 6.0 + 0.1, 40) + rng.uniform(0, 0.3, 400),
            30.0,
            40.0,
            id="40 users at once have 0.9 × 40",
        ),
    ],
)
def test_lock_step_is_the_index_of_dispersion(draw: object, low: float, high: float) -> None:
    assert callable(draw)
    index = lock_step(draw(np.random.default_rng(16)), (0, 60), 40)
    assert index is not None
    assert low < index < high
    assert (index > LOCK_STEP) == (low > LOCK_STEP)
    assert lock_step([1.0, 2.0], (0, 60), 40) is None


def test_a_million_requests_take_moments() -> None:
    rng = np.random.default_rng(17)
    values, users = rng.lognormal(0, 1, 1_000_000), rng.integers(200, size=1_000_000)
    start = time.process_time()
    found = percentile_intervals(values, (0.5, 0.9, 0.95, 0.99), users)
    assert time.process_time() - start < 2.5  # 0.4 s on a quiet machine
    assert all(estimate.low is not None for estimate in found)
