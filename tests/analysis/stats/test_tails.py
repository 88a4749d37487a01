"""What is believed of a tail when requests come in bursts, and when users differ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.signal import lfilter

from analysis.stats.dependence import user_codes
from analysis.stats.estimate import Floats
from analysis.stats.intervals import share_interval
from analysis.stats.tails import Sample, Worth, least_of_median
from tests.support.analysis.draws import percentile_interval
from validation.statistics import systems
from validation.statistics.capacity_systems import exponential, hyperexponential


def correlated(rng: np.random.Generator, n: int, rho: float) -> Floats:
    shocks = rng.standard_normal(n + 400)
    return np.asarray(np.exp(lfilter([1], [1, -rho], shocks)[400:]), dtype=np.float64)


def sample(values: Floats) -> Sample:
    return Sample(values, np.sort(values), None)


@pytest.mark.parametrize(
    ("q", "least"),
    [
        pytest.param(0.9, 30, id="a third of 90"),
        pytest.param(0.1, 30, id="the same at the other end"),
        pytest.param(0.95, 172 / 3, id="a third of 172"),
        pytest.param(0.99, 75, id="never more than 75"),
    ],
)
def test_the_median_must_be_worth_enough_requests_for_a_tail_to_be_believed(q: float, least: int) -> None:
    assert least_of_median(q, 10_000) == pytest.approx(least)
    assert least_of_median(q, 60) == 20  # independent requests: a third of them


def test_bursts_that_were_not_seen_widen_the_side_that_they_would_move() -> None:
    assert Worth(1000, 600, 600, 40).unseen(200) == 1.0  # hardly correlated
    assert Worth(3000, 300, 300, 40).unseen(150) == pytest.approx(1 + 0.8 / 2)
    latencies = correlated(np.random.default_rng(1), 4000, 0.9)
    tail = sample(latencies)
    error = tail.error(0.95)
    assert error is not None
    below, above = tail.limits(0.95, error)
    assert above - 0.95 > 1.15 * (0.95 - below)
    few = sample(correlated(np.random.default_rng(1), 1000, 0.95))
    error = few.error(0.5)
    assert error is not None
    below, above = few.limits(0.5, error)
    assert above - 0.5 > 1.1 * (0.5 - below), "with so few effective requests, those of the median too"


def test_a_tail_that_nothing_bounds_has_a_lower_end_all_the_same() -> None:
    """Windows with an upper end only are those that saw few bursts: to show no others would be to choose by luck."""
    latencies = correlated(np.random.default_rng(2), 5000, 0.9)
    found = percentile_interval(latencies, 0.99)
    assert found.unbounded
    assert found.high == float("inf")
    assert found.low is not None
    assert found.value is not None
    assert 0 < found.low < found.value < latencies.max()
    tail = sample(latencies)
    error = tail.error(0.99)
    assert error is not None
    below, _ = tail.limits(0.99, error)
    assert found.low > tail.ascending[round(below * 5000)], "the only end takes part of the other's error"
    failed = np.where(latencies == latencies.max(), np.inf, latencies)
    assert percentile_interval(failed, 0.99) == replace(found, why=None), "the upper end is among the failed requests"


def test_users_who_differ_are_the_samples() -> None:
    assert Worth(3000, 1000, 400, 40).of_users == 400
    assert Worth(3000, 1000, 900, 40).of_users == float("inf")
    assert Worth(3000, 500, 440, 40).of_users == 440  # in queues less will do to call them different
    assert Worth(3000, 1000, 620, 40).of_users == 620
    assert Worth(3000, 1000, 620, 8).of_users == float("inf"), "eight users may differ so much by chance"


def test_six_hundred_effective_requests_by_user_do_for_any_tail() -> None:
    """Five hundred users on four replicas: the median is worth some 900 requests by user, and p99 is shown."""
    (trace,) = systems.pinned(np.random.default_rng(11), 1, users=500, requests=10_000)
    found = Sample(trace.latency, np.sort(trace.latency), user_codes(trace.user))
    assert 600 < found.bulk.of_users < 936
    assert percentile_interval(trace.latency, 0.99, trace.user).low is not None


def test_a_median_that_no_request_bounds_is_withheld() -> None:
    """Three users of three paces are worth less than one request: the median is any of the three. The lower end was
    the median itself, which held in half of all windows."""
    rng = np.random.default_rng(1)
    users = rng.integers(3, size=900)
    latencies = np.array([0.1, 0.2, 0.4])[users] * np.exp(0.3 * rng.standard_normal(900))
    found = percentile_interval(latencies, 0.5, users)
    assert (found.low, found.high, found.why) == (None, None, "≈0 < 6")
    assert percentile_interval(latencies, 0.5).low is not None, "without users there are nine hundred"


def test_a_tail_of_few_long_bursts_is_withheld() -> None:
    """Correlated over 66 requests: 3 000 of them are worth some 40, which do for a median and not for a p99."""
    latencies = correlated(np.random.default_rng(5), 3000, 0.97)
    assert percentile_interval(latencies, 0.5).low is not None
    assert percentile_interval(latencies, 0.99).low is None
    share = share_interval(latencies <= np.quantile(latencies, 0.99), latencies=latencies)
    assert share.low is None
    assert share.why is not None
    assert share.why.endswith("< 75")


def test_a_share_excludes_no_level_whose_percentile_is_not_believed() -> None:
    """All late requests of a window came in one burst or two: that says little of the share in the long run."""
    latencies = correlated(np.random.default_rng(5), 1000, 0.97)
    assert sample(latencies).bulk.along_time < least_of_median(0.95, 1000)
    limit = float(np.quantile(latencies, 0.85))
    share = share_interval(latencies <= limit, latencies=latencies)
    assert share.low is not None
    assert share.high == 1.0


def test_a_share_holds_the_levels_whose_percentiles_hold_the_limit() -> None:
    """The lower end p of the share within a limit is the level whose percentile has the limit as its upper end."""
    latencies = correlated(np.random.default_rng(6), 8000, 0.8)
    limit = float(np.quantile(latencies, 0.93))
    share = share_interval(latencies <= limit, latencies=latencies)
    assert share.low is not None
    assert share.high is not None
    highest = percentile_interval(latencies, share.low).high
    lowest = percentile_interval(latencies, share.high).low
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
    assert within.low is not None
    assert within.high is not None
    assert late.low == pytest.approx(1 - within.high)
    assert late.high == pytest.approx(1 - within.low)


def test_a_lucky_window_does_not_shorten_the_interval_of_a_share() -> None:
    """Ten requests within 30 that were late, or one at a time: with the same median, much the same lower end."""
    rng = np.random.default_rng(8)
    latencies = np.minimum(correlated(rng, 6000, 0.9), 40.0)
    lucky = latencies.copy()
    worst = np.argsort(latencies)[-60:]
    lucky[worst] = np.quantile(latencies, 0.98)
    limit = float(np.quantile(latencies, 0.985))
    shown, seen = (share_interval(values <= limit, latencies=values) for values in (lucky, latencies))
    assert shown.low is not None
    assert seen.low is not None
    assert shown.value is not None
    assert seen.value is not None
    assert shown.value - shown.low > 0.6 * (seen.value - seen.low)


def test_failures_that_come_together_are_few() -> None:
    """3 % failed in three stretches: so few effective failures show no share; spread out they do."""
    failed = np.zeros(4000, dtype=bool)
    failed[[*range(500, 540), *range(1300, 1340), *range(3100, 3140)]] = True
    assert share_interval(failed).why == "≈3 < 15 effective hits"
    apart = share_interval(np.random.default_rng(9).permutation(failed))
    assert apart.low is not None
    assert apart.high is not None
    assert 0.022 < apart.low < 0.03 < apart.high < 0.039


def test_users_in_queues_of_their_own_need_hundreds_of_users() -> None:
    """Forty users on two replicas whose latencies wander slowly and apart."""
    rng = np.random.default_rng(10)
    users = rng.integers(40, size=6000)
    slow = np.where(users % 2 == 0, 1.0, 3.0) * np.where(users % 2 == 0, *(correlated(rng, 6000, 0.95) for _ in "ab"))
    found = percentile_interval(slow, 0.5, users)
    assert found.low is None
    assert found.why is not None
    assert found.why.endswith("< 300")
    assert percentile_interval(slow, 0.5).low is not None
