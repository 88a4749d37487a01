"""t tests that share what they know of their variances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from enginebench.analysis.arrays import Floats
from enginebench.analysis.stats.moderated import CAUTION, moderated_tests

LEVEL = 0.02 / 36  # of one check among 36


def p_values(ours: Floats, theirs: Floats) -> Floats:
    return moderated_tests(ours, theirs)[0]


def runs(seed: int, spread: float | Floats, tests: int = 36, n: int = 3) -> Floats:
    return np.asarray(np.random.default_rng(seed).standard_normal((tests, n)) * np.reshape(spread, (-1, 1)))


def found(spread: float, other: float | None = None, worse: float = 0.0) -> tuple[float, float]:
    """The share of tests whose p lies below the level, of ours and of Welch's."""
    ours, welch = [], []
    for seed in range(150):
        one, two = runs(seed, spread) + worse, runs(seed + 10_000, spread if other is None else other)
        ours.append((p_values(one, two) < LEVEL).mean())
        welch.append((stats.ttest_ind(one, two, axis=1, equal_var=False).pvalue < LEVEL).mean())
    return float(np.mean(ours)), float(np.mean(welch))


@pytest.mark.parametrize(
    ("spread", "other"),
    [pytest.param(0.1, 0.1, id="one spread"), pytest.param(0.3, 0.01, id="one version varies thirty times as much")],
)
def test_equal_means_are_seldom_told_apart(spread: float, other: float) -> None:
    assert found(spread, other)[0] <= LEVEL / 2


def test_welch_tells_equal_means_apart_too_often_where_one_version_varies_more() -> None:
    """Why there are moderated tests: three runs, one version of which varies thirty times as much."""
    assert found(0.3, 0.01)[1] > 1.5 * LEVEL


def test_three_runs_show_what_each_test_by_itself_does_not() -> None:
    """22 % against a spread of 3 %."""
    ours, welch = found(0.03, worse=0.22)
    assert ours > 0.8
    assert welch < 0.3


def test_what_varies_much_more_than_the_others_is_not_found_by_their_spread() -> None:
    """Its own variance counts at least: it does not become significant because of the others."""
    spread = np.full(36, 0.01)
    spread[7] = 0.5
    wrong = [p_values(runs(seed, spread), runs(seed + 5000, spread))[7] < LEVEL for seed in range(400)]
    assert sum(wrong) <= 4, "1 %"


def test_runs_that_are_all_alike_are_tested_with_the_spread_of_the_others() -> None:
    spread = np.full(36, 0.02)
    spread[0] = 0.0
    ours, theirs = runs(1, spread), runs(2, spread)
    ours[0] += 0.02
    assert 0.05 < p_values(ours, theirs)[0] <= 1.0


def test_a_direction_has_no_influence() -> None:
    ours, theirs = runs(3, 0.1, n=5), runs(4, 0.2, n=4)
    assert p_values(ours, theirs) == pytest.approx(p_values(theirs, ours))
    assert p_values(ours, ours).tolist() == [1.0] * 36


def test_p_is_raised_by_the_factor_for_caution() -> None:
    ours, theirs = runs(5, 0.1, tests=4000), runs(6, 0.1, tests=4000)
    small = np.mean(p_values(ours, theirs) < 0.02)
    assert 0.5 * 0.02 / CAUTION < small < 1.5 * 0.02 / CAUTION


def test_the_interval_ends_where_p_is_5_percent() -> None:
    ours, theirs = runs(7, np.linspace(0.01, 0.3, 36), n=4), runs(8, 0.1)
    half = moderated_tests(ours, theirs)[1]
    apart = ours - ours.mean(axis=1, keepdims=True) + theirs.mean(axis=1, keepdims=True) + half[:, None]
    p, same = moderated_tests(apart, theirs)
    assert p == pytest.approx(np.full(36, 0.05))
    assert same == pytest.approx(half)
