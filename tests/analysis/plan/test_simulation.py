"""The simulation of a replica: by hand, against theory, and against a simulation that computes every token."""

import itertools
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from enginebench.analysis.arrays import Floats
from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.plan.measured import measured_stages
from enginebench.analysis.plan.model import EngineModel, futures
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.requests import Lengths
from enginebench.analysis.plan.simulation import ClosedLoop, arrivals_in_turn, poisson_arrivals
from enginebench.analysis.plan.simulation import serve as simulate
from enginebench.analysis.plan.step_cost import Fit, StepCost
from enginebench.records.metrics import OBJECTIVES
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run
from validation.plan.batching_server import Asked, BatchingServer, serve

COST = StepCost(base=0.010, per_running=0.001, per_token=0.0001, per_prompt=0.0)


def engine(cost: StepCost = COST, noise: float | Floats = 0.0, **settings: Any) -> EngineModel:
    """`noise`: of each step, as a share of its cost."""
    return EngineModel(Fit(cost, 100, 1.0, 0.0, np.atleast_1d(np.asarray(noise, dtype=np.float64))), **settings)


def lengths(prompts: list[float], outputs: list[float]) -> Lengths:
    return Lengths(np.array(prompts), np.array(outputs))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


TWO = (np.array([0.0, 0.005]), Lengths(np.array([100.0, 200.0]), np.array([3.0, 3.0])))
AT_ONCE = (np.zeros(2), Lengths(np.zeros(2), np.array([2.0, 2.0])))


@pytest.mark.parametrize(
    ("settings", "asked", "first", "last"),
    [
        # The first is prefilled at once: 10 + 1 + 10 ms. The second comes meanwhile and joins the step from 21 ms on,
        # of 10 + 2 + 20 ms. Both have a token more at 65 ms; the first is over then, the second needs one step alone.
        ({"slots": 8}, TWO, [0.021, 0.053], [0.065, 0.076]),
        # The second prompt's step holds it alone: 10 + 1 + 20 ms, in which the first gets nothing.
        ({"slots": 8, "pauses": True}, TWO, [0.021, 0.052], [0.076, 0.076]),
        # One slot serves one after the other.
        ({"slots": 1, "delivery": 0.002}, AT_ONCE, [0.013, 0.035], [0.024, 0.046]),
    ],
)
def test_two_requests_by_hand(
    settings: dict[str, Any], asked: tuple[Floats, Lengths], first: list[float], last: list[float]
) -> None:
    served = simulate(engine(**settings), *asked, rng())
    assert served.first.tolist() == pytest.approx(first)
    assert served.last.tolist() == pytest.approx(last)


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("rate", [3.0, 12.0])
def test_an_open_loop_is_that_of_every_token_computed(rate: float, pauses: bool) -> None:
    """12 a second are more than the server bears, so that requests wait for slots."""
    server = BatchingServer(pauses=pauses)
    random = Random(1)
    due = list(itertools.accumulate(random.expovariate(rate) for _ in range(600)))
    truth = serve(server, [(at, None) for at in due], Asked(), random, due[-1] + 1)
    cost = StepCost(server.base, server.per_running, server.per_token, 0.0)
    model = engine(cost, slots=server.slots, pauses=pauses, delivery=server.delivery)
    asked = lengths([float(one.prompt) for one in truth], [float(one.output) for one in truth])
    served = simulate(model, np.array(due), asked, rng())
    assert served.first.tolist() == pytest.approx([one.stamps[0] for one in truth], abs=1e-9)
    assert served.last.tolist() == pytest.approx([one.stamps[-1] for one in truth], abs=1e-9)


def test_a_closed_loop_keeps_its_users_busy() -> None:
    """Little's law: users = rate × (time to answer + think time)."""
    closed = ClosedLoop(200.0, np.array([0.5]))
    served = simulate(engine(slots=16), rng().uniform(0, 1, 12), lengths([50], [20]), rng(), closed)
    inside = (served.sched > 20) & (served.sched < 180)
    rate = inside.sum() / 160
    assert rate * (float((served.last - served.sched)[inside].mean()) + 0.5) == pytest.approx(12, rel=0.01)


def test_one_server_with_exponential_service_waits_as_the_law_says() -> None:
    """M/M/1 at ρ = 0.7 (mean wait ρ/(μ - λ)): one slot, no noise, answers of geometric length."""
    generator = np.random.default_rng(3)
    count = 100_000
    arrivals = np.cumsum(generator.exponential(1 / 0.7, count))
    steps = generator.geometric(1 / 100, count).astype(float)
    model = engine(StepCost(0.01, 0.0, 0.0, 0.0), slots=1)
    served = simulate(model, arrivals, Lengths(np.zeros(count), steps), generator)
    assert float((served.first - served.sched).mean()) - 0.01 == pytest.approx(0.7 / 0.3, rel=0.06)


def test_noise_keeps_the_mean_step() -> None:
    noise = np.random.default_rng(4).normal(0.0, 0.3, 100_000)
    noisy = engine(StepCost(0.01, 0.0, 0.0, 0.0), noise)
    served = simulate(noisy, np.arange(0, 2000, 2.0), lengths([0] * 1000, [101] * 1000), rng())
    took = served.last - served.first
    assert float(took.mean()) == pytest.approx(1.0, rel=0.01)
    assert float(took.std()) == pytest.approx(0.01 * 0.3 * 10, rel=0.15)


def test_slow_phases_of_the_measured_steps_stay_together() -> None:
    """Half of the steps take 0.6 of their cost, half 1.4: an answer of 100 steps lies in one phase or the other."""
    phases = np.repeat(np.tile([-0.4, 0.4], 8), 250)
    model = engine(StepCost(0.01, 0.0, 0.0, 0.0), noise=phases)
    served = simulate(model, np.arange(0, 2000, 2.0), lengths([0] * 1000, [101] * 1000), rng())
    took = served.last - served.first
    assert float(took.mean()) == pytest.approx(1.0, rel=0.02)
    assert float(took.std()) > 0.25, "0.04 if the noise of each step were independent"


def test_the_machines_of_futures_are_spread_about_the_usual_one() -> None:
    """Normal quantiles at 1/2, 1/4, 3/4, 1/8, …: of 63 futures the extremes are those of 1/64 and 63/64."""
    slower = [future.deviations for future in futures(63)]
    assert slower[0] == 0
    assert sorted(slower)[31] == pytest.approx(0, abs=1e-12)
    assert (min(slower), max(slower)) == pytest.approx((-2.154, 2.154), abs=0.001)


def test_users_of_an_engine_that_takes_no_time_are_refused_and_not_simulated_for_ever() -> None:
    free = engine(StepCost(0.0, 0.0, 0.0, 0.0), slots=4)
    with pytest.raises(CannotPlan) as error:
        simulate(free, np.zeros(2), lengths([0], [1]), rng(), ClosedLoop(10.0))
    assert error.value.reason is NotPlanned.TOO_FAST


def test_a_closed_loop_ends_after_so_many_requests_all_of_which_are_answered() -> None:
    closed = ClosedLoop(1e9, counted=10.0, requests=100)
    served = simulate(engine(slots=16), np.zeros(4), lengths([50], [20]), rng(), closed)
    counted = served.sched >= 10.0
    assert 100 <= counted.sum() < 108
    assert np.isfinite(served.last[counted][:100]).all()


def test_arrivals_have_their_rate_and_are_independent() -> None:
    """The counts of a Poisson process have an index of dispersion of 1."""
    times = poisson_arrivals(10.0, 20_000.0, np.random.default_rng(0))
    counts = np.bincount((times / 20).astype(int))
    assert len(times) / 20_000 == pytest.approx(10, rel=0.02)
    assert counts[:-1].var() / counts[:-1].mean() == pytest.approx(1.0, abs=0.15)


@pytest.mark.parametrize("first", [2, 5])
def test_replicas_get_the_arrivals_in_turn(first: int) -> None:
    """Gaps of a replica are sums of five exponential ones: their squared coefficient of variation is 1/5. The second
    replica's turn is one gap after the first one's."""
    found = arrivals_in_turn(50.0, 5, first, 2_000.0, np.random.default_rng(0))
    assert len(found) == first
    for own in found:
        gaps = np.diff(own)
        assert float(gaps.mean()) == pytest.approx(0.1, rel=0.02)
        assert float(gaps.var() / gaps.mean() ** 2) == pytest.approx(1 / 5, rel=0.05)
    both = min(map(len, found))
    assert float((found[1][:both] - found[0][:both]).mean()) == pytest.approx(0.02, rel=0.05)


def test_a_failed_request_is_no_pause_and_users_without_a_name_are_the_first_requests(tmp_path: Path) -> None:
    """Answers take 140 ms. A user's second request fails after three seconds, in which the user does not think."""
    failed = {"outcome": "timeout", "t_first": None, "t_first_out": None, "t_last": None, "t_end": 5 * SECOND}
    requests = [record(0, SECOND), record(1, 2 * SECOND, **failed), record(2, 6 * SECOND)]
    requests += [record(number, 6 * SECOND + number * SECOND // 2) for number in range(3, 40)]
    meta = meta_of(stages_of((2,), 30.0, 0.0, 0.0))
    (stage,) = measured_stages([load_run(write_run(tmp_path / "named", meta, requests))])
    assert stage.think[:2].tolist() == pytest.approx([0.86, 1.36])
    assert float(stage.think.max()) < 2
    unnamed = [msgspec.structs.replace(request, user=None) for request in requests]
    (stage,) = measured_stages([load_run(write_run(tmp_path / "unnamed", meta, unnamed))])
    assert stage.starts.tolist() == [1.0, 2.0]
    assert not len(stage.think)


def test_time_per_token_is_the_declared_metric_measured_and_simulated(tmp_path: Path) -> None:
    """Chunks of 4 tokens, and requests sent 100 ms after they were due: NTPOT starts when they were due."""
    requests: list[RequestRecord] = []
    for due in range(SECOND, 9 * SECOND, SECOND):
        sent, first, last = (due + after * SECOND // 100 for after in (10, 20, 24))
        stamps = {"t_send": sent, "t_first": first, "t_first_out": first, "t_last": last, "t_end": last}
        requests.append(record(len(requests), due, **stamps, first_chunk_tokens=4, output_tokens=12))
    run = load_run(write_run(tmp_path / "run", meta_of(stages_of((1,), 10.0, 0.0, 0.0)), requests))
    (stage,) = measured_stages([run])
    declared = [(OBJECTIVES["tpot"].read(each), OBJECTIVES["ntpot"].read(each)) for each in requests]
    assert declared[0] == pytest.approx((0.04 / 8, 0.24 / 12))
    measured = stage.requests.latencies
    assert list(zip(measured["tpot"], measured["ntpot"], strict=True)) == pytest.approx(declared)
    served = simulate(
        engine(StepCost(0.02, 0.0, 0.0, 0.0), slots=8, tokens_per_step=4.0),
        np.array([0.0, 1.0]),
        lengths([40, 40], [12, 4]),
        rng(),
    )
    assert served.latencies["tpot"].tolist() == pytest.approx([0.04 / 8, np.nan], nan_ok=True)
    assert served.latencies["ntpot"].tolist() == pytest.approx([0.06 / 12, 0.02 / 4])
