"""The client against a server that is ugly on purpose: what each stream is worth, and what is taken from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.support.loadtests.asking import GOOD_END, WHOLE, ask_scripted
from tests.support.servers.wire_script import (
    DONE,
    END,
    HEAD,
    HEAD_UNTIL_CLOSE,
    Step,
    delta,
    event,
    finish,
    frame,
    json_answer,
    token,
    usage,
)

# Script, outcome, content chunks, output tokens, part of the detail.
STREAMS: list[Any] = [
    pytest.param([HEAD, frame(token()), frame(token()), GOOD_END], "ok", 2, 2, None, id="a plain stream"),
    pytest.param([HEAD + frame(token()) + frame(token()) + GOOD_END], "ok", 2, 2, None, id="all in one write"),
    pytest.param(
        [HEAD, frame(delta(role="assistant")), frame(delta(role="assistant", content="")), frame(token()), GOOD_END],
        *("ok", 1, 2, None),
        id="role-only and empty deltas are no tokens",
    ),
    pytest.param(
        [HEAD, frame(token()), frame(event({"choices": [], "usage": usage(9)})), frame(DONE) + END],
        *("ok", 1, 9, None),
        id="usage alone in a chunk without choices",
    ),
    pytest.param(
        [HEAD, frame(token()), frame(event({"choices": None, "usage": None})), frame(finish()) + frame(DONE) + END],
        *("ok", 1, None, None),
        id="null choices and null usage",
    ),
    pytest.param(
        [HEAD, frame(token(" three whole words")), GOOD_END], "ok", 1, 2, None, id="several tokens in a chunk"
    ),
    pytest.param([HEAD, frame(delta(reasoning_content="hm")), GOOD_END], "ok", 1, 2, None, id="reasoning_content"),
    pytest.param([HEAD, frame(delta(reasoning="hm")), GOOD_END], "ok", 1, 2, None, id="reasoning"),
    pytest.param(
        [HEAD, frame(delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}])), frame(token()), GOOD_END],
        *("ok", 2, 2, None),
        id="a tool call's arguments are content",
    ),
    pytest.param(
        [
            HEAD,
            frame(delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}])),
            GOOD_END,
        ],
        *("ok", 1, 2, None),
        id="an answer of a tool call alone",
    ),
    pytest.param(
        [HEAD, frame(delta(function_call={"name": "f", "arguments": "{"})), GOOD_END],
        *("ok", 1, 2, None),
        id="a function call, as older servers have it",
    ),
    pytest.param([HEAD, frame(delta(refusal="I cannot")), GOOD_END], "ok", 1, 2, None, id="a refusal is content"),
    pytest.param(
        [HEAD, frame(token()), frame(finish("content_filter", usage=usage(2))) + frame(DONE) + END],
        *("bad_stream", 1, 2, "finish reason content_filter"),
        id="a filtered answer is a failure",
    ),
    pytest.param(
        [HEAD, frame(token()), frame(finish("abort")) + frame(DONE) + END],
        *("bad_stream", 1, None, "finish reason abort"),
        id="an aborted answer is a failure",
    ),
    pytest.param(
        [HEAD, frame(event({"choices": [{"index": 0, "text": " word", "finish_reason": None}]})), GOOD_END],
        *("ok", 1, 2, None),
        id="text completions",
    ),
    pytest.param(
        [HEAD, *(frame(part) for part in (token()[:9], token()[9:])), GOOD_END],
        *("ok", 1, 2, None),
        id="an event cut in two HTTP chunks",
    ),
    pytest.param(
        [HEAD, frame(token("☃")[:40]), frame(token("☃")[40:] + b": ping\n\n"), GOOD_END],
        *("ok", 1, 2, None),
        id="comments between events",
    ),
    pytest.param(
        [HEAD, frame(b'data: {"choices":\ndata: [{"delta":{"content":"a"}}]}\n\n'), GOOD_END],
        *("ok", 1, 2, None),
        id="data over several lines",
    ),
    pytest.param(
        [(HEAD + frame(token().replace(b"\n", b"\r\n")) + GOOD_END)[n : n + 1] for n in range(660)],
        *("ok", 1, 2, None),
        id="one byte at a time, with CR LF",
    ),
    pytest.param(
        [HEAD, frame(b'data: {"choices":[{"delta":{"content":"\\ud83e"}}]}\n\n'), GOOD_END],
        *("ok", 1, 2, None),
        id="half a surrogate pair",
    ),
    pytest.param(
        [HEAD, frame(token()), frame(DONE[:-1]), END], "ok", 1, None, None, id="[DONE] without its blank line"
    ),
    pytest.param(
        [HEAD, frame(token()), frame(finish()[:-2]), END], "ok", 1, None, None, id="neither [DONE] nor its line"
    ),
    pytest.param(
        [HEAD, frame(token()), frame(finish()), END], "ok", 1, None, None, id="a finish reason, but no [DONE]"
    ),
    pytest.param([HEAD, frame(token()), GOOD_END[:-5], "close"], "ok", 1, 2, None, id="closed after [DONE]"),
    pytest.param([HEAD, frame(token()), GOOD_END[:-5]], "ok", 1, 2, None, id="nothing after [DONE]"),
    pytest.param(
        [HEAD_UNTIL_CLOSE, token(), finish(usage=usage(2)) + DONE, "close"],
        *("ok", 1, 2, None),
        id="the end of the connection ends the body",
    ),
    pytest.param(
        [
            b"HTTP/1.1 103 Early Hints\r\nContent-Type: text/css\r\nContent-Encoding: br\r\nRetry-After: 9\r\n\r\n",
            *(HEAD, frame(token()), GOOD_END),
        ],
        *("ok", 1, 2, None),
        id="an interim answer first, whose headers are its own",
    ),
    pytest.param(
        [HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: none\r\n\r\n"), frame(token()), GOOD_END],
        *("ok", 1, 2, None),
        id="an encoding that is none",
    ),
    pytest.param([HEAD, frame(token()), END], "disconnected", 1, None, "without [DONE]", id="ends early, politely"),
    pytest.param([HEAD, frame(token()), "close"], "disconnected", 1, None, "closed", id="ends early, closed"),
    pytest.param([HEAD, frame(token()), 0.05, "reset"], "disconnected", 1, None, "lost", id="ends early, reset"),
    pytest.param([HEAD, frame(token()[:20]), "close"], "disconnected", 0, None, "closed", id="closed inside an event"),
    pytest.param([HEAD_UNTIL_CLOSE, token(), "close"], "disconnected", 1, None, "without", id="closed, frame unknown"),
    pytest.param([HEAD[:30], "close"], "disconnected", 0, None, "closed", id="closed inside the headers"),
    pytest.param(["close"], "disconnected", 0, None, "closed", id="closed without a byte"),
    pytest.param(
        [HEAD, frame(token()), frame(b"data: {nope\n\n"), GOOD_END], "bad_stream", 1, 2, "{nope", id="no JSON"
    ),
    pytest.param(
        [HEAD, frame(token()), frame(event({"choices": [{"delta": {"content": 7}}]})), GOOD_END],
        *("bad_stream", 1, None, "not as expected"),
        id="JSON of the wrong shape",
    ),
    pytest.param(
        [HEAD, frame(token()), frame(event({"error": {"message": "out of memory", "type": "server_error"}})) + END],
        *("bad_stream", 1, None, "out of memory"),
        id="an error object inside the stream",
    ),
    pytest.param(
        [HEAD, frame(token()), frame(event({"error": "tired"}))],
        *("bad_stream", 1, None, "tired"),
        id="an error inside the stream, then silence",
    ),
    pytest.param(
        [HEAD, frame(token()), frame(b"event: error\ndata: overloaded\n\n") + END],
        *("bad_stream", 1, None, "overloaded"),
        id="an error event",
    ),
    pytest.param([b"SSH-2.0-OpenSSH_9\r\n"], "bad_stream", 0, None, "not HTTP", id="no HTTP at all"),
    pytest.param(
        [HEAD, frame(token()), b"zz\r\n", "close"], "bad_stream", 1, None, "not HTTP", id="a broken HTTP chunk"
    ),
    pytest.param(
        [json_answer("200 OK", {"choices": []})], "bad_stream", 0, None, "asked for an event stream", id="not streamed"
    ),
    pytest.param(
        [HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n"), frame(token()), GOOD_END],
        *("bad_stream", 1, 2, "compressed"),
        id="compressed though asked not to",
    ),
    pytest.param(
        [json_answer("429 Too Many Requests", {"error": {"message": "queue is full"}}, b"Retry-After: 1\r\n")],
        *("rejected", 0, None, "queue is full"),
        id="429",
    ),
    pytest.param(
        [json_answer("503 Service Unavailable", {"detail": "loading"})], "rejected", 0, None, "loading", id="503"
    ),
    pytest.param(
        [json_answer("400 Bad Request", {"object": "error", "message": "too long"})],
        *("http_error", 0, None, "too long"),
        id="400 in an older shape",
    ),
    pytest.param(
        [b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 12\r\n\r\n<html> oops\n"],
        *("http_error", 0, None, "<html> oops"),
        id="502 in HTML",
    ),
    pytest.param(
        [b"HTTP/1.1 307 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"], "http_error", 0, None, None, id="redirect"
    ),
]


@pytest.mark.parametrize(("script", "outcome", "chunks", "tokens", "detail"), STREAMS)
def test_every_ugly_stream_has_its_outcome(
    script: Sequence[Step], outcome: str, chunks: int, tokens: int | None, detail: str | None
) -> None:
    seen = ask_scripted(*script)
    assert (seen.outcome, seen.chunks) == (outcome, chunks)
    if outcome == "ok":
        assert seen.output_tokens == tokens
        assert seen.detail is None
    elif detail is not None:
        assert detail in (seen.detail or "")
    assert len(seen.icl) == max(0, chunks - 1)
    assert (seen.t_first is None) == (chunks == 0)
    assert seen.t_send is not None
    stamps = [seen.t_sched, seen.t_send, seen.t_headers, seen.t_first, seen.t_last, seen.t_end]
    assert [stamp for stamp in stamps if stamp is not None] == sorted(stamp for stamp in stamps if stamp is not None)


@pytest.mark.parametrize(
    ("script", "tokens"),
    [
        pytest.param([frame(token()), frame(token()), frame(finish(usage=usage(2)))], 1, id="one token a chunk"),
        pytest.param([frame(token()), frame(token()), frame(finish(usage=usage(5)))], None, id="who knows"),
        pytest.param(
            [
                frame(event({"choices": [{"delta": {"content": "a b c"}}], "usage": usage(3)})),
                frame(token()),
                frame(finish(usage=usage(4))),
            ],
            3,
            id="the server counts along",
        ),
    ],
)
def test_the_first_chunks_tokens_are_known_or_missing(script: list[Step], tokens: int | None) -> None:
    assert ask_scripted(HEAD, *script, frame(DONE) + END).first_chunk_tokens == tokens


def test_timing_and_usage_are_taken_from_the_last_chunk() -> None:
    timing = {"queue": 0.25, "prefill": 0.5, "decode": 1.5}
    seen = ask_scripted(HEAD, frame(token()), frame(finish(usage=usage(1, 40), timing=timing)) + frame(DONE) + END)
    assert (seen.server_queue, seen.server_prefill, seen.server_decode) == (0.25, 0.5, 1.5)
    assert (seen.prompt_tokens, seen.output_tokens, seen.token_source, seen.text) == (40, 1, "usage", None)


def test_without_usage_the_text_is_kept_reasoning_included() -> None:
    seen = ask_scripted(HEAD, frame(delta(reasoning="hm ")), frame(token("yes ☃")), frame(finish()) + frame(DONE) + END)
    assert (seen.output_tokens, seen.token_source, seen.text) == (None, None, "hm yes ☃")


@pytest.mark.parametrize(
    ("script", "outcome", "text", "detail"),
    [
        pytest.param(
            [HEAD, frame(token("\ud83e")), frame(token("\udd9c\ud83e")), frame(DONE) + END],
            *("ok", "\U0001f99c\ufffd", None),
            id="in the text",
        ),
        pytest.param(
            [HEAD, frame(token("a")), frame(event({"error": "\ud83e"})), END],
            *("bad_stream", "a", "\ufffd"),
            id="in a stream's error",
        ),
        pytest.param(
            [json_answer("429 Too Many Requests", {"error": {"message": "\udd9c busy"}})],
            *("rejected", None, "\ufffd busy"),
            id="in a refusal",
        ),
    ],
)
def test_halves_of_characters_are_joined_or_replaced_so_that_they_can_be_recorded(
    script: list[Step], outcome: str, text: str | None, detail: str | None
) -> None:
    seen = ask_scripted(*script)
    assert (seen.outcome, seen.text, seen.detail) == (outcome, text, detail)
    msgspec.json.encode(seen)


@pytest.mark.parametrize("count", [b"-5", b"1e400", b"NaN", b'"two"', b"2.5", b"true", b"1" + b"0" * 30])
def test_a_count_of_tokens_that_can_be_none_is_missing(count: bytes) -> None:
    facts = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":%s}}\n\n' % count
    seen = ask_scripted(HEAD, frame(token("a")), frame(facts), frame(DONE) + END)
    assert (seen.outcome, seen.prompt_tokens, seen.output_tokens, seen.token_source) == ("ok", 7, None, None)
    assert seen.text == "a", "its tokens can be counted after the run"


@pytest.mark.parametrize(
    "choice",
    [
        pytest.param({"message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}, id="chat"),
        pytest.param({"text": "Paris", "finish_reason": "stop"}, id="text completion"),
    ],
)
def test_without_streaming_the_first_token_cannot_be_seen(choice: dict[str, object]) -> None:
    timing = {"queue": 0.0, "prefill": 0.1, "decode": 0.2}
    answer = json_answer("200 OK", {"choices": [choice], "usage": usage(3), "timing": timing})
    seen = ask_scripted(answer[:90], 0.05, answer[90:], call=WHOLE)
    assert (seen.outcome, seen.status, seen.chunks, seen.icl) == ("ok", 200, 0, ())
    assert (seen.t_first, seen.t_first_out, seen.read_first, seen.first_chunk_tokens) == (None, None, None, None)
    assert seen.t_last == seen.t_end
    assert seen.t_headers is not None
    assert seen.t_end - seen.t_headers > 0.04e9
    assert (seen.output_tokens, seen.server_prefill, seen.streamed) == (3, 0.1, False)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(json_answer("200 OK", {"nothing": "here"}), id="JSON without choices"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]", id="no JSON"),
        pytest.param(HEAD + frame(token()) + GOOD_END, id="a stream though none was asked for"),
        pytest.param(json_answer("200 OK", {"error": {"message": "no"}}), id="an error with status 200"),
    ],
)
def test_a_whole_answer_that_is_none_is_a_bad_stream(answer: bytes) -> None:
    assert ask_scripted(answer, call=WHOLE).outcome == "bad_stream"
