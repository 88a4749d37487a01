"""The line protocol: nonsense is refused. What both sides write and read is recorded, for tests/engines/rust."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.contract.base import Chunk, EngineInfo, GenerateRequest, TokenLogprob, Usage
from engines.contract.protocol import (
    Cancel,
    ChunkReady,
    Done,
    Failed,
    Generate,
    ProtocolError,
    Ready,
    ToParent,
    decode_to_child,
    decode_to_parent,
    encode,
    encode_chunk,
)

INFO = EngineInfo("fake", "1", "python", "m", "float32", "cpu", "none", max_concurrency=1, context_length=8192)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(Done(1, "stop", Usage(0.1, 0.2, 3, 4, 5)), id="the engine's own figures"),
        pytest.param(Failed(1, "overloaded", "later", 2.5), id="overloaded"),
    ],
)
def test_what_the_child_writes_the_parent_reads(message: ToParent) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert decode_to_parent(line) == message


@given(st.text(), st.integers(0, 1000))
def test_a_chunk_formatted_by_hand_equals_the_encoded_one(text: str, tokens: int) -> None:
    chunk = Chunk(text, tokens)
    assert encode_chunk(3, chunk) == encode(ChunkReady(3, chunk))


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"not json\n", id="no JSON"),
        pytest.param(b"[1]\n", id="no object"),
        pytest.param(b"{}\n", id="no type"),
        pytest.param(b'{"type":"dance"}\n', id="an unknown type"),
        pytest.param(b'{"type":"cancel"}\n', id="no id"),
        pytest.param(b'{"type":"generate","id":1,"prompt":"x"}\n', id="fields missing"),
        pytest.param(b"[" * 100_000, id="a tower of brackets"),
        pytest.param(b'{"type":"ready","version":1,"info":"fast"}\n', id="text for an object"),
        pytest.param(encode(Ready(INFO)).replace(b'"max_concurrency":1', b'"max_concurrency":"1"'), id="text for a 1"),
        pytest.param(b'{"type":"done","id":1,"finish_reason":"stop","usage":[1]}\n', id="a list for an object"),
        pytest.param(b'{"type":"error","id":[],"kind":"internal","message":"no"}\n', id="a list for an id"),
        pytest.param(b'{"type":"error","id":1,"kind":"internal","message":null}\n', id="no message"),
        pytest.param(b'{"type":"error","id":1,"kind":"internal","message":"\\ud83e"}\n', id="half a character"),
    ],
)
def test_nonsense_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_to_child(line)
    with pytest.raises(ProtocolError):
        decode_to_parent(line)


@pytest.mark.parametrize("message", [ChunkReady(1, Chunk("a\ud83e☃", 1)), Failed(1, "internal", "a\ud83e☃")])
def test_half_a_character_is_replaced_and_the_line_can_be_read(message: ToParent) -> None:
    line = encode_chunk(1, message.chunk) if isinstance(message, ChunkReady) else encode(message)
    read = json.loads(line.decode())
    assert read.get("text", read.get("message")) == "a?☃"


def test_a_number_that_json_does_not_have_fails_where_it_is_written() -> None:
    """Its reader would take the line for a broken one, and end the engine with all its requests."""
    with pytest.raises(ValueError, match="JSON"):
        encode_chunk(1, Chunk("a", 1, None, (TokenLogprob("a", math.nan),)))


def test_stats_are_numbers() -> None:
    with pytest.raises(ProtocolError, match="`kv_cache_usage` is float"):
        decode_to_parent(b'{"type":"stats","kv_cache_usage":"0.5"}\n')


def test_unknown_fields_are_ignored_so_that_either_side_may_grow() -> None:
    assert decode_to_child(b'{"type":"cancel","id":1,"reason":"tired"}') == Cancel(1)
    grown = encode(Generate(1, GenerateRequest("p", (1,), 1)))[:-2] + b',"beam_width":4}\n'
    assert decode_to_child(grown) == Generate(1, GenerateRequest("p", (1,), 1))
