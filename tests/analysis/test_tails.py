"""What is believed of a tail when requests come in bursts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from analysis.verdict.statistics import percentile_interval, share_interval
from analysis.verdict.statistics.tails import Bulk


@pytest.mark.parametrize(
    ("q", "least"),
    [
        pytest.param(0.9, 240, id="90 for the percentile, and 150"),
        pytest.param(0.95, 322, id="172 and 150"),
        pytest.param(0.99, 468, id="never more than p99 needs"),
        pytest.param(0.999, 468, id="nor for p99.9"),
    ],
)
def test_the_median_must_be_worth_enough_requests_for_a_tail_to_be_believed(q: float, least: int) -> None:
    assert Bulk(10_000, 300, 300).least(q) == least
    assert Bulk(600, 500, 500).least(q) == 200  # independent requests: a third of them


def test_bursts_that_were_not_seen_widen_a_tail() -> None:
    assert Bulk(1000, 600, 600).unseen(0.95) == 1.0  # hardly correlated
    assert Bulk(3000, 300, 300).unseen(0.95) == pytest.approx(1 + 0.5 * 0.8 * 172 / 300)


def test_users_who_differ_limit_a_tail_to_half_of_what_they_are_worth() -> None:
    assert Bulk(3000, 1000, 400).of_users == 200
    assert Bulk(3000, 1000, 900).of_users == float("inf")


def test_a_tail_of_few_long_bursts_is_withheld() -> None:
    """Correlated over 66 requests: 12 000 of them are worth some 150, which do for a median and not for a p90."""
    shocks = np.random.default_rng(5).standard_normal(12_400)
    latencies = np.exp(lfilter([1], [1, -0.97], shocks)[400:])
    assert percentile_interval(latencies, 0.5).low is not None
    tail = percentile_interval(latencies, 0.9)
    assert tail.low is None
    assert tail.why is not None
    assert tail.why.endswith("< 240")
    share = share_interval(latencies <= np.quantile(latencies, 0.9), latencies=latencies)
    assert share.low is None
    assert share.why is not None
    assert share.why.endswith("< 240")
