"""The scenarios that ask something special, shortened, on two processes. The server counts a token a word and seven."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from enginebench.records.request import RequestRecord
from tests.support.loadtests.locust_process import ROOT, Locust, start
from tests.support.servers.scripted import Script, ScriptedServer, tokens_of

ENGINE = {"name": "scripted", "features": ["ignore_eos"]}


def run(server: Any, folder: Path, scenario: str, *options: str, processes: int = 1) -> Locust:
    locust = start(server, folder, *options, scenario=ROOT / f"loadtests/{scenario}.py", processes=processes).finish()
    assert {one.worker for one in locust.records} == set(map(str, range(processes)))
    return locust


def by_stage(locust: Locust) -> dict[str, list[RequestRecord]]:
    found = defaultdict(list)
    for one in locust.records:
        stage = locust.meta.stages[one.stage]
        if one.t_sched >= (stage.steady_start or 0):  # before, users of the last stage may have been at work still
            found[stage.label].append(one)
    return found


def test_long_context_goes_as_far_as_the_server_does_and_says_so(tmp_path: Path) -> None:
    with ScriptedServer(Script(engine=ENGINE | {"context_length": 8100})) as server:
        locust = start(
            server, tmp_path, "--stages", "2", "--stage-requests", "2", "--warm-up", "0",
            scenario=ROOT / "loadtests/long_context.py", processes=2,
        )  # fmt: skip
        output = locust.wait(120)
    assert [stage.label for stage in locust.meta.stages] == [f"{n} prompt tokens" for n in (1000, 4000, 8000)]
    assert "Left out: 16000 prompt tokens do not fit into the server's context of 8100 tokens." in output
    assert {one.prompt_tokens for one in locust.records} == {1000, 4000, 8000}
    assert {tokens_of(body) for body in server.bodies} == {1000, 4000, 8000}


def test_conversations_go_on_from_the_real_answers(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        locust = run(
            server, tmp_path, "conversation", "--stages", "4", "--stage-seconds", "2.5", "--turns", "3",
            "--think-time", "0.05", "--prompt-tokens", "40", "--turn-tokens", "30", processes=2,
        )  # fmt: skip
    for body in server.bodies:
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]
        assert {m["content"] for m in body["messages"] if m["role"] == "assistant"} <= {"a a a a "}
    sessions = defaultdict(list)
    for one in sorted(locust.records, key=lambda record: record.t_sched):
        sessions[one.session].append(one)
    complete = [turns for turns in sessions.values() if len(turns) == 3]
    assert len(complete) >= 8
    for turns in complete:
        assert [one.turn for one in turns] == [0, 1, 2]
        assert [one.planned_prompt_tokens for one in turns] == [40, None, None]
        # Each turn adds an answer of four words, and 30 tokens of its own.
        assert [one.prompt_tokens for one in turns] == [40, 74, 108]
        pauses = [(b.t_sched - a.t_end) / 1e9 for a, b in pairwise(turns)]
        assert all(pause >= 0.05 for pause in pauses)
        assert len({one.user for one in turns}) == 1
    assert max(len(turns) for turns in sessions.values()) == 3


def test_a_shared_prefix_is_shared_in_its_stage_and_lengths_are_the_same_in_both(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        locust = run(
            server, tmp_path, "shared_prefix", "--stages", "3", "--stage-seconds", "1.5",
            "--shared-prefix-tokens", "0,100", "--prompt-tokens", "uniform:150-200", processes=2,
        )  # fmt: skip
    assert list(by_stage(locust)) == ["0 shared prefix tokens", "100 shared prefix tokens"]
    for found in by_stage(locust).values():
        assert {one.prompt_tokens == one.planned_prompt_tokens for one in found} == {True}
        assert all(150 <= (one.planned_prompt_tokens or 0) <= 200 for one in found)
    starts = Counter(" ".join(body["messages"][0]["content"].split()[:101]) for body in server.bodies)
    ((_, most),) = starts.most_common(1)
    of_stage = Counter(one.stage for one in locust.records)
    assert (most, len(starts)) == (of_stage[1], 1 + of_stage[0])


def test_agents_grow_their_prompts_within_a_context_to_which_they_are_scaled(tmp_path: Path) -> None:
    context = 4096  # a 32nd
    with ScriptedServer(Script(ttft=0.002, tpot=0.0005, engine=ENGINE | {"context_length": context})) as server:
        locust = run(
            server, tmp_path, "agents", "--stages", "4", "--stage-seconds", "4", "--think-time", "0.01", processes=2
        )
    first = [one for one in locust.records if one.turn == 0]
    assert {one.planned_prompt_tokens for one in first} == {156}
    assert {one.prompt_tokens for one in first} == {156}
    assert max(one.turn or 0 for one in locust.records) > 10
    assert all((one.prompt_tokens or 0) + (one.planned_output_tokens or 0) <= context for one in locust.records)
    assert max(one.planned_output_tokens or 0 for one in locust.records) <= 8000 / 32


def test_mixed_runs_its_classes_together(tmp_path: Path) -> None:
    classes = "chat: weight=3 prompt=50 output=8 slo=ttft_p95=0.5; long: weight=1 prompt=400 output=4"
    with ScriptedServer(Script(ttft=0.1)) as server:
        locust = run(
            server, tmp_path, "mixed", "--stages", "8", "--stage-seconds", "2.5", "--warm-up", "1.5",
            "--classes", classes, processes=2,
        )  # fmt: skip
    assert [stage.label for stage in locust.meta.stages] == ["8 users"]
    classes_by_user = {record.user: record.request_class for record in locust.records}
    assert Counter(classes_by_user.values()) == {"chat": 6, "long": 2}
    lengths = {(one.request_class, one.prompt_tokens, one.planned_output_tokens) for one in locust.records}
    assert lengths == {("chat", 50, 8), ("long", 400, 4)}
    assert locust.meta.workload["classes"] == classes


def test_users_grow_as_far_with_two_processes_as_with_one(tmp_path: Path) -> None:
    """Every answer is within the limit, so that users double until the time is over: nothing seems to be missed."""
    with ScriptedServer(Script(ttft=0.1)) as server:
        locust = run(
            server, tmp_path, "quick", "--slo", "ttft_p95=3", "--search-seconds", "24", "--output-tokens", "4",
            processes=2,
        )  # fmt: skip
    assert max(stage.load.value for stage in locust.meta.stages) >= 4
