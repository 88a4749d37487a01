"""Prompts have the tokens that were planned, by the server's own count: with several tokenizers, kinds and lengths."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from enginebench.settings.schema import UserMistake
from engines.models.fetch import fetch_model
from loadtests.harness.client.authentication import Access
from loadtests.harness.client.dialects.endpoints import Endpoint
from loadtests.harness.run.fitting import fitted
from loadtests.harness.run.model_prompts import prompt_source_for
from loadtests.harness.run.target import Target
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run_settings import RunSettings
from loadtests.harness.workload.lengths import Lengths
from loadtests.harness.workload.prompt_source import PromptSource
from loadtests.harness.workload.prompt_words import Kind
from loadtests.harness.workload.workload import Workload
from tests.support.servers.scripted import Script, ScriptedServer
from tests.support.servers.served import RunningServer, served

LENGTHS = Lengths("uniform", 120, 1500)


@pytest.fixture(scope="module")
def bytes_server() -> Iterator[RunningServer]:
    """Its tokenizer makes a token of each byte."""
    with served() as running:
        yield running


@pytest.fixture(scope="module")
def tokenizer() -> Path:
    """The byte-pair tokenizer of the model that comes with the program."""
    return fetch_model().folder


def source(url: str, model: str, endpoint: Endpoint, kind: Kind, file: Path | None = None) -> PromptSource:
    with Target(url, Access()) as target:
        return prompt_source_for(target, model, endpoint, kind, file, lambda text: None)


def workload(made_of: PromptSource, model: str, endpoint: Endpoint) -> Workload:
    return Workload(
        model=model, endpoint=endpoint, streamed=False, prompt_tokens=LENGTHS, output_tokens=Lengths("fixed", 1),
        source=made_of, seed=1, prompt_set="a set", shared_prefix_tokens=50,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("endpoint", "kind"),
    [
        pytest.param("chat", "words", id="words in a chat"),
        pytest.param("completions", "words", id="words as text"),
        pytest.param("completions", "ids", id="token ids"),
    ],
)
def test_all_requests_have_the_tokens_that_were_planned(
    bytes_server: RunningServer, endpoint: Endpoint, kind: Kind
) -> None:
    made_of = source(bytes_server.url, "fake", endpoint, kind)
    assert made_of.length_measured
    for user in range(3):
        asks = workload(made_of, "fake", endpoint).requests_of(user)
        for _ in range(20):
            ask = asks.next({})
            answer = bytes_server.client.post(ask.path, json=json.loads(ask.body)).json()
            assert answer["usage"]["prompt_tokens"] == ask.record.planned_prompt_tokens


def test_a_byte_pair_tokenizer_is_met_exactly(tokenizer: Path) -> None:
    """The file stands for the server's /tokenize, which the scripted server lacks."""
    from tokenizers import Tokenizer

    count = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    with ScriptedServer(Script(tokenizes=False)) as server:
        made_of = source(server.url, "scripted-model", "completions", "words", tokenizer)
    assert made_of.length_measured
    assert len(made_of.words) > 200
    assert {cost for _, cost in made_of.words} == {1}
    rng = Random(5)
    for tokens in [LENGTHS.draw(rng) for _ in range(200)]:
        text = made_of.prompt(tokens, rng, 64, "a seed")
        assert len(count.encode(text).ids) == tokens
    ids = [made_of.prompt(40, rng).split()[1:4] for _ in range(50)]
    assert len({tuple(words) for words in ids}) == 50


@pytest.mark.parametrize("kind", ["words", "ids"])
def test_a_tokenizer_that_cuts_some_words_is_met_exactly(kind: Kind) -> None:
    """That of a model with random weights, made of few merges: an eighth of the words is two tokens or three."""
    folder = fetch_model("random:llama-3.2-tiny").folder
    with ScriptedServer(Script(tokenizes=False)) as server:
        made_of = source(server.url, "scripted-model", "completions", kind, folder)
    assert made_of.length_measured
    assert len(made_of.words) == 194
    assert kind == "words" or len(made_of.token_ids(40, Random(5))) == 40


def test_the_chat_template_is_known_from_the_servers_own_count(tokenizer: Path, tmp_path: Path) -> None:
    shutil.copy(tokenizer / "tokenizer.json", tmp_path)
    with ScriptedServer(Script(tokenizes=False)) as server, Target(server.url, Access()) as target:
        made_of = prompt_source_for(target, "m", "chat", "words", tmp_path, lambda text: 31)
        assert (made_of.template, made_of.length_measured) == (31, True)
        unknown = prompt_source_for(target, "m", "chat", "words", tmp_path, lambda text: None)
        assert (unknown.template, unknown.length_measured) == (1, False)


def test_where_only_texts_can_be_counted_the_chat_template_is_known_from_usage() -> None:
    """Of the scripted server it is seven tokens, and the start of each prompt is one."""
    with ScriptedServer(Script(tokenizes_chats=False, engine=None)) as server, Target(server.url, Access()) as target:
        found, _ = fitted(target, Scenario(), RunSettings())
        assert (found.source.template, found.source.instruction, found.source.length_measured) == (8, 8, True)
        unknown = prompt_source_for(target, "m", "chat", "words", None, lambda text: None)
        assert (unknown.template, unknown.length_measured) == (1, False)
        texts = prompt_source_for(target, "m", "completions", "words", None, lambda text: None)
        assert (texts.template, texts.length_measured) == (1, True)


@pytest.mark.parametrize(
    ("endpoint", "kind", "file", "sentence"),
    [
        pytest.param("chat", "ids", None, "--endpoint completions", id="ids in a chat"),
        pytest.param("completions", "ids", None, "give --tokenizer", id="ids of an unknown tokenizer"),
        pytest.param("chat", "words", Path("/nowhere"), "no tokenizer.json", id="no such file"),
        pytest.param("chat", "words", Path(__file__), "is not a tokenizer", id="another file"),
    ],
)
def test_what_cannot_be_counted_gets_a_sentence(
    endpoint: Endpoint, kind: Kind, file: Path | None, sentence: str
) -> None:
    with ScriptedServer(Script(tokenizes=False)) as server, pytest.raises(UserMistake, match=sentence):
        source(server.url, "scripted-model", endpoint, kind, file)


def test_a_tokenizer_whose_pieces_do_not_add_up_is_noticed() -> None:
    from loadtests.harness.workload.piece_tokens import measured

    made_of = measured(
        lambda text: 7 + len(text.split()) + len(text) // 500, lambda text: list(map(hash, text.split())), "words"
    )
    assert made_of is not None
    assert not made_of.length_measured
