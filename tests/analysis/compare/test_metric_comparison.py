"""One metric of one engine against another's: numbers worked out by hand, floors of error, corrections, verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from enginebench.analysis.compare.metric_comparison import (
    MetricComparison,
    Sample,
    compare_metric,
    corrected,
    judged,
    ranked,
    sample_of,
)
from enginebench.records.metrics import Column, columns
from enginebench.records.view import Estimate
from tests.support.analysis.compared import engine_of

COLUMNS = {column.key: column for column in columns("compared")}
LATENCY, RATE, SHARE = COLUMNS["ttft p50"], COLUMNS["throughput"], COLUMNS["failure_share"]


def sample(engine: str, values: Sequence[float], half: float = 0.0, n: int = 10_000, step: float = 0.0) -> Sample:
    """`half` is half the width of each run's own interval."""
    known = [Estimate(value, value - half, value + half, n) if half else Estimate(value, n=n) for value in values]
    return Sample(engine, tuple(known), step)


def compared(
    ours: Sequence[float], theirs: Sequence[float], column: Column = LATENCY, paired: bool = False, **changes: float
) -> MetricComparison:
    sides = (sample(label, values, **changes) for label, values in (("a", ours), ("b", theirs)))  # type: ignore[arg-type]
    comparison = compare_metric("8 users", column, next(sides), next(sides), paired)
    assert comparison is not None
    return judged(comparison, 1.05)


def test_above_1_is_better_for_latencies_and_for_rates() -> None:
    """Half of the latency, and twice the tokens."""
    faster = compared((0.05, 0.051, 0.049), (0.1, 0.102, 0.098))
    assert faster.ratio.value == pytest.approx(2, rel=1e-3)
    assert faster.verdict == "better"
    assert faster.difference.value == pytest.approx(-0.05)
    assert faster.worse.value == pytest.approx(-0.5, rel=1e-3)
    assert faster.cliff_delta == -1
    more = compared((200.0, 204, 196), (100.0, 102, 98), RATE)
    assert more.ratio.value == pytest.approx(2, rel=1e-3)
    assert more.verdict == "better"
    assert more.worse.value == pytest.approx(-1, rel=1e-3)


def test_pairs_cancel_what_a_repeat_does_to_both() -> None:
    """100, 110, 121 against 50, 55.5, 60: ratios of 2, 1.98 and 2.02, and means of 110⅓ and 55⅙."""
    comparison = compared((100.0, 110, 121), (50.0, 55.5, 60), RATE, paired=True)
    assert comparison.ratio.value == pytest.approx(2, rel=1e-3)
    assert comparison.ratio.low == pytest.approx(1.95, abs=0.01)
    assert (comparison.ours.mean, comparison.ours.median, comparison.ours.least) == pytest.approx((331 / 3, 110, 100))
    assert compared((100.0, 110, 121), (50.0, 55.5, 60), RATE).ratio.low == pytest.approx(1.61, abs=0.03)


def test_reversed_is_the_comparison_the_other_way_round() -> None:
    forward = compared((0.05, 0.052, 0.049), (0.1, 0.102, 0.098))
    backward = compared((0.1, 0.102, 0.098), (0.05, 0.052, 0.049))
    turned = forward.reversed
    assert (turned.engine, turned.over, turned.verdict) == ("b", "a", "worse")
    assert turned.p == pytest.approx(backward.p)
    for part in ("ratio", "difference"):
        ours, theirs = getattr(turned, part), getattr(backward, part)
        assert (ours.value, ours.low, ours.high) == pytest.approx((theirs.value, theirs.low, theirs.high))
    assert forward.cohen_d is not None
    assert turned.cohen_d == pytest.approx(-forward.cohen_d)
    assert turned.cliff_delta == 1


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        pytest.param((120.0, 121, 119), "better", id="20 % more, 1 % between runs"),
        pytest.param((80.0, 81, 79), "worse", id="20 % less"),
        pytest.param((101.0, 100, 100.5), "alike", id="within the margin for certain"),
        pytest.param((107.0, 90, 110), "not shown", id="may be chance"),
        pytest.param((102.0, 102.5, 101.5), "alike", id="certain, and below the margin"),
    ],
)
def test_the_rule_of_the_verdict(ours: tuple[float, ...], verdict: str) -> None:
    assert compared(ours, (100.0, 100.5, 99.5), RATE).verdict == verdict


def test_nothing_is_claimed_of_what_must_not_be_compared() -> None:
    comparison = compared((120.0, 121, 119), (100.0, 100.5, 99.5), RATE)
    assert judged(comparison, 1.05, "the models differ").verdict == "not shown"
    assert judged(comparison, 1.05, "the models differ").why == "the models differ"


def test_differences_of_shares_are_points() -> None:
    """Failures of 6 %, 8 % and 10 % against 1 %, 2 % and 3 %: 5, 6 and 7 points more, 6 ± 4.303 · 1/√3."""
    paired = compared((0.06, 0.08, 0.10), (0.01, 0.02, 0.03), SHARE, paired=True)
    assert (paired.difference.value, paired.difference.low) == pytest.approx(
        (0.06, 0.06 - 4.303 / 100 / 3**0.5), rel=1e-3
    )
    assert paired.verdict == "worse"
    assert paired.worse.value == pytest.approx(0.06)
    wild = compared((0.0, 0.9, 1.0), (0.01, 0.02, 0.03), SHARE, paired=True)
    assert wild.difference.low == pytest.approx(-0.732, abs=1e-3)
    assert wild.difference.high == 1


@pytest.mark.parametrize(("points", "verdict"), [(0.051, "worse"), (0.049, "alike")])
def test_the_margin_of_a_share_is_one_of_points_in_both_directions(points: float, verdict: str) -> None:
    ours = tuple(0.1 + points + noise for noise in (0.0, 1e-4, -1e-4))
    theirs = (0.1, 0.1001, 0.0999)
    assert compared(ours, theirs, SHARE, n=10**7).verdict == verdict
    assert compared(theirs, ours, SHARE, n=10**7).verdict == {"worse": "better"}.get(verdict, verdict)


@pytest.mark.parametrize(("requests", "verdict"), [(20, "not shown"), (1000, "worse")])
def test_the_same_few_failures_in_every_run_may_be_chance(requests: int, verdict: str) -> None:
    """6 % in each of three runs is one failure of 20, or 60 of 1 000."""
    assert compared((0.06,) * 3, (0.0,) * 3, SHARE, n=requests).verdict == verdict


def test_three_times_12_ms_against_three_times_13_ms_is_not_better() -> None:
    """A spread of zero is no certainty: such durations were rounded, and one step of the clock may be rounding."""
    for paired in (False, True):
        comparison = compared((0.012,) * 3, (0.013,) * 3, paired=paired)
        assert comparison.verdict == "not shown"
        assert comparison.p == pytest.approx(0.096, abs=0.001), "log(13/12) over 1/√3 of 12 ms: normal"
        assert comparison.ratio.low is not None
        assert comparison.ratio.low < 1 < (comparison.ratio.high or 0)
    assert compared((0.012,) * 3, (0.012, 0.012, 0.013)).verdict == "not shown"
    assert compared((0.012, 0.012, 0.011), (0.018, 0.018, 0.017)).verdict == "better", "six steps are no rounding"


def test_durations_far_apart_on_a_clock_are_told_from_rounding() -> None:
    """With one value a side the clock is unknown: it is taken to be no coarser than 0.4 of the smaller value."""
    assert compared((0.010,) * 3, (0.030,) * 3).verdict == "better"


def test_the_error_is_at_least_that_inside_the_runs() -> None:
    """Runs of 12 and 13 ms that agree to a microsecond, each known to ± 1 ms: 1 ms over √(2/3) · 0.51 ms."""
    ours, theirs = (0.012, 0.012001, 0.011999), (0.013, 0.013001, 0.012999)
    assert compared(ours, theirs).verdict == "better"
    wide = compared(ours, theirs, half=0.001)
    assert wide.p == pytest.approx(0.0211, abs=0.001)
    assert wide.difference.high == pytest.approx(-0.001 + 1.96 * 0.51e-3 * math.sqrt(2 / 3), rel=0.01)
    paired = compared(ours, theirs, half=0.001, paired=True)
    assert paired.p is not None
    assert paired.p < 0.001, "pairs of the same prompts share what differs inside the runs"


def test_a_floor_never_makes_an_interval_narrower() -> None:
    """Three runs that scatter nearly as little as their own errors keep Student's t with few degrees of freedom."""
    ours, theirs = (0.1, 0.101, 0.099), (0.11, 0.111, 0.109)
    without, floored = compared(ours, theirs), compared(ours, theirs, half=0.0021)
    assert floored.p is not None
    assert without.p is not None
    assert floored.p >= without.p
    assert floored.difference.low == pytest.approx(without.difference.low)


def test_a_rate_is_known_to_one_request_of_its_window() -> None:
    """115 requests against 100 in every run: 1.15 times, and not 1.150 [1.150, 1.150]."""
    ours, theirs = sample("a", (1.15,) * 3, step=0.01), sample("b", (1.0,) * 3, step=0.01)
    comparison = compare_metric("8 users", RATE, ours, theirs, True)
    assert comparison is not None
    assert comparison.ratio.low == pytest.approx(1.137, abs=0.003)
    assert comparison.ratio.high == pytest.approx(1.163, abs=0.003)
    engine = engine_of("a", throughput=(200.0, 210.0))
    assert sample_of(engine, "8 users", RATE).step == pytest.approx(205 / 10_000)
    assert sample_of(engine, "8 users", SHARE).step == 0


def test_runs_without_any_spread_or_error_claim_nothing() -> None:
    comparison = compared((2.0, 2.0, 2.0), (1.0, 1.0, 1.0), RATE)
    assert (comparison.p, comparison.ratio.low, comparison.verdict) == (None, None, "not shown")
    assert comparison.why == "no spread from run to run"
    assert compared((2.0,) * 3, (2.0,) * 3, RATE).verdict == "alike"


def test_failing_in_every_run_is_worse_and_needs_no_test() -> None:
    """p99 failed in all runs against 50 ms."""
    failed, fine = (math.inf,) * 3, (0.05, 0.051, 0.049)
    assert (compared(failed, fine).verdict, compared(failed, fine).ratio.value) == ("worse", 0)
    assert compared(failed, fine).worse.value == math.inf
    assert (compared(fine, failed).verdict, compared(fine, failed).ratio.value) == ("better", math.inf)
    assert compared(failed, fine).reversed.verdict == "better"
    some = compared((math.inf, 0.05, 0.05), fine)
    assert (some.verdict, some.why) == ("not shown", "it fell among failures in 1 of 3 runs of a")
    assert (some.failed_runs, some.reversed.failed_runs) == ((1, 0), (0, 1))
    assert compared(failed, failed).verdict == "not shown"
    assert compared(failed[:2], fine[:2]).verdict == "not shown", "a claim needs three runs"


def test_serving_nothing_in_every_run_is_worse() -> None:
    assert compared((0.0,) * 3, (100.0, 101, 99), RATE).verdict == "worse"
    assert compared((100.0, 101, 99), (0.0,) * 3, RATE).verdict == "better"


def test_what_a_run_lacks_is_not_compared() -> None:
    ours = Sample("a", (Estimate(1.0), Estimate(None), Estimate(1.0)))
    assert compare_metric("8 users", LATENCY, ours, sample("b", (1.0, 1, 1)), False) is None
    assert compare_metric("8 users", LATENCY, Sample("a", ()), Sample("b", ()), False) is None


def test_one_run_each_claims_nothing() -> None:
    comparison = compared((1.0,), (2.0,))
    assert (comparison.p, comparison.verdict, comparison.why) == (None, "not shown", "1 < 3 repeats")


def test_p_is_corrected_within_the_deciding_metric_and_within_all_others() -> None:
    """A constant number is no test, and so does not make the others' p larger."""
    noisy = compared((109.0, 113, 110), (100.0, 101, 99), RATE)
    other, constant = compared((0.1, 0.105, 0.11), (0.12, 0.121, 0.123)), compared((0.0,) * 3, (0.0,) * 3, SHARE)
    first, second, third, fourth = corrected([noisy, other, other, constant], first="throughput")
    assert first.p == noisy.p
    assert other.p is not None
    assert second.p == third.p == pytest.approx(2 * other.p)
    assert fourth.p == 1
    assert [each.p for each in corrected([noisy, constant])] == [noisy.p, 1]


def test_the_best_of_several_against_each_other() -> None:
    rates = {"slow": (100.0, 101, 99), "fast": (200.0, 202, 198), "middle": (150.0, 151, 149)}
    leads = ranked(RATE, [sample(label, values) for label, values in rates.items()], False, 1.05)
    assert [(lead.engine, lead.over, lead.verdict) for lead in leads] == [
        ("fast", "middle", "better"),
        ("fast", "slow", "better"),
    ]
