"""Estimates, and what a view says of itself."""

from __future__ import annotations

import math

import pytest

from enginebench.records.slo import Objective
from enginebench.records.view import (
    NO_SAMPLES,
    Distribution,
    Estimate,
    Judgement,
    Missing,
    StageKey,
    StageView,
)

TTFT = Distribution(10, 1, 0.2, 0.1, 0.1, 0.4, {"p50": Estimate(0.2, 0.1, 0.3, 10)})
MET = Judgement(Objective("ttft", 0.95, 0.5), Estimate(1.0), "met")
VIEW = StageView(
    index=1, label="4 users", load=4, load_unit="users", start=2.0, end=9.5,
    outcomes={"cut_off": 2, "ok": 7, "rejected": 1, "timeout": 3}, counts={"empty": 3},
    metrics={"ttft": TTFT}, quantities={"throughput": Estimate(120.0, 110.0, 130.0, 10)},
    judgements=(MET,),
)  # fmt: skip


def test_requests_are_told_apart_by_their_outcomes() -> None:
    assert (VIEW.requests, VIEW.ok, VIEW.failed, VIEW.cut_off) == (13, 7, 4, 2)
    assert (VIEW.key, VIEW.seconds) == (StageKey(1, "4 users"), 7.5)


def test_a_number_is_found_by_its_name_and_statistic() -> None:
    assert VIEW.value("ttft", "p50") == 0.2
    assert VIEW.estimate("throughput").high == 130.0
    assert VIEW.count("empty") == 3


def test_what_was_not_observed_has_no_value() -> None:
    assert VIEW.estimate("ttft", "p99") == NO_SAMPLES
    assert VIEW.estimate("goodput") == Estimate(None)
    assert (VIEW.value("tpot", "p50"), VIEW.value("goodput"), VIEW.count("retried")) == (None, None, 0)


def test_a_judgement_is_found_by_its_objective() -> None:
    assert VIEW.judgement(MET.objective) == MET
    assert VIEW.judgement(Objective("ttft", 0.5, 0.5)) is None


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
