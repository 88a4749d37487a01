"""The number of replicas: the fewest with which 95 % of the simulated futures meet every objective."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.plan.fleet import FUTURES, Fleet, Peak, fewest_replicas, first
from enginebench.analysis.plan.measured import MeasuredStage, SupportedLoads, measured_stages, supported_loads
from enginebench.analysis.plan.model import EngineModel, futures
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.requests import Lengths, simulated
from enginebench.analysis.plan.step_cost import Fit, StepCost
from enginebench.records.load import Load, Rate, Users
from enginebench.records.slo import Objective, parse_objectives
from enginebench.records.stage import SECOND
from validation.plan.batching_server import Asked, BatchingServer, users, write_run

LENGTHS = Lengths(np.full(1, 20.0), np.full(1, 11.0))
SUPPORTED = SupportedLoads(users=1000.0, rate=1000.0)
STEP = 0.1  # seconds, whatever runs


def engine(seconds: float = STEP, slots: int | None = None, drift: float = 0.0) -> EngineModel:
    """An engine whose steps take 100 ms."""
    return EngineModel(Fit(StepCost(seconds, 0.0, 0.0, 0.0), 100, 1.0, drift, np.zeros(1)), slots)


def fleet(model: EngineModel, load: Load, *objectives: str) -> Fleet:
    return Fleet(model, Peak(load, LENGTHS, seconds=20.0), parse_objectives(objectives))


def reason(tried: Fleet) -> NotPlanned:
    with pytest.raises(CannotPlan) as error:
        fewest_replicas(tried, SUPPORTED)
    return error.value.reason


def slower_than(ratio: float, drift: float) -> int:
    """Count the futures in which the machine is slower than that."""
    return sum(math.exp(drift * future.deviations) > ratio for future in futures(FUTURES))


@pytest.mark.parametrize(("limit", "slow", "sustained"), [(0.134, 3, True), (0.132, 4, False)])
def test_at_least_57_of_60_futures_meet_every_objective(limit: float, slow: int, sustained: bool) -> None:
    """With a drift of 0.2, some machines are slower than the objective allows, whatever the number of replicas."""
    assert slower_than(limit / STEP, 0.2) == slow
    tried = fleet(engine(drift=0.2), Users(1), f"tpot_p50={limit}")
    assert tried.met(1, FUTURES) == (FUTURES - slow) / FUTURES
    assert tried.sustains(1) == sustained
    if not sustained:
        assert reason(tried) is NotPlanned.OUT_OF_REACH


def test_the_reason_for_a_size_is_the_share_of_futures_that_meet_the_slo() -> None:
    """Answers of 11 steps must end within 2.3 s. A user without a slot waits for another answer: about 2.2 s with steps
    of 100 ms, and too long on the slower machines."""
    answer = fewest_replicas(fleet(engine(slots=4, drift=0.2), Users(16), "e2e_p99=2.3"), SUPPORTED)
    assert (answer.count, answer.chosen.met) == (4, 1.0)
    assert answer.fewer is not None
    assert answer.fewer.replicas == 3
    assert 0.5 < answer.fewer.met < 0.95
    assert answer.fewer.share.low < 0.99


def test_a_machine_that_drifts_takes_more_replicas() -> None:
    steady, drifting = (
        fewest_replicas(fleet(engine(slots=4, drift=drift), Rate(8.0), "e2e_p95=2"), SUPPORTED).count
        for drift in (0.0, 0.2)
    )
    assert drifting > steady
    assert fewest_replicas(fleet(engine(slots=4), Rate(8.0), "e2e_p95=2"), SUPPORTED).capacity is None


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
    full = fewest_replicas(fleet(engine(slots=5), Users(20), "ttft_p99=0.3"), SUPPORTED)
    assert full.count == 4
    assert full.capacity == 5


def test_the_numbers_of_a_load_are_those_of_the_same_futures_wherever_they_stand() -> None:
    """16 users on each of 5 replicas fare as 16 users on one do."""
    model = engine(slots=16, drift=0.1)
    many, alone = fleet(model, Users(80), "e2e_p95=1.2"), fleet(model, Users(16), "e2e_p95=1.2")
    assert many.attainment(5, 20).share == alone.attainment(1, 20).share


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> list[MeasuredStage]:
    run = write_run(tmp_path_factory.mktemp("replicas") / "run", BatchingServer(jitter=0.05), users(4, 8, 20), Asked())
    return measured_stages([load_run(run)])


def test_an_unknown_limit_and_limited_failures_allow_no_extrapolation(stages: list[MeasuredStage]) -> None:
    assert supported_loads(stages, True).largest(Users(1)) == 30
    assert supported_loads(stages, False).largest(Users(1)) == 20
    failing = [*stages[:2], replace(stages[2], faults={"failures": 0.03})]
    limited = supported_loads(failing, True, parse_objectives(["ttft_p95=1", "failures=0.01"]))
    assert limited.largest(Users(1)) == 8
    assert limited.fewest(Users(80)) == 10
    with pytest.raises(CannotPlan) as error:
        supported_loads(failing[2:], True, parse_objectives(["ttft_p95=1", "failures=0.01"]))
    assert error.value.reason is NotPlanned.FAILURES


def test_a_rate_is_supported_by_every_answer_in_the_window(tmp_path: Path) -> None:
    """Answers of 16 s and more to a rate that begins 12 s before the window: most were asked for in the warm-up."""
    server, asked = BatchingServer(base=0.5), Asked(output=(32, 40))
    run = load_run(write_run(tmp_path / "run", server, (Rate(1.0),), asked, warm_up=12.0, window=20.0))
    (stage,) = measured_stages([run])
    last = run.requests["t_last"] / SECOND
    expected = len(last.filter((last >= stage.start) & (last < stage.end))) / 20.0
    assert stage.answered == pytest.approx(expected)
    assert supported_loads([stage], True).rate == stage.answered > 0


def test_a_peak_that_is_far_beyond_the_measured_loads_is_out_of_reach() -> None:
    assert reason(fleet(engine(), Rate(1e9), "e2e_p95=2")) is NotPlanned.OUT_OF_REACH


def test_rates_and_users_are_supported_by_what_was_measured() -> None:
    supported = SupportedLoads(users=20.0, rate=6.0)
    assert supported.fewest(Users(80)) == math.ceil(80 / 30)
    assert supported.fewest(Rate(40.0)) == math.ceil(40 / 9)
    assert replace(supported, beyond=1.0).fewest(Users(80)) == 4


def test_a_future_in_which_nothing_is_due_is_not_met() -> None:
    """Users pause for 60 s after an answer of 1.1 s, and so ask at 0 to 5 s and from 61 s on; the window is from 30 s
    to 50 s."""
    pausing = Peak(Users(2), LENGTHS, seconds=20.0, think=np.array([60.0]))
    silent = Fleet(engine(), pausing, parse_objectives(["e2e_p50=60"]))
    assert silent.met(2, FUTURES) == 0
    assert reason(silent) is NotPlanned.OUT_OF_REACH
    longer = replace(silent, peak=replace(pausing, seconds=60.0), tallies={})
    assert fewest_replicas(longer, SUPPORTED).count == 1


@pytest.mark.parametrize(("limit", "met"), [("60s", 0.0), ("120s", 1.0)])
def test_the_warm_up_lasts_a_few_answers(limit: str, met: float) -> None:
    """Answers take 110 s; a user who asked at 0 to 5 s asks again 330 s later, and at no time from 30 s to 50 s."""
    assert fleet(engine(10.0), Users(1), f"e2e_p50={limit}").met(1, 4) == met
