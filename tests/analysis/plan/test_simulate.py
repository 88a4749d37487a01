"""The simulation of a replica: by hand, against theory, and against a simulation that computes every token."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import pytest

from analysis.plan.model import EngineModel
from analysis.plan.replica import serve_arrivals, serve_users
from analysis.plan.step_cost import StepCost
from analysis.plan.trials import trials
from analysis.plan.work import Lengths
from validation.plan.batching_server import Asked, BatchingServer, serve

COST = StepCost(base=0.010, per_running=0.001, per_token=0.0001, per_prompt=0.0)


def lengths(prompts: list[float], outputs: list[float]) -> Lengths:
    return Lengths(np.array(prompts), np.array(prompts), np.array(outputs))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_two_requests_by_hand() -> None:
    """The first is prefilled at once: 10 + 1 + 10 ms. The second comes meanwhile and joins the step from 21 ms on, of
    10 + 2 + 20 ms. Both have a token more at 65 ms; the first is over then, the second needs one step alone."""
    model = EngineModel(COST, slots=8)
    served = serve_arrivals(model, np.array([0.0, 0.005]), lengths([100, 200], [3, 3]), rng())
    assert served.first.tolist() == pytest.approx([0.021, 0.053])
    assert served.last.tolist() == pytest.approx([0.065, 0.076])


def test_decoding_pauses_for_prefill() -> None:
    """The second prompt's step holds it alone: 10 + 1 + 20 ms, in which the first gets nothing."""
    model = EngineModel(COST, slots=8, pauses=True)
    served = serve_arrivals(model, np.array([0.0, 0.005]), lengths([100, 200], [3, 3]), rng())
    assert served.first.tolist() == pytest.approx([0.021, 0.052])
    assert served.last.tolist() == pytest.approx([0.076, 0.076])


def test_one_slot_serves_one_after_the_other() -> None:
    model = EngineModel(COST, slots=1, delivery=0.002)
    served = serve_arrivals(model, np.array([0.0, 0.0]), lengths([0, 0], [2, 2]), rng())
    assert served.first.tolist() == pytest.approx([0.013, 0.035])
    assert served.last.tolist() == pytest.approx([0.024, 0.046])


def test_requests_with_steps_of_their_own_slow_each_other_down() -> None:
    """Alone a token takes 11 ms, beside another 12 ms; the first answer ends when the second has two tokens to go."""
    model = EngineModel(COST, synchronised=False)
    served = serve_arrivals(model, np.array([0.0, 0.011]), lengths([0, 0], [3, 3]), rng())
    assert served.first.tolist() == pytest.approx([0.011, 0.023])
    assert served.last.tolist() == pytest.approx([0.035, 0.046])


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("rate", [3.0, 12.0])
def test_an_open_loop_is_that_of_every_token_computed(rate: float, pauses: bool) -> None:
    """12 a second are more than the server bears, so that requests wait for slots."""
    server = BatchingServer(pauses=pauses)
    random = Random(1)
    due = list(itertools.accumulate(random.expovariate(rate) for _ in range(600)))
    truth = serve(server, [(at, None) for at in due], Asked(), random, due[-1] + 1)
    cost = StepCost(server.base, server.per_running, server.per_token, 0.0)
    model = EngineModel(cost, slots=server.slots, pauses=pauses, delivery=server.delivery)
    asked = lengths([float(one.prompt) for one in truth], [float(one.output) for one in truth])
    served = serve_arrivals(model, np.array(due), asked, rng())
    assert served.first.tolist() == pytest.approx([one.stamps[0] for one in truth], abs=1e-9)
    assert served.last.tolist() == pytest.approx([one.stamps[-1] for one in truth], abs=1e-9)


def test_a_closed_loop_keeps_its_users_busy() -> None:
    """Little's law: users = rate × (time to answer + think time)."""
    served = serve_users(
        EngineModel(COST, slots=16), rng().uniform(0, 1, 12), lengths([50], [20]), 200.0, np.array([0.5]), rng()
    )
    inside = (served.sched > 20) & (served.sched < 180)
    rate = inside.sum() / 160
    assert rate * (float((served.last - served.sched)[inside].mean()) + 0.5) == pytest.approx(12, rel=0.01)


def test_one_server_with_exponential_service_waits_as_the_law_says() -> None:
    """M/M/1 at ρ = 0.7 (mean wait ρ/(μ - λ)): one slot, no noise, answers of geometric length."""
    generator = np.random.default_rng(3)
    count = 100_000
    arrivals = np.cumsum(generator.exponential(1 / 0.7, count))
    steps = generator.geometric(1 / 100, count).astype(float)
    model = EngineModel(StepCost(0.01, 0.0, 0.0, 0.0), slots=1)
    served = serve_arrivals(model, arrivals, Lengths(np.zeros(count), np.zeros(count), steps), generator)
    assert float((served.first - served.sched).mean()) - 0.01 == pytest.approx(0.7 / 0.3, rel=0.06)


def test_noise_keeps_the_mean_step() -> None:
    noisy = EngineModel(StepCost(0.01, 0.0, 0.0, 0.0, spread=0.3))
    served = serve_arrivals(noisy, np.arange(0, 2000, 2.0), lengths([0] * 1000, [101] * 1000), rng())
    took = served.last - served.first
    assert float(took.mean()) == pytest.approx(1.0, rel=0.01)
    assert float(took.std()) == pytest.approx(0.01 * 0.3 * 10, rel=0.15)


def test_slow_phases_of_the_measured_steps_stay_together() -> None:
    """Half of the steps take 0.6 of their cost, half 1.4: an answer of 100 steps lies in one phase or the other."""
    phases = np.repeat(np.tile([-0.4, 0.4], 8), 250)
    model = EngineModel(StepCost(0.01, 0.0, 0.0, 0.0), noise=phases)
    served = serve_arrivals(model, np.arange(0, 2000, 2.0), lengths([0] * 1000, [101] * 1000), rng())
    took = served.last - served.first
    assert float(took.mean()) == pytest.approx(1.0, rel=0.02)
    assert float(took.std()) > 0.25, "0.04 if the noise of each step were independent"


@pytest.mark.parametrize("count", [5, 20])
def test_the_median_trial_has_the_usual_speed(count: int) -> None:
    slower = sorted(one.slower for one in trials(count))
    assert (slower[(count - 1) // 2] + slower[count // 2]) / 2 == pytest.approx(0, abs=1e-12)
    assert slower[-1] == pytest.approx({5: 1.282, 20: 1.960}[count], abs=0.001), "normal quantiles of 0.9 and 0.975"
