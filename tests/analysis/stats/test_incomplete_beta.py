from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize, special

from enginebench.analysis.plan.step_cost import _non_negative_least_squares
from enginebench.analysis.stats.incomplete_beta import (
    beta_quantile,
    binomial_quantile,
    incomplete_beta,
    student_t_quantile,
)

SHAPES = (0.5, 1.0, 2.5, 36.0, 1000.0, 100_000.0)


@pytest.mark.parametrize("b", SHAPES)
@pytest.mark.parametrize("a", SHAPES)
def test_the_beta_function_and_its_quantiles_are_those_of_scipy(a: float, b: float) -> None:
    for p in (0.001, 0.025, 0.5, 0.975, 0.999):
        x = float(special.betaincinv(a, b, p))
        assert beta_quantile(a, b, p) == pytest.approx(x, rel=1e-6)
        assert incomplete_beta(a, b, x) == pytest.approx(float(special.betainc(a, b, x)), rel=1e-8)


@pytest.mark.parametrize("freedom", [1.0, 2.0, 3.7, 9.0, 200.0, 1e6])
@pytest.mark.parametrize("p", [0.75, 0.95, 0.975, 0.9995])
def test_the_quantiles_of_students_t_are_those_of_scipy(p: float, freedom: float) -> None:
    assert student_t_quantile(p, freedom) == pytest.approx(float(special.stdtrit(freedom, p)), rel=1e-7)


@pytest.mark.parametrize(("n", "share"), [(6, 0.5), (7.5, 0.5), (72.3, 0.95), (368, 0.99), (1e5, 0.99), (4e3, 0.999)])
def test_binomial_quantiles_are_those_of_scipy(n: float, share: float) -> None:
    for p in (0.025, 0.975):
        assert binomial_quantile(p, n, share) == pytest.approx(float(special.bdtrik(p, n, share)), rel=1e-8)


def test_a_binomial_quantile_is_zero_if_no_success_is_likelier_than_p() -> None:
    assert binomial_quantile(0.025, 3, 0.5) == 0.0


def test_coefficients_below_zero_are_avoided_as_by_scipy() -> None:
    numbers = np.random.default_rng(7)
    negative = 0
    for columns in (1, 2, 3, 4, 5) * 40:
        matrix, values = numbers.normal(size=(20, columns)), numbers.normal(size=20)
        expected, _ = optimize.nnls(matrix, values)
        negative += int((expected == 0).sum())
        assert _non_negative_least_squares(matrix, values) == pytest.approx(expected, abs=1e-9)
    assert negative > 100
