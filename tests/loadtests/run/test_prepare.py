"""Before a run: what is refused with a sentence, and leaves nothing behind."""

from dataclasses import replace
from pathlib import Path

import pytest

from loadtests.harness.run.prepare import prepare
from loadtests.harness.scenario import Scenario, tokens, users
from loadtests.harness.settings.run import RunSettings
from tests.support.servers.scripted import Script, ScriptedServer

SHORT = Scenario(stages=users("1"))
LONG = Scenario(stages=users("1"), prompt_tokens=tokens("1000,4000"))


def prepare_run(url: str, runs: Path) -> None:
    prepare("long", LONG, RunSettings(runs=runs), url, LONG.plan(), workers=1, hosts=1, grace=0.0)


def test_an_address_with_a_password_in_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="would appear in reports: set ENGINEBENCH_API_KEY instead"):
        prepare_run("http://me:word@localhost", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_address_without_http_is_taken_as_one(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        bare = server.url.removeprefix("http://")
        plan = prepare("short", SHORT, RunSettings(runs=tmp_path), bare, SHORT.plan(), 1, 1, grace=0.0)
    assert (plan.meta.url, plan.meta.label) == (server.url, "scripted")


def test_a_runs_prompts_are_its_own_unless_told_otherwise(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        own, same = (
            prepare("short", scenario, RunSettings(runs=tmp_path), server.url, scenario.plan(), 1, 1, grace=0.0)
            for scenario in (SHORT, replace(SHORT, same_prompts=True))
        )
    assert own.meta.workload["prompt_set"] == own.workload.prompt_set == own.meta.run_id
    assert same.meta.workload["prompt_set"] == same.workload.prompt_set == ""


def test_a_server_that_is_too_small_for_every_stage_is_refused(tmp_path: Path) -> None:
    with (
        ScriptedServer(Script(engine={"name": "scripted", "context_length": 500})) as server,
        pytest.raises(ValueError, match="the server's context of 500 tokens is too short for every stage"),
    ):
        prepare_run(server.url, tmp_path)
    assert list(tmp_path.iterdir()) == []
