"""Ratios and winners from repeated runs."""

import math

import numpy as np
import pytest
import scipy

from enginebench.analysis.stats.repeats import mcnemar, ratio_test, repeats_interval
from enginebench.records.view import Estimate, Missing
from tests.support.present import present


def test_a_ratios_interval_is_welchs_on_logarithms() -> None:
    a, b = [3.0, 3.2, 2.9, 3.1, 3.0], [1.0, 1.1, 0.9, 1.05, 1.0]
    ratio, inverse = ratio_test(a, b, False)[0], ratio_test(b, a, False)[0]
    expected = scipy.stats.ttest_ind(np.log(a), np.log(b), equal_var=False).confidence_interval(0.95)
    assert ratio.low == pytest.approx(math.exp(expected.low))
    assert ratio.high == pytest.approx(math.exp(expected.high))
    welch = scipy.stats.ttest_ind(np.log(a), np.log(b), equal_var=False)
    assert ratio_test(a, b, False)[1] == pytest.approx(welch.pvalue)
    of_pairs = scipy.stats.ttest_rel(np.log(a), np.log(b))
    paired, p = ratio_test(a, b, True)
    assert p == pytest.approx(of_pairs.pvalue)
    assert paired.high == pytest.approx(math.exp(of_pairs.confidence_interval(0.95).high))
    assert present(ratio.value) == pytest.approx(1 / (inverse.value or 0))
    assert inverse.low == pytest.approx(1 / present(ratio.high))


def test_paired_runs_cancel_what_their_repeats_share() -> None:
    drift = np.array([1.0, 1.3, 0.8, 1.1, 0.9])
    a, b = (1.1 * drift * [1.0, 1.01, 0.99, 1.0, 1.0]).tolist(), drift.tolist()
    assert ratio_test(a, b, True)[0].low == pytest.approx(1.1, rel=0.02)
    unpaired = ratio_test(a, b, False)[0]
    assert present(unpaired.low) < 0.9


def test_two_runs_have_no_interval() -> None:
    assert repeats_interval([1.0, 2.0]) == Estimate(1.5, n=2, missing=Missing.FEW_REPEATS)
    expected = scipy.stats.t.interval(0.95, 2, 2.0, scipy.stats.sem([1.0, 2.0, 3.0]))
    found = repeats_interval([1.0, 2.0, 3.0])
    assert found.low == 0.0, "no duration is below 0"
    assert found.high == pytest.approx(expected[1])
    assert expected[0] == pytest.approx(-0.484, abs=0.001)
    assert repeats_interval([2.0] * 3) == Estimate(2.0, n=3, missing=Missing.FEW_REPEATS)
    floored = repeats_interval([2.0] * 3, min_error=0.1)
    assert floored.low == pytest.approx(2 - 0.196, abs=1e-4)
    assert floored.high == pytest.approx(2 + 0.196, abs=1e-4)
    assert repeats_interval([2.0, 2.1, 2.2]).low == pytest.approx(2.1 - 0.1 / 3**0.5 * 4.3027, abs=1e-4)


@pytest.mark.parametrize(
    ("lost", "gained", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (3, 3, 1.0), (5, 1, 0.21875), (10, 0, 2 / 1024), (0, 10, 2 / 1024)],
)
def test_mcnemars_test_is_exact_and_two_sided(lost: int, gained: int, p: float) -> None:
    assert mcnemar(lost, gained) == pytest.approx(p)
