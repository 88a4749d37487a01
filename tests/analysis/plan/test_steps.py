"""Recovering an engine's steps, and what they cost, from the records of a server whose law is known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from enginebench.analysis.data.chunks import WindowChunks
from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.plan.accuracy import fit_stages
from enginebench.analysis.plan.measured import MeasuredStage, measured_stages
from enginebench.analysis.plan.model import EngineModel, fit_model, saturated_slots
from enginebench.analysis.plan.not_planned import CannotPlan, NotPlanned
from enginebench.analysis.plan.steps import find_steps
from enginebench.records.load import Load
from tests.support.analysis.synthetic import Engine, simulate
from tests.support.present import present
from validation.plan.batching_server import Asked, BatchingServer, rates, users, write_run


def measured(folder: Path, server: BatchingServer, loads: tuple[Load, ...], **how: float) -> list[MeasuredStage]:
    return measured_stages([load_run(write_run(folder, server, loads, Asked(), **({"window": 20.0} | how)))])  # type: ignore[arg-type]


def fitted(folder: Path, server: BatchingServer, loads: tuple[Load, ...], **how: float) -> EngineModel:
    return fit_stages(measured(folder, server, loads, **how))


@pytest.mark.parametrize(
    ("server", "loads"),
    [
        pytest.param(BatchingServer(), users(2, 6, 12, 20), id="closed loop, prefill together with decoding"),
        pytest.param(BatchingServer(pauses=True), users(2, 6, 12, 20), id="closed loop, decoding pauses for prefill"),
        pytest.param(BatchingServer(), rates(2, 6, 11), id="open loop"),
        pytest.param(BatchingServer(base=0.003, per_running=0.0002, per_token=2e-5), users(2, 6, 12, 20), id="fast"),
        pytest.param(BatchingServer(per_token=0.0, per_prompt=0.05), users(2, 6, 12, 20), id="a cost per prompt"),
        pytest.param(BatchingServer(batched=0.03), users(1, 2, 6, 12), id="one request at a time is much cheaper"),
        pytest.param(
            BatchingServer(per_running_beyond=0.004, knee=8, slots=32),
            users(2, 6, 8, 12, 20),
            id="more expensive beyond a knee",
        ),
    ],
)
def test_the_cost_of_a_step_is_recovered_within_one_per_cent(
    tmp_path: Path, server: BatchingServer, loads: tuple[Load, ...]
) -> None:
    found = fitted(tmp_path / "run", server, loads)
    cost = found.fit.cost
    assert cost.base == pytest.approx(server.base, rel=0.01)
    assert cost.per_running == pytest.approx(server.per_running, rel=0.01)
    assert cost.per_token == pytest.approx(server.per_token, rel=0.01, abs=1e-7)
    assert cost.per_prompt == pytest.approx(server.per_prompt, rel=0.01, abs=1e-7)
    assert cost.batched == pytest.approx(server.batched, rel=0.01)
    assert cost.per_running_beyond == pytest.approx(server.per_running_beyond, rel=0.01)
    assert cost.per_running_beyond == 0 or cost.knee == server.knee
    assert found.pauses == server.pauses
    assert found.tokens_per_step == 1
    assert found.fit.explained > 0.99


def test_noise_of_ten_per_cent_moves_the_cost_by_less_than_two(tmp_path: Path) -> None:
    found = fitted(tmp_path / "run", BatchingServer(jitter=0.1), users(2, 6, 12, 20))
    assert found.fit.cost.base == pytest.approx(0.02, rel=0.02)
    assert found.fit.cost.per_running == pytest.approx(0.002, rel=0.02)
    assert float(found.fit.noise.std()) == pytest.approx(0.1, rel=0.1)


def test_long_prefills_do_not_decide_what_a_decoding_step_costs(tmp_path: Path) -> None:
    """Steps of 11 to 400 ms with much noise. By absolute errors, the cost per running request would be 13 % off."""
    server = BatchingServer(base=0.01, per_running=0.001, per_token=1e-4, slots=32, jitter=0.3)
    run = write_run(tmp_path / "run", server, users(2, 6, 12, 20), Asked(prompt=(20, 4000)), seed=2, window=20.0)
    cost = fit_stages(measured_stages([load_run(run)])).fit.cost
    assert (cost.base, cost.per_running) == pytest.approx((0.01, 0.001), rel=0.03)


@pytest.mark.parametrize(
    ("loads", "slots"),
    [(rates(1, 2, 3, 4, 5), 16), (rates(1, 2, 3), None), (users(4, 8, 12, 24), 16), (users(4, 8, 12), None)],
)
def test_slots_are_read_over_a_network_that_is_slower_than_a_step(
    tmp_path: Path, loads: tuple[Load, ...], slots: int | None
) -> None:
    """Requests on their way seem to wait at any number of running ones."""
    found = fitted(tmp_path / "run", BatchingServer(delivery=0.08, jitter=0.02), loads, window=60.0)
    assert found.slots == slots


def test_slots_are_read_where_requests_wait_for_them_and_nowhere_else(tmp_path: Path) -> None:
    full = fitted(tmp_path / "full", BatchingServer(slots=8), users(2, 6, 12))
    assert full.slots == 8
    free = fitted(tmp_path / "free", BatchingServer(slots=8), users(2, 4, 6))
    assert free.slots is None


def test_requests_to_an_idle_engine_show_what_lies_outside_its_steps(tmp_path: Path) -> None:
    found = fitted(tmp_path / "run", BatchingServer(delivery=0.004), rates(1, 4), window=60.0)
    assert found.delivery == pytest.approx(0.004, rel=0.01)


@pytest.mark.parametrize("delivery", [0.0005, 0.012])
def test_steps_just_missed_and_just_caught_show_the_delivery_to_an_engine_that_is_never_idle(
    tmp_path: Path, delivery: float
) -> None:
    found = fitted(tmp_path / "run", BatchingServer(delivery=delivery, jitter=0.05), rates(6, 7, 8), window=60.0)
    assert found.delivery == pytest.approx(delivery, abs=0.002)


def test_users_who_ask_at_once_reach_an_engine_that_is_never_idle_before_its_next_step_ends(tmp_path: Path) -> None:
    """Each request just misses a step of 0.11 s or more, so that any delivery up to that explains the records."""
    server = BatchingServer(base=0.1, per_running=0.005, turnaround=0.001)
    found = fitted(tmp_path / "run", server, users(4, 8, 12), window=60.0)
    assert found.delivery < 0.001


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("output", [(4, 16), (16, 64)], ids=["every step ends answers", "few steps do"])
def test_slots_that_are_handed_over_a_step_late_are_seen(tmp_path: Path, output: tuple[int, int], late: bool) -> None:
    server = BatchingServer(late_handover=late, jitter=0.02)
    run = write_run(tmp_path / "run", server, users(8, 20), Asked(output=output))
    found = fit_stages(measured_stages([load_run(run)]))
    assert found.late_handover == late
    assert found.slots == 16


def test_an_engine_that_serves_one_request_at_a_time(tmp_path: Path) -> None:
    found = fitted(tmp_path / "run", BatchingServer(slots=1, per_running=0.0), users(1, 2, 4))
    assert found.slots == 1
    assert found.fit.cost.seconds(1, 50) == pytest.approx(0.02 + 50 * 0.0005, rel=0.01)


def test_requests_with_steps_of_their_own_are_no_batch_and_not_simulated(tmp_path: Path) -> None:
    """Scripted delays: the first token after 50 ms, the others every 10 ms, whatever else is running."""
    run = load_run(simulate(tmp_path / "run", Engine(slots=8, prefill=0.05, tpot=0.01, noise=0.05), (2, 4, 8)))
    with pytest.raises(CannotPlan) as error:
        fit_stages(measured_stages([run]), declared_slots=8)
    assert error.value.reason is NotPlanned.NO_BATCH


def test_declared_slots_below_what_was_seen_running_are_dropped(tmp_path: Path) -> None:
    stages = measured(tmp_path / "batch", BatchingServer(), users(4, 12))
    models = [fit_stages(stages, declared_slots=slots) for slots in (16, 4)]
    assert [model.slots for model in models] == [16, None]


def test_a_machine_that_drifts_is_a_value_and_no_refusal(tmp_path: Path) -> None:
    slow = BatchingServer(slowdown=lambda now: 2.0 if 60 < now < 75 else 1.0)
    drifting, steady = (
        fitted(tmp_path / name, server, users(2, 6, 12), window=30.0).fit
        for name, server in (("drifting", slow), ("steady", BatchingServer()))
    )
    assert drifting.drift > 0.2
    assert drifting.explained < 0.7
    assert steady.drift < 0.01
    assert steady.explained > 0.99


def test_records_without_enough_steps_are_refused() -> None:
    steps = present(find_steps(chunks(*((0, 0.01 * k) for k in range(1, 31)), due=[0.0], prefilled=[5])))
    for stages in ([steps], []):  # none: answers so slow that hardly a token falls into the window
        with pytest.raises(CannotPlan) as error:
            fit_model(stages)
        assert error.value.reason is NotPlanned.FEW_STEPS


def chunks(*stamped: tuple[int, float], due: list[float], prefilled: list[float]) -> WindowChunks:
    """(request, instant) of each chunk, in order."""
    request = np.array([one for one, _ in stamped])
    stamp = np.array([at for _, at in stamped])
    of = [stamp[request == k] for k in range(len(due))]
    first, last = np.array([each[0] for each in of]), np.array([each[-1] for each in of])
    output = np.array([float(len(each)) for each in of])
    asked = np.array(prefilled, dtype=np.float64)
    return WindowChunks(100.0, stamp, request, np.array(due), first, last, asked, output)


def test_steps_by_hand() -> None:
    """Request 0 alone for ten steps of 10 ms; request 1, due at 31 ms, joins the step from 40 to 60 ms."""
    alone = [(0, 0.01 * k) for k in range(1, 5)]
    joined = [(k, t) for t in (0.06, 0.072, 0.084) for k in (0, 1)]
    after = [(0, 0.084 + 0.01 * k) for k in range(1, 16)]
    steps = present(find_steps(chunks(*alone, *joined, *after, due=[0.0, 0.031], prefilled=[5, 40])))
    assert steps.complete == 1
    assert steps.seconds[:6] == pytest.approx([0.01, 0.01, 0.01, 0.02, 0.012, 0.012])
    assert steps.running[:6].tolist() == [1, 1, 1, 2, 2, 2]
    assert steps.tokens[:6].tolist() == [0, 0, 0, 40, 0, 0]
    assert steps.missed.tolist() == pytest.approx([0.03 - 0.031])
    assert steps.caught.tolist() == pytest.approx([0.04 - 0.031])


def test_requests_that_wait_while_nothing_runs_are_on_their_way_and_no_limit_of_zero() -> None:
    """Engines of no slot would never answer, and a simulation of one would never end."""
    steps = present(find_steps(chunks(*((0, 0.01 * k) for k in range(1, 31)), due=[0.0], prefilled=[5])))
    nothing_runs = replace(
        steps,
        occupied=np.zeros_like(steps.occupied),
        left=np.ones_like(steps.left),
        prompts=np.zeros_like(steps.prompts),
    )
    assert saturated_slots([nothing_runs]) is None
    two_run = replace(nothing_runs, occupied=np.full_like(steps.occupied, 2))
    assert saturated_slots([nothing_runs, two_run]) == 2
