"""What users ask: of the wanted length, never twice the same, and the same again for the same seed."""

import dataclasses
import itertools
import json
from random import Random
from typing import Any

import pytest

from loadtests.harness.run.target import Target, Unfit
from loadtests.harness.workload.lengths import Lengths, parse_lengths
from loadtests.harness.workload.workload import INSTRUCTION, WordTokens, Workload
from tests.support.scripted import Script, ScriptedServer

PLAIN = Workload(
    model="some-model",
    endpoint="chat",
    streamed=True,
    prompt_tokens=Lengths("fixed", 40),
    shared_prefix_tokens=0,
    output_tokens=Lengths("fixed", 16),
    temperature=0.0,
    ignore_eos=False,
    seed=0,
    word_tokens=WordTokens(overhead=20, per_word=1, measured=True),
)


def bodies(workload: Workload, user: int = 0, count: int = 100) -> list[dict[str, Any]]:
    return [json.loads(call.body) for call in itertools.islice(workload.calls(user), count)]


def words(body: dict[str, Any]) -> list[str]:
    text: str = body["messages"][0]["content"]
    return text.removesuffix(INSTRUCTION).split()


@pytest.mark.parametrize(
    ("text", "low", "high", "middle"),
    [
        pytest.param("64", 64, 64, 64, id="a number is that number"),
        pytest.param("uniform:16-128", 16, 128, 72, id="uniform reaches both ends"),
        pytest.param("lognormal:64,0.5", 1, 640, 64, id="lognormal scatters around its median, cut at ten times it"),
    ],
)
def test_lengths_are_drawn_as_told(text: str, low: int, high: int, middle: int) -> None:
    rng = Random(1)
    drawn = sorted(parse_lengths(text).draw(rng) for _ in range(20_000))
    assert drawn[0] >= low
    assert drawn[-1] <= high
    assert drawn[10_000] == pytest.approx(middle, rel=0.05)
    if text.startswith("uniform"):
        assert (drawn[0], drawn[-1]) == (16, 128)
    assert str(parse_lengths(text)) == text


@pytest.mark.parametrize("text", ["", "0", "-3", "many", "uniform:9-3", "uniform:5", "lognormal:64", "1.5"])
def test_wrong_lengths_get_a_sentence_with_the_grammar(text: str) -> None:
    with pytest.raises(ValueError, match="uniform:16-128"):
        parse_lengths(text)


def test_no_two_requests_are_alike() -> None:
    asked = [tuple(words(body)[:4]) for user in range(50) for body in bodies(PLAIN, user, 20)]
    assert len(set(asked)) == 1000


def test_the_same_seed_asks_the_same_and_another_seed_does_not() -> None:
    assert bodies(PLAIN, user=3) == bodies(PLAIN, user=3)
    other = dataclasses.replace(PLAIN, seed=1)
    assert not {tuple(words(b)) for b in bodies(PLAIN)} & {tuple(words(b)) for b in bodies(other)}


def test_a_prompt_has_the_words_that_make_its_tokens() -> None:
    assert {len(words(body)) for body in bodies(PLAIN)} == {20}  # 40 tokens less 20 of overhead
    longer = dataclasses.replace(PLAIN, word_tokens=WordTokens(overhead=10, per_word=1.25, measured=True))
    assert {len(words(body)) for body in bodies(longer)} == {24}
    tiny = dataclasses.replace(PLAIN, prompt_tokens=Lengths("fixed", 1))
    assert {len(words(body)) for body in bodies(tiny)} == {4}


def test_a_shared_prefix_is_the_same_for_all_and_the_rest_is_not() -> None:
    workload = dataclasses.replace(PLAIN, prompt_tokens=Lengths("fixed", 60), shared_prefix_tokens=30)
    asked = [words(body) for user in range(5) for body in bodies(workload, user, 10)]
    assert {len(prompt) for prompt in asked} == {40}
    assert len({tuple(prompt[:30]) for prompt in asked}) == 1
    assert len({tuple(prompt[30:]) for prompt in asked}) == 50


@pytest.mark.parametrize(
    ("changes", "path", "has", "lacks"),
    [
        pytest.param({}, "/v1/chat/completions", {"stream": True, "max_tokens": 16, "temperature": 0.0},
                     {"ignore_eos", "seed", "prompt"}, id="a streamed chat is greedy and asks for usage"),
        pytest.param({"endpoint": "completions"}, "/v1/completions", {"stream": True}, {"messages"},
                     id="completions have a prompt"),
        pytest.param({"streamed": False}, "/v1/chat/completions", {}, {"stream", "stream_options"},
                     id="a whole answer is asked for without a word about streams"),
        pytest.param({"ignore_eos": True}, "/v1/chat/completions", {"ignore_eos": True}, set(),
                     id="ignore_eos is sent only where asked for"),
    ],
)  # fmt: skip
def test_bodies(changes: dict[str, Any], path: str, has: dict[str, Any], lacks: set[str]) -> None:
    workload = dataclasses.replace(PLAIN, **changes)
    call = next(workload.calls(0))
    body = json.loads(call.body)
    assert call.path == path
    assert call.streamed == body.get("stream", False)
    assert has.items() <= body.items()
    assert not lacks & body.keys()
    if call.streamed:
        assert body["stream_options"] == {"include_usage": True}


def test_sampled_answers_carry_a_seed_of_their_own() -> None:
    seeds = [body["seed"] for body in bodies(dataclasses.replace(PLAIN, temperature=0.7))]
    assert len(set(seeds)) == 100


def test_the_servers_own_tokenizer_says_how_many_words_make_a_prompt() -> None:
    with ScriptedServer() as server, Target(server.url, {}, insecure=False) as target:
        measured = target.word_tokens("scripted-model", "chat")
        # The scripted tokenizer counts words and adds seven for a template; the instruction has eight words.
        assert measured == WordTokens(overhead=15.0, per_word=1.0, measured=True)
        assert target.model(None) == "scripted-model"
        assert target.model("another") == "another"
        assert target.engine() == {"name": "scripted", "features": ["ignore_eos"]}


def test_a_server_without_the_extra_pages_will_do() -> None:
    script = Script(tokenizes=False, engine=None)
    with ScriptedServer(script) as server, Target(server.url, {}, insecure=False) as target:
        assert not target.word_tokens("scripted-model", "chat").measured
        assert target.engine() is None


def test_a_server_that_is_not_there_gets_a_sentence() -> None:
    with Target("http://127.0.0.1:9", {}, insecure=False) as target, pytest.raises(Unfit, match="cannot reach"):
        target.model(None)


def test_a_server_that_lists_no_model_asks_for_one() -> None:
    script = Script(models=())
    with (
        ScriptedServer(script) as server,
        Target(server.url, {}, insecure=False) as target,
        pytest.raises(Unfit, match="--model"),
    ):
        target.model(None)
