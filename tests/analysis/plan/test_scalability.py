"""The Universal Scalability Law and its bands, on numbers that are known."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import nnls

from enginebench.analysis.arrays import Floats
from enginebench.analysis.plan.scalability import (
    LoadPoint,
    Scalability,
    draws,
    fit_law,
    fitted,
    scalability,
    throughput,
)
from enginebench.records.view import Estimate

LAW = np.array([[30.0, 0.05, 0.0004]])  # λ, σ, κ
N = np.array([1.0, 4, 16, 40, 80])
OWN = 0.01  # standard error of a stage's throughput, as a share


def points(n: Floats, values: Floats, own: float = OWN) -> list[LoadPoint]:
    """Stages with so many requests in flight and these throughputs."""
    ends = ((value, value * (1 - 1.96 * own), value * (1 + 1.96 * own), 100) for value in values.tolist())
    return [LoadPoint(f"{load:g} users", load, Estimate(*of)) for load, of in zip(n.tolist(), ends, strict=True)]


def test_the_law_is_recovered() -> None:
    found = fit_law(points(N, throughput(LAW, N)[0], 0.0))
    assert (found.rate.value, found.contention.value, found.coherency.value) == pytest.approx(LAW[0], rel=1e-6)
    peak = math.sqrt(0.95 / 0.0004)  # Gunther 2007: √((1 - σ)/κ)
    assert found.peak.value == pytest.approx(peak, rel=1e-6)
    assert found.most.value == pytest.approx(throughput(LAW, np.array([peak]))[0, 0], rel=1e-6)
    assert found.scatter == pytest.approx(0, abs=1e-9)


def test_throughput_that_levels_off_has_a_limit_and_no_peak() -> None:
    n = np.array([1.0, 4, 16, 40])
    found = fit_law(points(n, (20 * n / (1 + 0.1 * (n - 1))), 0.0))
    assert found.peak.value == math.inf
    assert found.most.value == pytest.approx(200)


def test_the_fit_is_the_least_squares_solution_without_negative_coefficients() -> None:
    """Against `scipy.optimize.nnls`, on throughputs so noisy that bounds are active in many of them."""
    rng = np.random.default_rng(0)
    values = throughput(np.array([[30.0, 0.02, 0.0]]), N) * rng.lognormal(0, 0.3, (200, len(N)))
    found = fitted(N, values)
    columns = np.column_stack([np.ones(len(N)), N, N * (N - 1)])
    for row, law in zip(values, found, strict=True):
        (own, shared, pairs), _ = nnls(columns * (row / N)[:, None], np.ones(len(N)))
        assert law == pytest.approx((1 / (own + shared), shared / (own + shared), pairs / (own + shared)), abs=1e-7)
    assert 0 < (found[:, 2] == 0).sum() < len(found)


@pytest.mark.parametrize(
    ("scatter", "loads"),
    [
        pytest.param(0.0, N, id="stages as exact as they say"),
        pytest.param(0.01, N, id="stages that scatter as much again"),
        pytest.param(0.03, np.array([1.0, 2, 4, 8, 16, 24, 40, 60, 80]), id="three times as much, many stages"),
        pytest.param(0.03, N, id="three times as much"),
        pytest.param(0.03, N[:4], id="three times as much, four stages"),
        pytest.param(0.03, N[[0, 2, 4]], id="three times as much, and no residual to show it"),
    ],
)
def test_the_band_holds_the_true_curve(scatter: float, loads: Floats) -> None:
    rng, runs, inside = np.random.default_rng(1), 60, 0
    for _ in range(runs):
        noise = rng.normal(0, scatter, len(loads)) + rng.normal(0, OWN, len(loads))
        found = fit_law(points(loads, throughput(LAW, loads)[0] * (1 + noise)))
        middle = found.curve[len(found.curve) // 2]
        inside += _holds(middle.throughput, throughput(LAW, np.array([middle.in_flight]))[0, 0])
    assert inside / runs >= 0.93


def _holds(estimate: Estimate, truth: float) -> bool:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= truth <= estimate.high


def _width(found: Scalability) -> float:
    return max(one.throughput.high - one.throughput.low for one in found.curve)  # type: ignore[operator]


def test_stages_that_scatter_about_the_law_widen_the_band() -> None:
    exact = throughput(LAW, N)[0]
    near = fit_law(points(N, exact))
    far = fit_law(points(N, exact * np.array([1.0, 1.1, 0.9, 1.1, 0.9])))
    assert near.scatter is not None
    assert far.scatter is not None
    assert far.scatter > 0.1 > 0.01 > near.scatter
    assert _width(far) > 3 * _width(near)


def test_the_band_is_drawn_within_what_was_measured_and_of_one_seed() -> None:
    found = fit_law(points(N, throughput(LAW, N)[0]))
    places = [one.in_flight for one in found.curve]
    assert (places[0], places[-1]) == (1, 80)
    assert all(a < b for a, b in pairwise(places))
    assert found == fit_law(points(N, throughput(LAW, N)[0]))
    assert found != fit_law(points(N, throughput(LAW, N)[0]), seed=1)


def test_three_loads_say_nothing_of_their_scatter() -> None:
    three = N[[0, 2, 4]]
    assert fit_law(points(three, throughput(LAW, three)[0])).scatter is None


def test_draws_spread_as_the_interval() -> None:
    drawn = draws(Estimate(1.0, 0.9, 1.05, 100), np.random.default_rng(0), 4000)
    assert np.quantile(drawn, 0.025) == pytest.approx(0.9, abs=0.01)
    assert np.quantile(drawn, 0.975) == pytest.approx(1.05, abs=0.01)


def test_a_fitted_maximum_is_named_as_fitted_and_above_what_was_measured() -> None:
    law = fit_law(points(N[:4], throughput(LAW, N[:4])[0]))
    measured = throughput(LAW, N[3:4])[0, 0]
    assert (law.measured.label, law.measured.throughput.value) == ("40 users", measured)
    assert law.most.value > measured
    assert law.sentence.startswith(f"{measured:.0f} tokens/s measured at most, at 40 users; the fitted law reaches ")
    assert " tokens/s, more than was measured, with " in law.sentence


def test_a_fitted_maximum_that_equals_the_measured_one_is_not_said_to_be_more() -> None:
    """At the law's own maximum, some rounding above it."""
    peak = math.sqrt((1 - LAW[0, 1]) / LAW[0, 2])
    loads = np.array([peak / 4, peak / 2, peak, peak * 2])
    assert "more than was measured" not in fit_law(points(loads, throughput(LAW, loads)[0])).sentence


def test_no_maximum_is_read_from_a_law_that_does_not_fit() -> None:
    sentence = fit_law(points(N[:4], throughput(LAW, N[:4])[0] * np.array([1.0, 3.0, 0.5, 2.0]))).sentence
    assert "; no law fits: stages scatter by " in sentence
    assert "reaches" not in sentence


def test_two_loads_are_no_law() -> None:
    assert scalability(points(N[:2], throughput(LAW, N[:2])[0])) is None


def test_the_most_that_was_measured_is_a_mean_over_repeats() -> None:
    """One repeat at 16 has the highest throughput of all, but the mean over its repeats is below that of 40."""
    n = np.array([4.0, 16, 16, 40, 40])
    found = fit_law(points(n, np.array([100.0, 380, 250, 350, 340])))
    assert (found.measured.label, found.measured.throughput.value) == ("40 users", 345)
    assert found.sentence.startswith("345 tokens/s measured at most, at 40 users; ")
