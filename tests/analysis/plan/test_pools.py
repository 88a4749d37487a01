"""Two pools by prompt length, and agents per replica."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from analysis.plan.engine.model import EngineModel
from analysis.plan.engine.step_cost import StepCost
from analysis.plan.fleet.pools import two_pools
from analysis.plan.fleet.replicas import Fleet, Measured, Peak
from analysis.plan.simulation.work import Lengths
from enginebench import app
from records.load import Rate
from records.slo import parse_objectives
from validation.plan.batching_server import Asked, BatchingServer, users, write_run

MODEL = EngineModel(StepCost(0.01, 0.0002, 0.0005, 0.0, 0.02), slots=32)


def fleet(prompts: list[float], slo: str = "ttft_p50=1") -> Fleet:
    lengths = Lengths(np.array(prompts), np.array(prompts), np.full(len(prompts), 20.0))
    return Fleet(MODEL, Peak(Rate(30.0), lengths, 30.0), parse_objectives([slo]), "round_robin")


def test_each_pool_has_its_share_of_the_requests() -> None:
    """Nine prompts in ten are short; each pool meets the objective with as few replicas as it takes."""
    found = two_pools(fleet([20.0] * 9 + [1000.0]), Measured(32, 30.0), one_pool=9)
    assert found is not None
    assert found.limit == 20
    assert found.short.rate == pytest.approx(27, rel=0.1)
    assert found.long.rate == pytest.approx(3, rel=0.2)
    assert found.share >= 0.5
    assert found.sentence.startswith(f"Two pools need {found.count} replicas")
    assert found.sentence.endswith(f"{9 - found.count} fewer than one pool.")


def test_prompts_that_are_alike_are_not_split() -> None:
    assert two_pools(fleet([20.0, 20.0]), Measured(32, 30.0), 3) is None


def test_agents_are_counted_at_each_speed(tmp_path: Path) -> None:
    """Steps of 20 ms + 2 ms per request: 25 tokens/s leave 40 ms a step, room for 9 of them and a prefill now and then;
    100 tokens/s are out of reach; 5 tokens/s hold for all that can be simulated from 24 users, 36."""
    law = BatchingServer(per_token=0.0, slots=64, jitter=0.02)
    run = write_run(tmp_path / "run", law, users(4, 24), Asked(prompt=(20, 20), output=(50, 50)), window=20.0)
    wanted = ("--peak", "20users", "--slo", "e2e_p90=9", "--peak-seconds", "30", "--agents", "5,25,100", "--gpus", "2")
    result = CliRunner().invoke(app, ["plan", str(run), *wanted, "--json"])
    assert result.exit_code == 0, result.output
    slow, middle, fast = json.loads(result.output)["agents"]
    assert (slow["agents"], slow["at_least"]) == (36, True)
    assert 8 <= middle["agents"] <= 10
    assert not middle["at_least"]
    assert middle["per_gpu"] == middle["agents"] / 2
    assert fast["agents"] == 0
    assert fast["per_kilowatt"] is None
