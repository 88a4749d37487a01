"""Two samples of runs: ratios, p values and the least error of a difference, worked out by hand."""

import math
import subprocess
import sys
from collections.abc import Sequence
from statistics import NormalDist

import pytest

from enginebench.analysis.stats.repeats import chance_error, holm, within_run_error
from enginebench.analysis.stats.samples import Sample, compare, geometric_mean
from enginebench.records.metrics import THROUGHPUT, TTFT, columns
from enginebench.records.view import Estimate, Missing

COLUMNS = {column.key: column for column in columns("compared")}


def change(
    ours: Sequence[float], theirs: Sequence[float], key: str = THROUGHPUT, step: float = 0.0
) -> tuple[Estimate, float | None]:
    top, bottom = (Sample(tuple(Estimate(value, n=20) for value in values), step) for values in (ours, theirs))
    return compare(COLUMNS[key], top, bottom, paired=False)


def test_shares_are_tested_by_their_difference() -> None:
    difference, p = change((0.02, 0.03, 0.04), (0.0, 0.0, 0.0), "failure_share")
    assert difference.value == pytest.approx(0.03)
    assert p is not None
    least = chance_error((0.02, 0.03, 0.04), (0.0,) * 3, (20,) * 3, (20,) * 3)
    assert p >= 2 * NormalDist().cdf(-0.03 / least) - 1e-9


def test_runs_with_the_same_few_failures_are_no_proof() -> None:
    """One failure of 20 requests in each of three runs, and none in the others: with 1.5 of 60 expected, chance makes
    a standard error of sqrt(0.025 · 0.975 · 2 / 60), although no group of runs varies."""
    least = math.sqrt(0.025 * 0.975 * 2 / 60)
    assert chance_error((0.05,) * 3, (0.0,) * 3, (20,) * 3, (20,) * 3) == pytest.approx(least)
    assert change((0.05,) * 3, (0.0,) * 3, "failure_share")[1] == pytest.approx(0.079, abs=0.001)
    assert chance_error((0.0,) * 3, (1.0,) * 3, (30,) * 3, (30,) * 3) < 0.08, "all against none is certain"


@pytest.mark.parametrize(
    ("ours", "theirs", "value", "missing"),
    [
        pytest.param((math.inf,) * 3, (0.05, 0.051, 0.049), math.inf, None, id="all failed, none of the other"),
        pytest.param((0.05, 0.051, 0.049), (math.inf,) * 3, 0.0, None, id="the reverse"),
        pytest.param((0.0,) * 3, (1.0, 1.1, 0.9), 0.0, None, id="all zero"),
        pytest.param((math.inf,) * 3, (math.inf,) * 3, None, Missing.FAILED, id="all failed of both"),
        pytest.param((math.inf, 1.0, 1.0), (1.0, 1.1, 0.9), None, Missing.FAILED, id="some failed"),
        pytest.param((0.0, 1.0, 1.0), (1.0, 1.1, 0.9), None, Missing.NOT_OBSERVED, id="a run without any"),
        pytest.param((math.inf,), (0.05,), math.inf, Missing.FEW_REPEATS, id="one run each"),
        pytest.param((4.0, 4.2), (2.0, 2.1), pytest.approx(2.0, rel=0.01), Missing.FEW_REPEATS, id="two runs each"),
    ],
)
def test_ratios_without_a_test(
    ours: Sequence[float], theirs: Sequence[float], value: float | None, missing: Missing | None
) -> None:
    ratio, p = change(ours, theirs, f"{TTFT} p95")
    assert (ratio.value, ratio.missing, p) == (value, missing, None)


def test_equal_runs_of_a_coarse_clock_prove_nothing() -> None:
    """Three times 12 ms against three times 13 ms, in whole milliseconds: the difference may be one of rounding."""
    ratio, p = change((0.012,) * 3, (0.013,) * 3, f"{TTFT} p50")
    assert ratio.value == pytest.approx(12 / 13)
    assert p == pytest.approx(0.10, abs=0.02)
    assert change((0.012,) * 3, (0.012,) * 3, f"{TTFT} p50")[1] == 1.0


def test_equal_rates_have_the_error_of_one_request() -> None:
    """A step of 1 ÷ √3 on 12 and 13: relative to the smaller one 4.8 %."""
    assert change((12.0,) * 3, (13.0,) * 3)[1] is None, "without a step nothing is known"
    p = change((12.0,) * 3, (13.0,) * 3, step=1.0)[1]
    assert p == pytest.approx(2 * NormalDist().cdf(-math.log(13 / 12) / (1 / math.sqrt(3) / 12)))


@pytest.mark.parametrize("paired", [False, True])
def test_the_error_inside_the_runs_is_the_least_unless_they_are_pairs(paired: bool) -> None:
    """Intervals of ± 1 ms inside each of three runs: 1 / 1.96 · √(2/3) = 0.417 ms for the difference."""
    ours, theirs = (
        Sample(tuple(Estimate(ms / 1e3, (ms - 1) / 1e3, (ms + 1) / 1e3, 500) for ms in values))
        for values in ((12, 12.01, 12.02), (13, 13.01, 13.02))
    )
    error = math.hypot(within_run_error(ours.estimates), within_run_error(theirs.estimates))
    assert error == pytest.approx(0.001 / 1.96 * math.sqrt(2 / 3), rel=1e-3)
    _, p = compare(COLUMNS[f"{TTFT} p50"], ours, theirs, paired)
    assert p == (pytest.approx(0.0, abs=1e-6) if paired else pytest.approx(0.021, abs=0.002))


def test_runs_without_an_interval_add_nothing_to_the_error_inside_runs() -> None:
    known, error = Estimate(1.0, 0.9, 1.1, 500), 0.1 / 1.96
    assert within_run_error([known]) == pytest.approx(error, rel=1e-4)
    assert within_run_error([known, Estimate(1.0, n=20)]) == pytest.approx(error / 2, rel=1e-4)
    assert within_run_error([known, Estimate(1.0, 0.9, math.inf, 500)]) == pytest.approx(error / math.sqrt(2), rel=1e-4)
    assert within_run_error([Estimate(math.inf, 1.0, math.inf, 500)] * 2) == 0


def test_a_geometric_mean_needs_every_value() -> None:
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([1.0, None]) == geometric_mean([1.0, 0.0]) == geometric_mean([]) == 0.0


def test_holm_by_hand() -> None:
    """Sorted 0.01, 0.02, 0.03: times 3, 2 and 1, and never falling: 0.03, 0.04, 0.04."""
    assert holm([0.03, None, 0.01, 0.02]) == [pytest.approx(0.04), None, pytest.approx(0.03), pytest.approx(0.04)]


def test_comparing_does_not_wait_for_scipys_tests() -> None:
    """Importing `scipy.stats` takes a second."""
    code = "import sys, enginebench.analysis.verdict.comparison; print('scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
