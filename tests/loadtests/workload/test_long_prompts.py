"""A prompt of half a megabyte is written in moments, so that it does not delay what else is due."""

from __future__ import annotations

import _socket
import dataclasses
import json
import socket
from collections.abc import Iterator
from random import Random
from time import thread_time

import pytest

from loadtests.harness.client.stamped_connection import WRITE_BYTES, Connection
from loadtests.harness.workload.prompt_source import LONG, PromptSource
from loadtests.harness.workload.prompt_words import INSTRUCTION, START, WORDS
from loadtests.harness.workload.workload import prompt_id
from tests.loadtests.workload.test_workload import A_TOKEN_A_WORD, PLAIN, asks

COSTLY = PromptSource("words", 4, 6, tuple((word, len(word)) for word in WORDS))
IDS = PromptSource("ids", 4, 6, A_TOKEN_A_WORD.words, ids=tuple(range(100, 1100)))
TOKENS = 128_000


@pytest.fixture
def pair() -> Iterator[tuple[Connection, socket.socket]]:
    """A connection with more room in the kernel than a long prompt needs, and its other end."""
    listener = socket.create_server(("127.0.0.1", 0))
    near = _socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
    near.connect(listener.getsockname())
    near.setblocking(False)
    far, _ = listener.accept()
    yield Connection(near), far
    for one in (near, far, listener):
        one.close()


def test_a_long_message_goes_out_in_pieces_and_arrives_whole(pair: tuple[Connection, socket.socket]) -> None:
    connection, far = pair
    message = Random(1).randbytes(500_000)
    connection.prepare(message)
    arrived, writes = b"", 0
    complete = False
    while not complete:
        complete = connection.send()
        writes += 1
        while len(arrived) < min(writes * WRITE_BYTES, len(message)):
            arrived += far.recv(1_000_000)
        assert len(arrived) <= writes * WRITE_BYTES, "no more than a piece at a time"
        assert connection.is_idle() == complete
    assert arrived == message
    assert writes == -(-500_000 // WRITE_BYTES)


def cpu_seconds(source: PromptSource) -> float:
    """The least of several prompts: other work on the machine must not count."""
    rng, found = Random(5), []
    for _ in range(5):
        began = thread_time()
        if source.kind == "ids":
            source.token_ids(TOKENS, rng)
        else:
            source.prompt(TOKENS, rng)
        found.append(thread_time() - began)
    return min(found)


@pytest.mark.parametrize("source", [A_TOKEN_A_WORD, COSTLY, IDS], ids=["words", "costly words", "ids"])
def test_a_long_prompt_takes_a_fraction_of_what_drawing_it_word_by_word_takes(source: PromptSource) -> None:
    began = thread_time()
    Random(5).choices(WORDS, k=TOKENS)
    assert cpu_seconds(source) < 0.4 * (thread_time() - began)


@pytest.mark.parametrize("tokens", [LONG - 1, LONG, LONG + 1, 5000, TOKENS])
def test_a_long_prompt_has_exactly_its_tokens(tokens: int) -> None:
    rng = Random(tokens)
    words = A_TOKEN_A_WORD.prompt(tokens, rng).split()
    assert len(words) - 1 - 8 == tokens - 12 - 8, "the instruction has eight words too, the template twelve tokens"
    assert len(IDS.token_ids(tokens, rng)) == tokens
    text = COSTLY.prompt(tokens, rng).removeprefix(START).removesuffix(INSTRUCTION)
    assert 4 + 6 + len(text) == tokens, "a token a character; the template has four, the instruction six"


def test_long_prompts_differ_from_their_beginning_on() -> None:
    long = dataclasses.replace(PLAIN, prompt_tokens=dataclasses.replace(PLAIN.prompt_tokens, a=6000))
    asked = [json.loads(one.body)["messages"][0]["content"].split() for one in asks(long, count=20)]
    assert len({tuple(words[:8]) for words in asked}) == 20
    rng = Random(1)
    assert len({IDS.token_ids(6000, rng)[:8] for _ in range(20)}) == 20


def test_a_prompt_of_token_ids_has_an_id_of_its_own() -> None:
    assert prompt_id((1, 2, 3)) == prompt_id((1, 2, 3))
    assert len({prompt_id(ids) for ids in ((1, 2, 3), (1, 2, 4), (12, 3), (1, 23))}) == 4
