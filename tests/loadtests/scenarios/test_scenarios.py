"""The scenario `single` as people run it, shortened: stages by prompt length."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.loadtests.locust_process import ROOT, Locust, start
from tests.support.servers.scripted import Script, ScriptedServer

SINGLE = ROOT / "loadtests/single.py"
LENGTHS = (10, 50, 100, 150, 200, 250, 300, 350, 400)


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> tuple[Locust, ScriptedServer]:
    """All nine stages, of 5 requests in place of 100."""
    with ScriptedServer(Script(ttft=0.01, tpot=0.002, tokens=2)) as server:
        folder = tmp_path_factory.mktemp("single")
        return start(server, folder, "--stage-requests", "5", scenario=SINGLE).finish(), server


def test_single_has_nine_stages_named_by_their_prompt_length(single: tuple[Locust, ScriptedServer]) -> None:
    locust, _ = single
    assert [stage.label for stage in locust.meta.stages] == [f"{tokens} prompt tokens" for tokens in LENGTHS]
    assert {stage.load.label for stage in locust.meta.stages} == {"1 user"}
    assert locust.meta.scenario == "single"
    assert locust.meta.workload["prompt_tokens"] == "10,50,100,150,200,250,300,350,400"
    assert (locust.meta.workload["stage_requests"], locust.meta.workload["output_tokens"]) == (5, "1")


def test_exactly_so_many_requests_are_counted_after_at_least_one_of_warm_up(
    single: tuple[Locust, ScriptedServer],
) -> None:
    locust, _ = single
    for stage in locust.meta.stages:
        window = locust.window(stage)
        assert len(window) == 5
        assert {one.stage for one in window} == {stage.index}
        warm_up = [one for one in locust.records if one.stage == stage.index and one.t_end <= (stage.steady_start or 0)]
        assert len(warm_up) >= 1
        assert all(one.t_end <= (stage.end or 0) for one in window)


def test_every_stage_asks_for_its_own_prompt_length(single: tuple[Locust, ScriptedServer]) -> None:
    locust, server = single
    asked = Counter((one.stage, one.planned_prompt_tokens, one.planned_output_tokens) for one in locust.records)
    assert {(index, length, 1) for index, length in enumerate(LENGTHS)} == asked.keys()
    # The scripted tokenizer counts words, and adds seven.
    words = Counter(len(body["prompt"].split()) for body in server.bodies)
    for index, length in enumerate(LENGTHS[1:], start=1):
        assert words[length - 7] == asked[index, length, 1]
    assert {body["max_tokens"] for body in server.bodies} == {1}


def test_lengths_given_by_flag_take_the_place_of_singles_own(tmp_path: Path) -> None:
    """With several processes the news that a window is full travels: at least so many are counted, and all answered."""
    with ScriptedServer() as server:
        locust = start(
            server, tmp_path, "--stage-requests", "5", "--prompt-tokens", "10,50", "--output-tokens", "64",
            "--stages", "4", scenario=SINGLE, processes=2,
        ).finish()  # fmt: skip
        asked = len(server.bodies)
    assert [stage.label for stage in locust.meta.stages] == ["10 prompt tokens", "50 prompt tokens"]
    for stage in locust.meta.stages:
        window = locust.window(stage)
        assert 5 <= len(window) < 60
        assert {one.planned_output_tokens for one in window} == {64}
        assert (stage.unserved_users, stage.unanswered) == (0, 0)
    assert len(locust.records) == asked
    assert {one.outcome for one in locust.records} == {"ok"}
    assert {one.worker for one in locust.records} == {"0", "1"}
