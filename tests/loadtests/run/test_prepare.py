"""Before a run: what is refused with a sentence, and leaves nothing behind."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from enginebench.settings.schema import UserMistake
from loadtests.harness.run.prepare import prepare
from loadtests.harness.scenario import Scenario, slo, tokens, users
from loadtests.harness.settings.run_settings import RunSettings
from tests.support.servers.odd import Odd, OddServer, answer
from tests.support.servers.scripted import Script, ScriptedServer
from tests.support.servers.wire_script import Step, json_answer, token

SHORT = Scenario(stages=users("1"))
LONG = Scenario(stages=users("1"), prompt_tokens=tokens("1000,4000"))


def prepare_run(url: str, runs: Path) -> None:
    prepare("long", LONG, RunSettings(runs=runs), url, LONG.plan(), processes=(0,), hosts=1, grace=0.0)


def test_an_address_without_http_is_taken_as_one(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        bare = server.url.removeprefix("http://")
        plan = prepare("short", SHORT, RunSettings(runs=tmp_path), bare, SHORT.plan(), (0,), 1, grace=0.0)
    assert (plan.meta.url, plan.meta.label) == (server.url, "scripted")


def test_a_runs_prompts_are_its_own_unless_told_otherwise(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        own, same = (
            prepare("short", scenario, RunSettings(runs=tmp_path), server.url, scenario.plan(), (0,), 1, grace=0.0)
            for scenario in (SHORT, replace(SHORT, seed=7))
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


COUNTED = answer(token(), token(), usage={"prompt_tokens": 7, "completion_tokens": 2})
UNCOUNTED = answer(token(), token(), usage={"prompt_tokens": 0, "completion_tokens": 0})


@pytest.mark.parametrize(
    ("chat", "objectives", "refused"),
    [
        pytest.param(COUNTED, "tpot_p90=0.1", None, id="tokens that are counted"),
        pytest.param(UNCOUNTED, "ttft_p90=1", None, id="no tokens are needed"),
        pytest.param(UNCOUNTED, "ttft_p90=1,tpot_p90=0.1", "tpot_p90", id="a usage of zero"),
        pytest.param(answer(token(), token()), "ntpot_p90=0.1", "ntpot_p90", id="no usage"),
        pytest.param(answer(usage={"prompt_tokens": 7, "completion_tokens": 0}), "tpot_p90=1", None, id="no answer"),
    ],
)
def test_a_search_by_tokens_needs_their_number(
    chat: list[Step], objectives: str, refused: str | None, tmp_path: Path
) -> None:
    scenario = Scenario(by="users", slo=slo(objectives))
    with OddServer(Odd(chat=chat)) as server:
        settings = RunSettings(runs=tmp_path)
        ask = partial(prepare, "capacity", scenario, settings, server.url, scenario.plan(), (0,), 1, 0.0)
        if refused is None:
            ask()
            return
        with pytest.raises(UserMistake) as mistake:
            ask()
    assert str(mistake.value) == (
        f"{refused} cannot be judged by a search: the server's answers have no token counts. Search by ttft, e2e or "
        "failures, or test fixed --stages and name the model's --tokenizer."
    )


@pytest.mark.parametrize(("size", "kept"), [(1000, True), (70_000, False)])
def test_what_a_server_says_of_its_engine_is_short_or_not_kept(size: int, kept: bool, tmp_path: Path) -> None:
    facts = {"name": "odd", "options": {"notes": "x" * size}}
    with OddServer(Odd(routes={"/v1/engine": [json_answer("200 OK", facts)]})) as server:
        plan = prepare("short", SHORT, RunSettings(runs=tmp_path), server.url, SHORT.plan(), (0,), 1, grace=0.0)
    assert plan.meta.engine == (facts if kept else None)
