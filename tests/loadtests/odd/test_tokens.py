"""Which events of an odd stream are content, how many tokens it had, and what follows for TTFT, TTFO and TPOT.

Every event is a read of its own, 20 ms after the one before. The reads are prepared, so a row costs no socket.
"""

from __future__ import annotations

from typing import Any

import pytest

from enginebench.records.metrics import BY_NAME
from enginebench.records.request import RequestRecord
from loadtests.harness.client.dialects.endpoints import DIALECTS, Endpoint
from tests.support.loadtests.prepared_reads import observe
from tests.support.servers.dialect_answers import ANSWERS, aws_frame, named, whole
from tests.support.servers.wire_script import DONE, END, delta, event, finish, frame, token

GAP = 20_000_000  # nanoseconds
ROLE = delta(role="assistant", content="")
WORDS = [token()] * 4


def used(output: int | None, prompt: int | None = 7, **more: Any) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output, **more}})


def reasoned(output: int, reasoning: int) -> bytes:
    return used(output, completion_tokens_details={"reasoning_tokens": reasoning})


def choice(**fields: Any) -> bytes:
    return event({"choices": [{"index": 0, **fields}]})


def detail(**fields: Any) -> bytes:
    return delta(reasoning_details=[{"index": 0, **fields}])


def counting(output: int) -> bytes:
    """A chunk with the usage so far."""
    return event({"choices": [{"delta": {"content": "a"}}], "usage": {"completion_tokens": output}})


def think(per_chunk: int, begin: str = "<think>", end: str = "</think>") -> list[bytes]:
    """Reasoning of 21 tokens inside the content, and an answer of 9."""
    text = [begin, *[" hm"] * 19, end, *[" word"] * 9]
    return [token("".join(text[k : k + per_chunk])) for k in range(0, len(text), per_chunk)]


def observed(record: RequestRecord) -> dict[str, Any]:
    """`first` and `out` count events up to the first token, and up to the first of the answer."""
    assert record.t_headers is not None
    tpot = BY_NAME["tpot"].read(record)
    since = {"first": record.t_first, "out": record.t_first_out}
    return {
        **{name: None if stamp is None else (stamp - record.t_headers) // GAP for name, stamp in since.items()},
        "chunks": record.chunks,
        "tpot": None if tpot is None else round(1000 * tpot, 3),
        "tokens": record.output_tokens,
        "reported": record.reported_tokens,
        "of_first": record.first_chunk_tokens,
        "prompt": record.prompt_tokens,
        "reasoning": record.reasoning_tokens,
        "unseen": record.unseen_tokens,
        "unknown": record.unknown_text,
        "text": record.text,
    }


CHAT: list[Any] = [
    pytest.param(
        [*WORDS, used(4)], {"first": 1, "out": 1, "tpot": 20, "tokens": 4, "reported": None, "of_first": 1},
        id="a plain stream",
    ),
    pytest.param([*WORDS, used(9)], {"tokens": 9, "of_first": None}, id="more tokens than chunks"),
    pytest.param([counting(3), token(), used(4)], {"tokens": 4, "of_first": 3}, id="a first chunk with its count"),
    pytest.param([*WORDS, used(0, 0)], {"tpot": None, "tokens": None, "reported": 0, "prompt": None}, id="usage 0/0"),
    pytest.param(
        [*WORDS, used(3)], {"tpot": None, "tokens": None, "reported": 3, "prompt": 7}, id="usage of too few tokens"
    ),
    pytest.param([token(), used(0)], {"tokens": None, "reported": 0}, id="usage 0 for a single chunk"),
    pytest.param([ROLE, used(0)], {"first": None, "tokens": 0, "reported": None}, id="usage 0 for an empty answer"),
    pytest.param([*WORDS, used(4), used(0, 0)], {"tpot": 20, "tokens": 4, "prompt": 7}, id="0/0 after the truth"),
    pytest.param([*WORDS, event({"choices": [], "usage": {}})], {"tokens": None, "reported": None}, id="usage {}"),
    pytest.param([*WORDS, used(None)], {"tokens": None, "reported": None}, id="usage null"),
    pytest.param([*map(counting, (1, 2, 3))], {"tpot": 20, "tokens": 3, "of_first": 1}, id="cumulative usage"),
    pytest.param(
        [*map(counting, (22, 23, 24)), reasoned(24, 21)], {"tpot": 20, "tokens": 24, "unseen": 21, "of_first": 1},
        id="cumulative usage that begins with hidden reasoning",
    ),
    pytest.param(
        [*[detail(type="reasoning.text", text="hm")] * 4, *WORDS, used(8)],
        {"first": 1, "out": 5, "tpot": 20, "tokens": 8, "unknown": None}, id="reasoning_details",
    ),
    pytest.param(
        [delta(reasoning="hm", reasoning_details=[{"type": "reasoning.text", "text": "hm"}]), token("a")],
        {"first": 1, "out": 2, "chunks": 2, "text": "hma"}, id="reasoning under two names",
    ),
    pytest.param(
        [detail(type="reasoning.summary", summary="hm"), *WORDS, used(5)],
        {"first": 1, "out": 2, "tpot": 20, "unknown": None}, id="a summary of the reasoning",
    ),
    pytest.param(
        [detail(type="reasoning.encrypted", data="QUJD"), *WORDS, used(4)], {"first": 2, "out": 2, "tpot": 20},
        id="encrypted reasoning is no text",
    ),
    pytest.param(
        [delta(musing="hm"), delta(musing="hm"), *WORDS, used(6)],
        {"first": 1, "out": 3, "tpot": 20, "unknown": "musing"}, id="an unknown field",
    ),
    pytest.param(
        [delta(musing=[{"deep": {"down": "hm"}}], content=""), token()], {"first": 1, "out": 2, "unknown": "down"},
        id="deep inside one",
    ),
    pytest.param(
        [delta(**{f"field {n}": "x" for n in range(9)})],
        {"first": 1, "out": None, "unknown": "field 0, field 1, field 2, field 3, field 4"},
        id="more of them than are named",
    ),
    pytest.param(
        [delta(role="assistant", id="x", type="text", index=3, annotations=[{"title": "x"}]), token()],
        {"first": 2, "chunks": 1, "unknown": None}, id="metadata is no content",
    ),
    pytest.param(
        [delta(audio={"id": "a", "transcript": "hi"})], {"first": 1, "out": 1, "text": "hi"}, id="spoken words"
    ),
    pytest.param(
        [delta(content=[{"type": "reasoning", "text": "hm"}]), delta(content={"text": "a"})],
        {"first": 1, "out": 2, "text": "hma"}, id="parts of content with types",
    ),
    pytest.param(
        [delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]), token("yes")],
        {"first": 1, "out": 2, "text": "hmyes"}, id="parts with reasoning inside, as Mistral's servers have it",
    ),
    pytest.param(
        [*[delta(reasoning_content="hm")] * 2, *WORDS, reasoned(6, 2)], {"tpot": 20, "reasoning": 2, "unseen": 0},
        id="reasoning that is shown and counted",
    ),
    pytest.param(
        [choice(delta="a"), choice(delta="b")], {"first": 1, "out": 1, "text": "ab"}, id="a delta that is text"
    ),
    pytest.param([*think(1), reasoned(30, 21)], {"first": 1, "tpot": 20, "tokens": 30, "reasoning": 21}, id="<think>"),
    pytest.param(
        [*think(5), reasoned(30, 21)], {"chunks": 6, "tpot": 4, "unseen": 0}, id="<think>, five tokens a chunk"
    ),
    pytest.param(
        [*think(5, "[THINK]", "[/THINK]"), reasoned(30, 21)], {"chunks": 6, "tpot": 4, "unseen": 0}, id="[THINK]"
    ),
    pytest.param(
        [*[token()] * 9, reasoned(30, 21)], {"tpot": 20, "tokens": 30, "unseen": 21, "reasoning": 21},
        id="hidden reasoning",
    ),
    pytest.param(
        [*[token()] * 9, used(30, reasoning_tokens=21)], {"tpot": 20, "unseen": 21, "reasoning": 21}, id="top level"
    ),
    pytest.param(
        [*WORDS, used(4, reasoning_tokens=3, completion_tokens_details={"reasoning_tokens": None})],
        {"tpot": 20, "unseen": 0, "reasoning": 3}, id="top level, and null in the details",
    ),
    pytest.param(
        [*WORDS, reasoned(4, 21)], {"tpot": 20, "tokens": 4, "unseen": 0}, id="reasoning that is no part of it"
    ),
    pytest.param(
        [event({"choices": [], "prompt_filter_results": [{"text": "x"}]}), ROLE, token(), token(), used(2)],
        {"first": 3, "out": 3, "tpot": 20, "tokens": 2}, id="Azure's first chunk",
    ),
    pytest.param(
        [token(), choice(content_filter_offsets={"start": 0}, content_filter_results={"hate": "safe"}), token()],
        {"first": 1, "chunks": 2}, id="a filter's chunk without a delta",
    ),
    pytest.param(
        [token(), choice(delta=None, finish_reason=""), choice(delta={}, finish_reason=7), token(), used(2)],
        {"first": 1, "chunks": 2, "tpot": 60, "tokens": 2}, id="null deltas and odd finish reasons",
    ),
]  # fmt: skip


def written(endpoint: Endpoint, events: list[bytes]) -> list[bytes]:
    """The reads of a whole stream."""
    return [ANSWERS[endpoint].head, *map(frame, events), END]


@pytest.mark.parametrize(("events", "expected"), CHAT)
def test_a_chat_stream(events: list[bytes], expected: dict[str, Any]) -> None:
    seen = observe(*written("chat", [*events, finish() + DONE]), gap=GAP)
    assert (seen.outcome, seen.detail) == ("ok", None)
    assert {name: observed(seen)[name] for name in expected} == expected


def block(**fields: Any) -> bytes:
    return named("content_block_delta", index=0, delta=fields)


def stop(output: int) -> bytes:
    return named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": output}) + named(
        "message_stop"
    )


def completed(output: int, reasoning: int = 0) -> bytes:
    usage = {"input_tokens": 7, "output_tokens": output, "output_tokens_details": {"reasoning_tokens": reasoning}}
    return named("response.completed", response={"status": "completed", "output": [], "usage": usage})


def part(kind: str, text: str = "hm") -> bytes:
    return named(f"response.{kind}.delta", delta=text)


def converse(**fields: Any) -> bytes:
    return aws_frame({"delta": fields}, event_type="contentBlockDelta")


def metadata(output: int) -> bytes:
    return aws_frame({"usage": {"inputTokens": 7, "outputTokens": output}}, event_type="metadata")


OTHERS: list[Any] = [
    pytest.param("messages", [*[block(text="a")] * 3, stop(0)], {"tokens": None, "reported": 0}, id="messages: 0"),
    pytest.param("messages", [*[block(text="a")] * 3, stop(2)], {"tokens": None, "reported": 2}, id="messages: few"),
    pytest.param(
        "messages",
        [block(type="musing_delta", musing="hm"), block(type="signature_delta", signature="x"), block(text="a")],
        {"first": 1, "out": 3, "chunks": 2, "unknown": "musing"}, id="messages: an unknown field",
    ),
    pytest.param(
        "responses", [*[part("output_text")] * 3, completed(0)], {"tokens": None, "reported": 0}, id="resp: 0"
    ),
    pytest.param(
        "responses", [*[part("output_text")] * 3, completed(2)], {"tokens": None, "reported": 2}, id="responses: few"
    ),
    pytest.param(
        "responses", [part("musing"), part("reasoning_summary_text"), *[part("output_text")] * 2, completed(4, 2)],
        {"first": 1, "out": 3, "tpot": 20, "unseen": 0, "unknown": "musing"}, id="responses: an unknown field",
    ),
    pytest.param("bedrock", [*[converse(text="a")] * 3, metadata(0)], {"tokens": None, "reported": 0}, id="bedrock: 0"),
    pytest.param(
        "bedrock",
        [converse(musing="hm"), converse(reasoningContent={"signature": "x"}), converse(text="a"), metadata(2)],
        {"first": 1, "out": 3, "tpot": 40, "unknown": "musing"}, id="bedrock: an unknown field",
    ),
    pytest.param(
        "completions", [choice(text="a"), choice(text="b"), used(0) + finish() + DONE], {"tokens": None, "reported": 0},
        id="completions: 0",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("endpoint", "events", "expected"), OTHERS)
def test_a_stream_of_another_api(endpoint: Endpoint, events: list[bytes], expected: dict[str, Any]) -> None:
    pieces = [ANSWERS["chat" if endpoint == "completions" else endpoint].head, *map(frame, events), END]
    seen = observe(*pieces, gap=GAP, answer=DIALECTS[endpoint].answer)
    assert {name: observed(seen)[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("usage", "tokens", "reported"),
    [
        pytest.param({"completion_tokens": 3}, 3, None, id="as it should be"),
        pytest.param({"completion_tokens": 0, "prompt_tokens": 0}, None, 0, id="zero"),
        pytest.param({}, None, None, id="nothing"),
    ],
)
def test_the_usage_of_a_whole_answer(usage: dict[str, int], tokens: int | None, reported: int | None) -> None:
    message = {"content": "some words", "reasoning_details": [{"type": "reasoning.text", "text": "hm "}]}
    seen = observe(whole({"choices": [{"message": message}], "usage": usage}), streamed=False)
    assert (seen.outcome, seen.output_tokens, seen.reported_tokens) == ("ok", tokens, reported)
    assert seen.text == (None if tokens else "hm some words"), "it is kept where its tokens are still to be counted"


def test_an_unknown_field_in_a_long_stream_costs_no_content() -> None:
    """Nearly equal events are read together; these are not, because their field is to be named."""
    events = [delta(musing=f"{n} ") for n in range(200)]
    seen = observe(*written("chat", [*events, used(200), finish() + DONE]), gap=GAP)
    assert (seen.chunks, seen.output_tokens, seen.unknown_text) == (200, 200, "musing")
    assert seen.icl == (GAP,) * 199
