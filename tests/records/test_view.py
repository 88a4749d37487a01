"""Estimates with their intervals."""

from __future__ import annotations

import math

import pytest

from enginebench.records.view import NO_SAMPLES, Estimate, Missing


def test_an_estimate_is_scaled_and_turned_round_with_its_interval() -> None:
    estimate = Estimate(0.5, 0.25, 2.0, 9, effective=4.0)
    assert estimate.scaled(4) == Estimate(2.0, 1.0, 8.0, 9, effective=4.0)
    assert estimate.inverse == Estimate(2.0, 0.5, 4.0, 9, effective=4.0)
    assert Estimate(0.5, 0.25, math.inf, 9, Missing.FEW_REQUESTS).inverse == Estimate(
        2.0, 0.0, 4.0, 9, Missing.FEW_REQUESTS
    )
    assert estimate.clipped(0.0, 1.0) == Estimate(0.5, 0.25, 1.0, 9, effective=4.0)


@pytest.mark.parametrize(
    ("estimate", "inverse"),
    [
        pytest.param(NO_SAMPLES, NO_SAMPLES, id="unknown"),
        pytest.param(Estimate(0.0), Estimate(math.inf), id="0 and infinity are each other's"),
        pytest.param(Estimate(1.0, 0.0, 2.0), Estimate(1.0, 0.5, math.inf), id="an interval that reaches 0"),
    ],
)
def test_the_inverse_of_what_reaches_0_is_infinite(estimate: Estimate, inverse: Estimate) -> None:
    assert estimate.inverse == inverse
    assert inverse.inverse == estimate
