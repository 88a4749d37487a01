"""Every byte of an answer, against OpenAI's own types and against what was put in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from engines.contract.base import TokenLogprob, Usage
from engines.process.stream import ReceivedChunk
from servers.openai.wire import ChatWire, Ending, TextWire

ENDING = Ending("length", prompt_tokens=7, completion_tokens=5, queue=0.25, prefill=0.5, decode=1.5)
TEXTS = [" plain", ' "quoted" \\ and / slashed', "\n\ttabs and \x00\x1f controls", " é漢字🙂", "\u2028", "\ud83d"]


def heard(text: str, tokens: int = 1, logprobs: tuple[TokenLogprob, ...] = ()) -> ReceivedChunk:
    return ReceivedChunk(1, text, tokens, logprobs)


def events(data: bytes) -> list[Any]:
    parts = data.split(b"\n\n")
    assert parts.pop() == b""
    return [None if part == b"data: [DONE]" else json.loads(part.removeprefix(b"data: ")) for part in parts]


def declared(kind: str, data: Any) -> Any:
    """Read by the official client's own type, which is imported when it is first used."""
    from openai import types
    from openai.types import chat

    kinds: dict[str, Any] = {"chat": chat.ChatCompletion, "chunk": chat.ChatCompletionChunk, "text": types.Completion}
    return kinds[kind].model_validate_json(data) if isinstance(data, bytes) else kinds[kind].model_validate(data)


def chat(**options: Any) -> ChatWire:
    return ChatWire("a-model", "fp_1", 7, **options)


def text(**options: Any) -> TextWire:
    return TextWire("a-model", "fp_1", 7, **options)


def test_chunks_that_are_ready_together_are_one_event_each() -> None:
    chunks = events(chat().chunks([heard(one) for one in TEXTS]))
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [{"content": one} for one in TEXTS]
    chunks = events(text().chunks([heard(one) for one in TEXTS]))
    assert [chunk["choices"][0]["text"] for chunk in chunks] == TEXTS


def test_a_chunk_without_text_is_no_event() -> None:
    assert chat().chunks([heard("")]) == b""
    assert len(events(chat().chunks([heard(""), heard("x"), heard("")]))) == 1


def test_chat_chunks_are_what_openai_declares() -> None:
    wire = chat()
    data = events(wire.opening() + wire.chunks([heard(" a"), heard(" b")]) + wire.closing(ENDING))
    assert data.pop() is None
    parsed = [declared("chunk", chunk) for chunk in data]
    assert {chunk.id for chunk in parsed} == {wire.id}
    assert [chunk.choices[0].delta.role for chunk in parsed] == ["assistant", None, None, None]
    assert [chunk.choices[0].delta.content for chunk in parsed] == ["", " a", " b", None]
    assert [chunk.choices[0].finish_reason for chunk in parsed] == [None, None, None, "length"]


def test_without_include_usage_the_finishing_chunk_carries_usage_and_timing() -> None:
    (finish, done) = events(chat().closing(ENDING))
    assert done is None
    assert finish["choices"][0]["delta"] == {}
    assert finish["usage"] == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}
    assert finish["timing"] == {"queue": 0.25, "prefill": 0.5, "decode": 1.5}


def test_the_engines_own_figures_are_passed_on() -> None:
    engine = Usage(queue=0.1, first_token=0.2, cached_tokens=6, prompt_tokens=9, completion_tokens=4)
    ending = replace(ENDING, engine=engine)
    (finish, _) = events(chat().closing(ending))
    counts = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    assert finish["usage"] == counts | {"prompt_tokens_details": {"cached_tokens": 6}}
    assert [*finish["timing"].values()] == [0.25, 0.5, 1.5, 0.1, 0.2]
    assert [*finish["timing"]] == ["queue", "prefill", "decode", "engine_queue", "engine_first_token"]
    whole = declared("chat", chat().whole([heard("x")], ending))
    assert whole.usage.prompt_tokens_details.cached_tokens == 6


@pytest.mark.parametrize("make", [chat, text])
def test_with_include_usage_it_comes_in_a_chunk_of_its_own(make: Any) -> None:
    wire = make(include_usage=True)
    *before, finish, last, done = events(wire.opening() + wire.chunks([heard(" a")]) + wire.closing(ENDING))
    assert done is None
    assert last["choices"] == []
    assert (last["usage"]["total_tokens"], last["timing"]["prefill"]) == (12, 0.5)
    assert all(chunk["usage"] is None for chunk in [*before, finish])
    assert "timing" not in finish


def test_continuous_usage_counts_along() -> None:
    wire = chat(continuous_usage=True)
    seen = events(wire.chunks([heard(" a", 2), heard("", 1)]) + wire.chunks([heard(" b", 3)]))
    assert [chunk["usage"]["completion_tokens"] for chunk in seen] == [2, 6]  # the token without text counts with b
    assert seen[0]["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}


def test_an_answer_in_one_piece_is_what_openai_declares() -> None:
    answer = declared("chat", chat().whole([heard(one) for one in TEXTS[:5]], ENDING))
    assert answer.choices[0].message.content == "".join(TEXTS[:5])
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.total_tokens == 12
    completion = declared("text", text(echo="so: ").whole([heard("a"), heard("b")], ENDING))
    assert completion.choices[0].text == "so: ab"


def test_an_echo_opens_the_stream() -> None:
    assert events(text(echo="so:").opening())[0]["choices"][0]["text"] == "so:"
    assert text().opening() == b""


LOGPROBS = (TokenLogprob(" a", -0.5, ((" a", -0.5, None), (" é", -1.5, None))), TokenLogprob("b", -0.25))


def test_chat_log_probabilities() -> None:
    wire = chat()
    whole = declared("chat", wire.whole([heard(" ab", 2, LOGPROBS)], ENDING))
    first, second = whole.choices[0].logprobs.content
    assert (first.token, first.logprob, first.bytes) == (" a", -0.5, [32, 97])
    assert [(one.token, one.logprob) for one in first.top_logprobs] == [(" a", -0.5), (" é", -1.5)]
    assert second.top_logprobs == []
    (streamed,) = events(wire.chunks([heard(" ab", 2, LOGPROBS)]))
    assert streamed["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.5
    declared("chunk", streamed)


def test_text_log_probabilities_have_offsets_that_go_on_from_chunk_to_chunk() -> None:
    wire = text(echo="so:")
    (one,) = events(wire.chunks([heard(" ab", 2, LOGPROBS)]))
    (two,) = events(wire.chunks([heard(" ab", 2, LOGPROBS)]))
    assert one["choices"][0]["logprobs"]["text_offset"] == [3, 5]
    assert two["choices"][0]["logprobs"]["text_offset"] == [6, 8]
    assert one["choices"][0]["logprobs"]["top_logprobs"] == [{" a": -0.5, " é": -1.5}, {"b": -0.25}]
    declared("text", wire.whole([heard(" ab", 2, LOGPROBS)], ENDING))


def test_the_likeliest_of_two_tokens_with_one_text_is_shown() -> None:
    halves = (("\ufffd", -0.5, (226,)), ("\ufffd", -3.0, (227,)))
    (event,) = events(text().chunks([heard("", 1, (TokenLogprob("\ufffd", -3.0, halves, (227,)),))]))
    assert event["choices"][0]["logprobs"]["top_logprobs"] == [{"\ufffd": -0.5}]


@pytest.mark.parametrize("end", ["\u0085", "\u2028", "\u2029"])
def test_an_event_is_one_line_whatever_a_client_takes_for_its_end(end: str) -> None:
    for data in (text(echo=end).opening(), text(continuous_usage=True).chunks([heard(end)])):
        assert len(data.decode().splitlines()) == 2
        assert events(data)[0]["choices"][0]["text"] == end


def test_tokens_that_are_parts_of_a_character_have_its_offset() -> None:
    star = tuple(TokenLogprob("\ufffd", -0.5, (), (byte,)) for byte in "⭐".encode())
    (event,) = events(text().chunks([heard("⭐!", 4, (*star, TokenLogprob("!", -0.5)))]))
    assert event["choices"][0]["logprobs"]["text_offset"] == [0, 0, 0, 1]


def test_a_model_name_may_hold_anything() -> None:
    wire = ChatWire('odd "name" {} %s é', "fp", 1)
    (chunk,) = events(wire.chunks([heard("x")]))
    assert chunk["model"] == 'odd "name" {} %s é'
