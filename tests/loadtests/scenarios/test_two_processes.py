"""Every scenario on two processes: both send, every planned length is asked for, and nothing fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.loadtests.locust_process import ROOT, start
from tests.support.servers.scripted import Script, ScriptedServer

ENGINE = {"name": "scripted", "features": ["ignore_eos"], "context_length": 8192}


@pytest.mark.parametrize(
    ("scenario", "options", "stages"),
    [
        pytest.param("sustained", "--stages 4 --stage-seconds 2", ["4 users"], id="sustained"),
        pytest.param("soak", "--stages 4 --stage-seconds 2 --warm-up 0.5", ["4 users"], id="soak"),
        pytest.param(
            "spike",
            "--rate 10x1+40x1+10x1 --stage-seconds 3 --warm-up 0.5",
            ["10x1+40x1+10x1 req/s"],
            id="spike",
        ),
        pytest.param(
            "memory",
            "--stages 2,4 --prompt-tokens 64,256 --stage-seconds 1",
            [f"{users} users, {tokens} prompt tokens" for users in (2, 4) for tokens in (64, 256)],
            id="memory",
        ),
        pytest.param(
            "long_context",
            "--stages 2 --stage-requests 4",
            [f"{tokens} prompt tokens" for tokens in (1000, 4000, 8000)],
            id="long_context",
        ),
        pytest.param(
            "shared_prefix",
            "--stages 4 --stage-seconds 2",
            ["0 shared prefix tokens", "1024 shared prefix tokens"],
            id="shared_prefix",
        ),
        pytest.param("agents", "--stages 2,4 --stage-seconds 2 --think-time 0.01", ["2 users", "4 users"], id="agents"),
        pytest.param(
            "mixed",
            "--stages 8 --stage-seconds 3",
            ["8 users, mixed", "6 users, chat alone", "2 users, documents alone"],
            id="mixed",
        ),
    ],
)
def test_a_scenario_runs_on_two_processes(tmp_path: Path, scenario: str, options: str, stages: list[str]) -> None:
    with ScriptedServer(Script(ttft=0.01, tpot=0.001, engine=ENGINE)) as server:
        locust = start(server, tmp_path, *options.split(), scenario=ROOT / f"loadtests/{scenario}.py", processes=2)
        output = locust.wait()
    assert "Traceback" not in output
    assert locust.process.returncode == 0, output
    assert [stage.label for stage in locust.meta.stages] == stages
    assert {one.worker for one in locust.records} == {"0", "1"}
    assert {one.outcome for one in locust.records} == {"ok"}
    assert {one.stage for one in locust.records} == set(range(len(stages)))
    planned = [one for one in locust.records if one.planned_prompt_tokens is not None]
    assert len(planned) > len(stages)
    assert {one.prompt_tokens == one.planned_prompt_tokens for one in planned} == {True}
