"""Two groups of runs: tests, effect sizes and spreads against values worked out by hand or by definition."""

from __future__ import annotations

import math
import subprocess
import sys
from statistics import NormalDist

import pytest
from scipy import stats

from enginebench.analysis.stats.differences import compare_runs, spread
from enginebench.analysis.stats.repeats import chance_error, holm, within_run_error
from enginebench.records.view import Estimate

OURS, THEIRS = (12.0, 14.0, 13.0, 15.0, 16.0), (10.0, 11.0, 10.0, 12.0, 12.0)


def test_a_spread_by_hand() -> None:
    """Median 14, deviations 2, 1, 0, 1, 2: MAD 1. Variance (4 + 1 + 0 + 1 + 4) / 4 = 2.5."""
    found = spread(OURS)
    assert (found.n, found.mean, found.median, found.mad, found.least, found.largest) == (5, 14, 14, 1, 12, 16)
    assert found.deviation == pytest.approx(math.sqrt(2.5))
    assert found.outliers == ()


@pytest.mark.parametrize(
    ("runs", "outliers"),
    [
        pytest.param((10.0, 11.0, 12.0, 13.0, 30.0), (30.0,), id="3.5 · 1.4826 · 1 = 5.2 from the median 12"),
        pytest.param((10.0, 11.0, 12.0, 13.0, 17.0), (), id="5 from the median is not"),
        pytest.param((5.0, 5.0, 5.0, 5.0, 6.0), (6.0,), id="MAD 0: 1 > 3.5 · 1.2533 · 0.2"),
        pytest.param((5.0, 5.0, 5.0, 5.0, 5.0), (), id="all equal"),
        pytest.param((399.0, 400.0, 400.0, 400.0), (), id="four runs have no outlier: chance alone would have one"),
    ],
)
def test_outliers_are_flagged_and_stay_in_the_mean(runs: tuple[float, ...], outliers: tuple[float, ...]) -> None:
    found = spread(runs)
    assert found.outliers == outliers
    assert found.mean == pytest.approx(sum(runs) / len(runs))


def test_equal_runs_have_no_spread() -> None:
    """The rounding of their mean is not one: 0.0303 s three times had a deviation of 4e-18 s."""
    assert (spread((0.0303,) * 3).deviation, spread((0.0303,) * 3).mean) == (0.0, 0.0303)
    assert spread((0.0303,)).deviation is None


def test_welch_and_the_effect_sizes_by_hand() -> None:
    """Means 14 and 11, variances 2.5 and 1: t = 3 / sqrt(0.7), pooled deviation sqrt(1.75)."""
    found = compare_runs(OURS, THEIRS, paired=False, relative=True)
    assert found.difference.value == pytest.approx(3)
    freedom = 0.7**2 / (0.5**2 / 4 + 0.2**2 / 4)
    half = stats.t.ppf(0.975, freedom) * math.sqrt(0.7)
    assert found.difference.low == pytest.approx(3 - half)
    assert found.difference.high == pytest.approx(3 + half)
    assert found.welch == pytest.approx(2 * stats.t.sf(3 / math.sqrt(0.7), freedom))
    assert found.cohen_d == pytest.approx(3 / math.sqrt(1.75))
    assert found.cliff_delta == pytest.approx(23 / 25)  # 12 is tied with both twelves
    assert found.ratio.value == pytest.approx(math.exp((sum(map(math.log, OURS)) - sum(map(math.log, THEIRS))) / 5))


def test_mann_whitney_of_groups_that_do_not_overlap() -> None:
    """Of the C(10, 5) = 252 orders two are as extreme."""
    found = compare_runs((6.0, 7.0, 8.0, 9.0, 10.0), (1.0, 2.0, 3.0, 4.0, 5.0), paired=False, relative=True)
    assert found.mann_whitney == pytest.approx(2 / 252)
    assert found.cliff_delta == 1


def test_mann_whitney_waits_for_scipys_tests_only_where_it_is_asked_for() -> None:
    """Importing `scipy.stats` takes a second."""
    modules = "enginebench.analysis.report.page, enginebench.analysis.compare.comparison"
    code = f"import sys, {modules}; print('scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_percentiles_among_failures_are_tied() -> None:
    """Of nine pairs three have the larger value first, four the smaller one, and two are infinite both."""
    inf = math.inf
    found = compare_runs((inf, 1.0, 1.0), (inf, inf, 0.5), paired=False, relative=True)
    assert found.cliff_delta == pytest.approx(-1 / 9)
    assert (found.ratio.value, found.p, found.failed) == (None, None, None)
    assert found.ratio.why == "among the failed requests in some of the runs"


def test_a_percentile_that_failed_in_all_runs_is_worse_than_any_number() -> None:
    """p99 of ours fell among failed requests in each run, that of theirs is 50 ms: no test, and no doubt."""
    failed, good = (math.inf,) * 3, (0.05, 0.051, 0.049)
    ours = compare_runs(failed, good, paired=False, relative=True)
    assert (ours.failed, ours.p) == ("ours", None)
    assert (ours.ratio.value, ours.ratio.low, ours.ratio.high) == (math.inf, math.inf, math.inf)
    assert (ours.difference.low, ours.cliff_delta, ours.cohen_d) == (math.inf, 1, None)
    assert ours.mann_whitney == pytest.approx(stats.mannwhitneyu(failed, good).pvalue)
    theirs = compare_runs(good, failed, paired=True, relative=True)
    assert (theirs.failed, theirs.p) == ("theirs", None)
    assert (theirs.ratio.value, theirs.ratio.high, theirs.difference.value) == (0, 0, -math.inf)
    both = compare_runs(failed, failed, paired=False, relative=True)
    assert (both.failed, both.ratio.value) == (None, None)
    assert both.ratio.why == "among the failed requests in all runs of both"
    few = compare_runs(failed[:1], good[:1], paired=False, relative=True)
    assert (few.ratio.value, few.failed, few.ratio.why) == (math.inf, None, "1 < 3 repeats")


def test_pairs_take_out_what_a_repeat_does_to_both() -> None:
    ours, theirs = (11.0, 21.5, 32.0, 43.0), (10.0, 20.0, 30.0, 40.0)
    alone, together = (compare_runs(ours, theirs, paired, relative=True) for paired in (False, True))
    assert alone.p is not None
    assert together.p is not None
    assert alone.p > 0.5 > 0.05 > together.p
    assert together.welch == alone.welch, "Welch's test is of independent groups whatever decides"


def test_shares_are_tested_by_their_difference() -> None:
    found = compare_runs((0.02, 0.03, 0.04), (0.0, 0.0, 0.0), paired=False, relative=False)
    assert found.ratio.value is None
    assert found.difference.value == pytest.approx(0.03)
    assert found.p == pytest.approx(found.welch)


def test_runs_with_the_same_few_failures_are_no_proof() -> None:
    """One failure of 20 requests in each of three runs, and none in the others: with 1.5 of 60 expected, chance makes
    a standard error of sqrt(0.025 · 0.975 · 2 / 60), although no group of runs varies."""
    least = chance_error((0.05,) * 3, (0.0,) * 3, (20,) * 3, (20,) * 3)
    assert least == pytest.approx(math.sqrt(0.025 * 0.975 * 2 / 60))
    found = compare_runs((0.05,) * 3, (0.0,) * 3, paired=False, relative=False, least_error=least)
    assert found.p == pytest.approx(2 * NormalDist().cdf(-0.05 / least))
    assert found.p == pytest.approx(0.079, abs=0.001)
    assert chance_error((0.0,) * 3, (1.0,) * 3, (30,) * 3, (30,) * 3) < 0.08, "all against none is certain"


def test_few_runs_have_numbers_and_no_tests() -> None:
    found = compare_runs((4.0, 4.2), (2.0, 2.1), paired=False, relative=True)
    assert found.ratio.value == pytest.approx(2)
    assert (found.p, found.welch, found.mann_whitney, found.cohen_d) == (None, None, None, None)
    assert found.difference.why == "2 < 3 repeats"


def test_runs_that_do_not_vary_prove_nothing_by_themselves() -> None:
    """Three times 12 ms against three times 13 ms, in whole milliseconds: the difference may be one of rounding."""
    found = compare_runs((0.012,) * 3, (0.013,) * 3, paired=False, relative=True)
    assert found.ratio.value == pytest.approx(12 / 13)
    assert (found.ratio.low, found.ratio.high, found.p, found.cohen_d) == (None, None, None, None)
    assert found.ratio.why == found.difference.why == "no spread from run to run"
    same = compare_runs((1.0,) * 3, (1.0,) * 3, paired=True, relative=True)
    assert (same.ratio.value, same.ratio.low, same.p) == (1, None, 1)


@pytest.mark.parametrize("paired", [False, True])
def test_what_varies_inside_the_runs_is_the_least_error(paired: bool) -> None:
    """Intervals of ± 1 ms inside each of three runs: 1 / 1.96 · √(2/3) = 0.417 ms for the difference."""
    ours, theirs = ([Estimate(ms / 1e3, (ms - 1) / 1e3, (ms + 1) / 1e3, 500)] * 3 for ms in (12, 13))
    error = math.hypot(within_run_error(ours), within_run_error(theirs))
    assert error == pytest.approx(0.001 / 1.96 * math.sqrt(2 / 3), rel=1e-4)
    found = compare_runs((0.012,) * 3, (0.013,) * 3, paired, relative=True, least_error=error)
    relative = error / 0.012
    assert found.p == pytest.approx(2 * NormalDist().cdf(-math.log(13 / 12) / relative))
    assert found.p == pytest.approx(0.021, abs=0.001)
    assert found.ratio.low == pytest.approx(12 / 13 * math.exp(-1.96 * relative), rel=1e-4)
    assert found.difference.high == pytest.approx(-0.001 + 1.96 * error, rel=1e-4)
    apart = compare_runs((0.010, 0.012, 0.014), (0.013, 0.015, 0.011), paired, True, least_error=error)
    assert apart.p == compare_runs((0.010, 0.012, 0.014), (0.013, 0.015, 0.011), paired, True).p, "it is a floor"


def test_what_is_known_of_the_error_inside_the_runs_is_the_least_there_is() -> None:
    known, error = Estimate(1.0, 0.9, 1.1, 500), 0.1 / 1.96
    assert within_run_error([known]) == pytest.approx(error, rel=1e-4)
    assert within_run_error([known, Estimate(1.0, why="20 < 36")]) == pytest.approx(error / 2, rel=1e-4)
    assert within_run_error([known, Estimate(1.0, 0.9, math.inf, 500)]) == pytest.approx(error / math.sqrt(2), rel=1e-4)
    assert within_run_error([Estimate(math.inf, 1.0, math.inf, 500)] * 2) == 0


def test_holm_by_hand() -> None:
    """Sorted 0.01, 0.02, 0.03: times 3, 2 and 1, and never falling: 0.03, 0.04, 0.04."""
    assert holm([0.03, None, 0.01, 0.02]) == [pytest.approx(0.04), None, pytest.approx(0.03), pytest.approx(0.04)]
