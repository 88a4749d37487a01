"""The number of replicas: the fewest with which 95 % of the simulated futures meet every objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from enginebench.analysis.data.load import load_run
from enginebench.analysis.plan.accuracy import fit_stages
from enginebench.analysis.plan.fleet import FUTURES, Fleet, Peak
from enginebench.analysis.plan.measured import MeasuredStage, SupportedLoads, measured_stages, supported_loads
from enginebench.analysis.plan.model import EngineModel, FittedModel
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.replicas import fewest_replicas, first
from enginebench.analysis.plan.requests import Lengths, simulated
from enginebench.analysis.plan.step_cost import Fit, StepCost
from enginebench.records.load import Load, Rate, Users
from enginebench.records.slo import Objective, parse_objectives
from validation.plan.batching_server import Asked, BatchingServer, users, write_run

LENGTHS = Lengths(np.full(1, 20.0), np.full(1, 11.0))
SUPPORTED = SupportedLoads(users=1000.0, rate=1000.0)
STEP = 0.1  # seconds, whatever runs


def fitted(costs: Sequence[float], slots: int | None = None, drift: float = 0.0) -> FittedModel:
    """An engine whose steps take 100 ms; of the costs that its records allow, a future draws one."""
    model = EngineModel(StepCost(STEP, 0.0, 0.0, 0.0), slots=slots, drift=drift)
    draws = tuple(StepCost(cost, 0.0, 0.0, 0.0) for cost in costs)
    return FittedModel(model, Fit(model.cost, draws, 100, 1.0, drift, np.zeros(0)), draws)


def fleet(model: FittedModel, load: Load, *objectives: str) -> Fleet:
    return Fleet(model, Peak(load, LENGTHS, seconds=20.0), parse_objectives(objectives))


def reason(tried: Fleet) -> NotPlanned:
    with pytest.raises(CannotPlan) as error:
        fewest_replicas(tried, SUPPORTED)
    return error.value.reason


@pytest.mark.parametrize(("slow", "sustained"), [(3, True), (4, False)], ids=["57 of 60 futures", "56 of 60"])
def test_futures_in_which_the_engine_is_slower_than_the_objective_count(slow: int, sustained: bool) -> None:
    costs = [0.2] * slow + [STEP] * (FUTURES - slow)
    assert fleet(fitted(costs), Users(1), "tpot_p50=0.15").sustains(1) == sustained


def test_the_fits_error_is_inside_the_futures() -> None:
    """By the fit itself every objective is met by one replica; of the costs that the records allow, half are too slow
    for any number of replicas."""
    undecided = fleet(fitted([STEP, 0.2] * 30), Users(1), "tpot_p50=0.15")
    assert undecided.met(1, FUTURES) == 0.5
    assert reason(undecided) is NotPlanned.OUT_OF_REACH


def test_the_reason_for_a_size_is_the_share_of_futures_that_meet_the_slo() -> None:
    """Answers of 11 steps must end within 2.3 s. A user without a slot waits as long again: 2.2 s with steps of 100 ms,
    which 40 of the futures have, and too long in the others."""
    costs = [STEP] * 40 + [0.15] * 17 + [0.20] * 3
    answer = fewest_replicas(fleet(fitted(costs, slots=4), Users(16), "e2e_p99=2.3"), SUPPORTED)
    assert (answer.count, answer.chosen.met) == (4, 1.0)
    assert answer.fewer is not None
    assert (answer.fewer.replicas, answer.fewer.futures) == (3, FUTURES)
    assert answer.fewer.met == pytest.approx(40 / 60)


def test_a_machine_that_drifts_takes_more_replicas() -> None:
    steady, drifting = (
        fewest_replicas(fleet(fitted([STEP], slots=4, drift=drift), Rate(8.0), "e2e_p95=2"), SUPPORTED).count
        for drift in (0.0, 0.2)
    )
    assert drifting > steady


def test_a_search_ends_if_nothing_is_found() -> None:
    assert first(lambda k: k >= 37, 3, 1000) == 37
    assert first(lambda k: k >= 1000, 3, 1000) == 1000
    assert first(lambda k: False, 3, 1000) is None
    assert first(lambda k: True, 3, 2) == 3


@pytest.mark.parametrize("metric", ["ttfo", "failures"])
def test_objectives_that_the_simulation_does_not_know_are_refused(metric: str) -> None:
    with pytest.raises(CannotPlan) as error:
        simulated([Objective(metric, 0.99, 1.0)])
    assert error.value.reason is NotPlanned.OBJECTIVE


def test_failures_are_measured_and_not_simulated() -> None:
    known = parse_objectives(["ttft_p95=1", "ntpot_p95=1", "tpot_p95=1", "e2e_p95=1"])
    assert simulated([*known, *parse_objectives(["failures=0.01"])]) == known


def test_the_capacity_of_one_replica_is_simulated_user_by_user() -> None:
    full = fewest_replicas(fleet(fitted([STEP], slots=5), Users(20), "ttft_p99=0.3"), SUPPORTED)
    assert full.count == 4
    assert (full.capacity.load, full.capacity.beyond) == (5, 6)


def test_the_numbers_of_a_load_are_those_of_the_same_futures_wherever_they_stand() -> None:
    """16 users on each of 5 replicas fare as 16 users on one do."""
    model = fitted([STEP, 0.11, 0.12], slots=16)
    many, alone = fleet(model, Users(80), "e2e_p95=2"), fleet(model, Users(16), "e2e_p95=2")
    assert many.attainment(5, 20).share == alone.attainment(1, 20).share
    assert many.attainment(5, 20).output == pytest.approx(5 * alone.attainment(1, 20).output)


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[MeasuredStage]:
    run = write_run(tmp_path_factory.mktemp("replicas") / "run", BatchingServer(jitter=0.05), users(4, 8, 20), Asked())
    return measured_stages([load_run(run)])


def test_what_the_fit_leaves_open_holds_the_true_cost(stages: list[MeasuredStage]) -> None:
    model = fit_stages(stages)
    for name, true in (("base", 0.02), ("per_running", 0.002), ("per_token", 0.0005)):
        values = [getattr(cost, name) for cost in model.costs]
        assert np.mean(values) == pytest.approx(getattr(model.model.cost, name), rel=0.01)
        assert 0.0005 < np.std(values) / true < 0.03
        assert abs(np.mean(values) - true) < 4 * np.std(values)


def test_an_unknown_limit_and_limited_failures_allow_no_extrapolation(stages: list[MeasuredStage]) -> None:
    assert supported_loads(stages, True).largest(Users(1)) == 30
    assert supported_loads(stages, False).largest(Users(1)) == 20
    failing = [*stages[:2], replace(stages[2], failed=0.03)]
    limited = supported_loads(failing, True, parse_objectives(["ttft_p95=1", "failures=0.01"]))
    assert limited.largest(Users(1)) == 8
    assert limited.fewest(Users(80)) == 10
    with pytest.raises(CannotPlan) as error:
        supported_loads(failing[2:], True, parse_objectives(["ttft_p95=1", "failures=0.01"]))
    assert error.value.reason is NotPlanned.FAILURES


def test_rates_and_users_are_supported_by_what_was_measured() -> None:
    supported = SupportedLoads(users=20.0, rate=6.0)
    assert supported.fewest(Users(80)) == math.ceil(80 / 30)
    assert supported.fewest(Rate(40.0)) == math.ceil(40 / 9)
    assert replace(supported, beyond=1.0).fewest(Users(80)) == 4


def test_a_future_in_which_nothing_is_due_is_not_met() -> None:
    """Users pause for 100 s after an answer of 1.1 s, and so ask at 0 to 5 s and from 101 s on; the window is from 30 s
    to 50 s."""
    pausing = Peak(Users(2), LENGTHS, seconds=20.0, think=np.array([100.0]))
    silent = Fleet(fitted([STEP]), pausing, parse_objectives(["e2e_p50=60"]))
    assert silent.silent(2, 0)
    assert silent.met(2, FUTURES) == 0
    assert reason(silent) is NotPlanned.SHORT_PEAK
    longer = replace(silent, peak=replace(pausing, seconds=200.0), tallies={})
    assert fewest_replicas(longer, SUPPORTED).count == 1


@pytest.mark.parametrize(("limit", "met"), [(60, 0.0), (120, 1.0)])
def test_the_warm_up_lasts_a_few_answers(limit: int, met: float) -> None:
    """Answers take 110 s; a user who asked at 0 to 5 s asks again 330 s later, and at no time from 30 s to 50 s."""
    assert fleet(fitted([10.0]), Users(1), f"e2e_p50={limit}").met(1, 4) == met
