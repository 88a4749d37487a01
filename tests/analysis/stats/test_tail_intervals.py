"""Intervals of tails and shares when requests come in bursts, and when users differ."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter

from enginebench.analysis.arrays import Floats
from enginebench.analysis.stats.intervals import clopper_pearson, share_interval, widest_bounds
from enginebench.records.view import Missing
from tests.support.analysis.draws import percentile_interval
from tests.support.present import present
from validation.statistics import coverage, systems
from validation.statistics.capacity_systems import exponential, hyperexponential


def correlated(rng: np.random.Generator, n: int, rho: float) -> Floats:
    shocks = rng.standard_normal(n + 400)
    return np.asarray(np.exp(lfilter([1], [1, -rho], shocks)[400:]), dtype=np.float64)


def below(latencies: Floats, level: float | None) -> float:
    """The share of requests below a level."""
    assert level is not None
    return float((latencies < level).mean())


def test_bursts_that_were_not_seen_widen_the_side_that_they_would_move() -> None:
    for latencies, q in (
        (correlated(np.random.default_rng(1), 4000, 0.9), 0.95),
        (correlated(np.random.default_rng(1), 1000, 0.95), 0.5),
    ):
        wide = percentile_interval(latencies, q)
        assert below(latencies, wide.high) - q > 1.1 * (q - below(latencies, wide.low))
    independent = np.random.default_rng(1).permutation(latencies)
    narrow = percentile_interval(independent, 0.5)
    assert below(independent, narrow.high) - 0.5 == pytest.approx(0.5 - below(independent, narrow.low), rel=0.1)


def test_a_tail_that_nothing_bounds_has_a_lower_end_all_the_same() -> None:
    """Windows with an upper end only are those that saw few bursts: to show no others would be to choose by luck."""
    latencies = correlated(np.random.default_rng(2), 5000, 0.9)
    found = percentile_interval(latencies, 0.99)
    assert (found.high, found.missing) == (float("inf"), Missing.FEW_REQUESTS)
    assert 0 < present(found.low) < present(found.value) < latencies.max()
    failed = np.where(latencies == latencies.max(), np.inf, latencies)
    assert percentile_interval(failed, 0.99) == replace(found, missing=None), (
        "the upper end is among the failed requests"
    )


@pytest.mark.parametrize(
    ("q", "needed"),
    [
        pytest.param(0.9, 36, id="as many as independent requests must be"),
        pytest.param(0.1, 36, id="the same at the other end"),
        pytest.param(0.95, 72, id="72 for p95"),
        pytest.param(0.99, 90, id="never more than 90"),
    ],
)
def test_the_median_must_be_worth_enough_requests_for_a_tail_to_be_believed(q: float, needed: int) -> None:
    """Correlated over 600 requests: 3 000 of them are worth some 20, which do for a median and for no tail."""
    latencies = correlated(np.random.default_rng(5), 3000, 0.997)
    assert percentile_interval(latencies, 0.5).low is not None
    tail = percentile_interval(latencies, q)
    assert (tail.low, tail.high) == (None, None)
    assert tail.missing is Missing.FEW_REQUESTS
    share = share_interval(latencies <= np.quantile(latencies, q), latencies=latencies)
    assert (share.low, share.missing) == (None, tail.missing)


def test_users_who_differ_must_be_many() -> None:
    """Forty users on four replicas are worth some 70 requests: enough for a median. Five hundred are for any tail."""
    (few,) = systems.pinned(np.random.default_rng(11), 1, users=40, requests=2000)
    assert percentile_interval(few.latency, 0.5, few.user).low is not None
    tail = percentile_interval(few.latency, 0.9, few.user)
    assert tail.low is None
    assert tail.missing is Missing.FEW_REQUESTS
    assert percentile_interval(few.latency, 0.9).low is not None, "without users there are two thousand requests"
    (many,) = systems.pinned(np.random.default_rng(11), 1, users=500, requests=10_000)
    assert percentile_interval(many.latency, 0.99, many.user).low is not None


def test_a_median_that_no_request_bounds_is_withheld() -> None:
    """Three users of three paces are worth less than one request: the median is any of the three. The lower end was
    the median itself, which held in half of all windows."""
    rng = np.random.default_rng(1)
    users = rng.integers(3, size=900)
    latencies = np.array([0.1, 0.2, 0.4])[users] * np.exp(0.3 * rng.standard_normal(900))
    found = percentile_interval(latencies, 0.5, users)
    assert (found.low, found.high, found.missing) == (None, None, Missing.FEW_REQUESTS)
    assert percentile_interval(latencies, 0.5).low is not None, "without users there are nine hundred"


def test_a_share_holds_the_levels_whose_percentiles_hold_the_limit() -> None:
    """The lower end p of the share within a limit is the level whose percentile has the limit as its upper end."""
    latencies = correlated(np.random.default_rng(6), 8000, 0.8)
    limit = float(np.quantile(latencies, 0.93))
    share = share_interval(latencies <= limit, latencies=latencies)
    highest = percentile_interval(latencies, present(share.low)).high
    lowest = percentile_interval(latencies, present(share.high)).low
    assert highest == pytest.approx(limit, rel=0.03)
    assert lowest == pytest.approx(limit, rel=0.03)


def test_a_share_agrees_with_percentiles_where_correlation_fades_in_the_tail() -> None:
    """In a queue of short and long answers, p99 has three times the effective size of p95: the upper end of a share is
    not short of 99 % where the limit lies in the interval of p99."""
    traces = systems.open_queue(
        np.random.default_rng(3), 60, servers=1, requests=5000, gap=exponential, draw=hyperexponential(2.0)
    )
    limit = float(np.quantile(np.concatenate([trace.latency for trace in traces]), 0.99))
    contradictions = 0
    for trace in traces:
        lowest = percentile_interval(trace.latency, 0.99).low
        highest = share_interval(trace.latency <= limit, latencies=trace.latency).high
        contradictions += lowest is not None and highest is not None and lowest <= limit and highest < 0.99
    assert contradictions <= 1


def test_a_share_of_late_requests_is_the_rest_of_those_in_time() -> None:
    latencies = correlated(np.random.default_rng(7), 4000, 0.5)
    within = share_interval(latencies <= 4, latencies=latencies)
    late = share_interval(latencies > 4, latencies=latencies)
    assert late.low == pytest.approx(1 - present(within.high))
    assert late.high == pytest.approx(1 - present(within.low))


def test_a_lucky_window_does_not_shorten_the_interval_of_a_share() -> None:
    """Ten requests within 30 that were late, or one at a time: with the same median, much the same lower end."""
    rng = np.random.default_rng(8)
    latencies = np.minimum(correlated(rng, 6000, 0.9), 40.0)
    lucky = latencies.copy()
    worst = np.argsort(latencies)[-60:]
    lucky[worst] = np.quantile(latencies, 0.98)
    limit = float(np.quantile(latencies, 0.985))
    shown, seen = (share_interval(values <= limit, latencies=values) for values in (lucky, latencies))
    assert present(shown.value) - present(shown.low) > 0.6 * (present(seen.value) - present(seen.low))


def test_failures_that_come_together_are_few() -> None:
    """3 % failed in three stretches: so few effective failures show no share; spread out they do."""
    failed = np.zeros(4000, dtype=bool)
    failed[[*range(500, 540), *range(1300, 1340), *range(3100, 3140)]] = True
    assert share_interval(failed).missing is Missing.FEW_REQUESTS
    apart = share_interval(np.random.default_rng(9).permutation(failed))
    assert 0.022 < present(apart.low) < 0.03 < present(apart.high) < 0.039


def test_bounds_that_hold_where_an_interval_is_withheld() -> None:
    rng = np.random.default_rng(5)
    few = correlated(rng, 3000, 0.997)
    assert percentile_interval(few, 0.95).low is None
    low, high = widest_bounds(0.05, few)
    assert low == pytest.approx(0.025 * 0.05)
    assert 0.5 < high < 0.9, "at most as many as up to the median, which lies above"
    assert widest_bounds(0.05, few)[0] < widest_bounds(0.97, few)[0] < 0.5
    pattern = np.tile([1.0, 1.1, 1.2, 2.0, 1.0], 12)
    assert share_interval(pattern > 1.9, latencies=pattern).missing is Missing.CYCLIC
    assert widest_bounds(0.2, pattern)[1] == pytest.approx(clopper_pearson(0.2, 12)[1])
    assert widest_bounds(0.0, np.ones(5)) == (0.0, 0.975), "Markov: the long run has at most 97.5 % of what never came"


def test_such_bounds_are_wrong_in_no_more_than_a_fortieth_of_windows() -> None:
    """Of four replicas with few users each, and of slow bursts: whether 95 % are within the limit in
    the long run is never denied or affirmed by mistake more often."""
    for name in (
        "AR(1) 0.9, 600 requests",
        "4 pinned replicas, 20 users, 600 requests",
        "20 slow bursts, 3000 requests",
    ):
        traces = coverage.SYSTEMS[name](np.random.default_rng(12), 120)
        pooled = np.concatenate([trace.latency for trace in traces])
        for q in (0.05, 0.5, 0.95):
            limit = float(np.quantile(pooled, q))
            bounds = [widest_bounds(float((each.latency <= limit).mean()), each.latency, each.user) for each in traces]
            wrong = sum(not low <= q <= high for low, high in bounds)
            assert wrong <= 6, f"{name}: {q}"
