"""What each stream is worth, under every framing, in one read and byte by byte: the same is seen each time.

The reads are prepared, so a row costs no socket. Sockets are in test_client.py, test_tls.py and test_stamps.py.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.support.loadtests.asking import GOOD_END
from tests.support.loadtests.prepared_reads import CLOSED, bytewise, observe
from tests.support.servers.framings import FRAMINGS, counted, http_1_0, until_close
from tests.support.servers.wire_script import DONE, HEAD, delta, event, finish, frame, json_answer, token, usage
from tests.support.servers.wire_script import END as LAST_CHUNK

END = finish(usage=usage(2)) + DONE


def says(*events: bytes) -> bytes:
    return b"".join(events)


def choice(**fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "finish_reason": None, **fields}]})


# Body, content chunks, output tokens: all of these are complete answers.
GOOD: list[Any] = [
    pytest.param(says(token("a"), token("b"), END), 2, 2, id="LF"),
    pytest.param(says(token("a"), token("b"), END).replace(b"\n", b"\r\n"), 2, 2, id="CR LF"),
    pytest.param(
        says(token("a"), END).replace(b"data: {", b"event: message\nid: 7\nfoo: bar\ndata: {"), 1, 2, id="other fields"
    ),
    pytest.param(
        'data: {"choices":[{"delta":{"content":"né ☃ 🦜 日本"}}]}\n\n'.encode() + END, 1, 2,
        id="characters of many bytes",
    ),
    pytest.param(says(token("x" * 1_000_000), END), 1, 2, id="a line of a megabyte"),
    pytest.param(
        says(token("data: [DONE]\n\n"), token("0\r\n\r\n"), END), 2, 2, id="text that looks like the protocol"
    ),
    pytest.param(
        says(delta(content=[]), delta(content=[{"type": "text", "text": "a"}, {"type": "image"}, None]), END), 1, 2,
        id="content as a list of parts",
    ),
    pytest.param(
        says(token("a"), finish(usage={"prompt_tokens": 7.0, "completion_tokens": "2"}), DONE), 1, 2, id="odd numbers"
    ),
    pytest.param(says(token(), event({"choices": None, "usage": None}), END), 1, 2, id="null choices and null usage"),
    pytest.param(
        says(delta(role="assistant"), delta(role="assistant", content="", refusal=None, tool_calls=None), token(), END),
        1, 2, id="role-only, empty and null deltas are no tokens",
    ),
    pytest.param(
        says(
            delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]),
            END,
        ), 2, 2, id="an answer of a tool call alone",
    ),
    pytest.param(
        says(delta(function_call={"name": "f", "arguments": "{"}), END), 1, 2,
        id="a function call, as older servers have it",
    ),
    pytest.param(says(delta(refusal="I cannot"), END), 1, 2, id="a refusal is content"),
    pytest.param(
        says(*[event({"choices": [{"delta": {"content": "a"}}], "usage": None})] * 3, finish(usage=usage(3)), DONE),
        3, 3, id="usage null in each chunk",
    ),
    pytest.param(
        says(token("a"), finish(usage=usage(2)), event({"choices": [], "usage": {}}), DONE), 1, 2,
        id="usage without counts after the one with them",
    ),
    pytest.param(
        says(
            token("a"),
            choice(delta={"content": "b"}, finish_reason="length"),
            event({"choices": [], "usage": usage(2)}),
            DONE,
        ), 2, 2, id="content beside the finish reason",
    ),
    pytest.param(
        says(event({"choices": [{"index": n, "delta": {"content": "a"}} for n in range(3)]}), END), 1, 2, id="choices"
    ),
    pytest.param(says(choice(text="a"), choice(text=""), choice(text="b", delta=None), END), 2, 2, id="completions"),
    pytest.param(says(token("a"), END)[:-1], 1, 2, id="[DONE] without its blank line"),
    pytest.param(says(token("a"), END).replace(b"[DONE]", b" [DONE] "), 1, 2, id="[DONE] between blanks"),
    pytest.param(says(token("a"), END)[:-2], 1, 2, id="[DONE] without a line end"),
    pytest.param(says(token("a"), finish(usage=usage(2)))[:-2], 1, 2, id="no [DONE] and no last line end"),
    pytest.param(says(token("a"), END, token("late"), b"data: {nope\n\n"), 1, 2, id="more after [DONE]"),
    pytest.param(
        says(event({"choices": [{"delta": {"content": "a"}}], "error": None}), END), 1, 2, id="an error that is null"
    ),
]  # fmt: skip

# Body, outcome, content chunks, a part of what is said about it.
BAD: list[Any] = [
    pytest.param(says(token(), token()), "disconnected", 2, "ended without [DONE]", id="no end"),
    pytest.param(says(token(), token()[:-9]), "bad_stream", 1, "cannot be read", id="ends inside an event"),
    pytest.param(b"", "disconnected", 0, "ended without [DONE]", id="nothing at all"),
    pytest.param(b": ping\nid: 7\n\n", "disconnected", 0, "ended without [DONE]", id="a comment and an id alone"),
    pytest.param(b'{"error":{"message":"no such model"}}', "bad_stream", 0, "no such model", id="an error in no event"),
    pytest.param(
        json.dumps({"error": {"message": "no such model"}}, indent=1).encode(), "bad_stream", 0, "no such model",
        id="the same over many lines",
    ),
    pytest.param(b"overloaded,\n try later\n", "bad_stream", 0, "overloaded, try later", id="plain text"),
    pytest.param(
        says(token(), event({"error": {"message": "out of memory", "code": 500}}), DONE),
        "bad_stream", 1, "out of memory", id="an error in OpenAI's shape, and [DONE] all the same",
    ),
    pytest.param(
        says(token(), event({"object": "error", "message": "too long", "code": 400}), DONE),
        "bad_stream", 1, "too long", id="an error in an older shape",
    ),
    pytest.param(
        says(token(), b'event: error\ndata: {"error":{"message":"overloaded"}}\n\n'), "bad_stream", 1, "overloaded",
        id="an error event",
    ),
    pytest.param(
        says(token(), b"event: error\ndata: overloaded\n\n"), "bad_stream", 1, "overloaded", id="its words alone",
    ),
    pytest.param(
        says(token(), event({"choices": 7}), DONE), "bad_stream", 1, "cannot be read", id="choices that are none"
    ),
    pytest.param(
        says(token(), delta(content=7), END), "bad_stream", 1, "cannot be read", id="content that is a number"
    ),
    pytest.param(says(token(), b"data: oops\n\n", DONE), "bad_stream", 1, "oops", id="no JSON"),
    pytest.param(
        says(token(), b'data: "text"\n\n', DONE), "bad_stream", 1, "cannot be read", id="JSON that is no object"
    ),
    pytest.param(
        says(token(), token("?").replace(b"?", b"\xff"), DONE), "bad_stream", 1, "cannot be read", id="no UTF-8"
    ),
    pytest.param(
        says(token(), finish("content_filter", usage=usage(2)), DONE), "bad_stream", 1, "finish reason content_filter",
        id="a filtered answer is a failure",
    ),
    pytest.param(
        says(token(), finish("abort"), DONE), "bad_stream", 1, "finish reason abort", id="so is an aborted one"
    ),
]  # fmt: skip


def reads(body: bytes, framing: Any) -> list[list[bytes]]:
    """All in one, and, unless it is long, byte by byte."""
    answer = [framing(body), *([CLOSED] if framing in {until_close, http_1_0} else [])]
    return [answer] if len(body) > 3000 else [answer, bytewise(answer)]


@pytest.mark.parametrize("framing", FRAMINGS, ids=lambda framing: framing.__name__)
@pytest.mark.parametrize(("body", "chunks", "tokens"), GOOD)
def test_a_complete_answer_is_seen_whole(body: bytes, chunks: int, tokens: int, framing: Any) -> None:
    for pieces in reads(body, framing):
        seen = observe(*pieces)
        assert (seen.outcome, seen.detail) == ("ok", None)
        assert (seen.chunks, seen.output_tokens, seen.prompt_tokens) == (chunks, tokens, 7)
        assert len(seen.icl) == chunks - 1
        stamps = [seen.t_sched, seen.t_send, seen.t_headers, seen.t_first, seen.t_last, seen.t_end]
        known = [stamp for stamp in stamps if stamp is not None]
        assert len(known) == len(stamps)
        assert known == sorted(known)


@pytest.mark.parametrize("framing", FRAMINGS, ids=lambda framing: framing.__name__)
@pytest.mark.parametrize(("body", "outcome", "chunks", "detail"), BAD)
def test_an_answer_that_is_none_says_why(body: bytes, outcome: str, chunks: int, detail: str, framing: Any) -> None:
    for pieces in reads(body, framing):
        seen = observe(*pieces)
        assert (seen.outcome, seen.chunks) == (outcome, chunks)
        assert detail in (seen.detail or "")
        assert (seen.t_first is None) == (chunks == 0)


EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nContent-Type: text/css\r\nContent-Encoding: br\r\nRetry-After: 9\r\n\r\n"


@pytest.mark.parametrize("one_by_one", [False, True], ids=["in one read", "byte by byte"])
@pytest.mark.parametrize(
    ("answer", "outcome", "chunks", "detail"),
    [
        pytest.param([EARLY_HINTS, HEAD, frame(token()), GOOD_END], "ok", 1, None, id="an interim answer first"),
        pytest.param(
            [HEAD, frame(token()), GOOD_END.removesuffix(LAST_CHUNK), CLOSED], "ok", 1, None, id="closed after [DONE]"
        ),
        pytest.param(
            [HEAD, frame(token()), GOOD_END.removesuffix(LAST_CHUNK)], "ok", 1, None, id="nothing after [DONE]"
        ),
        pytest.param([HEAD, frame(token()), CLOSED], "disconnected", 1, "closed", id="closed between chunks"),
        pytest.param([HEAD, frame(token()[:20]), CLOSED], "disconnected", 0, "closed", id="closed inside an event"),
        pytest.param([HEAD[:30], CLOSED], "disconnected", 0, "closed", id="closed inside the headers"),
        pytest.param(
            [counted(token() + token())[:-9], CLOSED], "disconnected", 1, "closed", id="shorter than its length"
        ),
        pytest.param(
            [HEAD, frame(token()), frame(event({"error": "tired"}))], "bad_stream", 1, "tired",
            id="an error inside the stream, then silence",
        ),
        pytest.param([b"SSH-2.0-OpenSSH_9\r\n"], "bad_stream", 0, "not HTTP", id="no HTTP at all"),
        pytest.param([HEAD, frame(token()), b"zz\r\n"], "bad_stream", 1, "not HTTP", id="a broken HTTP chunk"),
        pytest.param(
            [json_answer("200 OK", {"choices": [{"message": {"content": "hi"}}]})],
            "bad_stream", 0, "asked for an event stream", id="a whole answer",
        ),
        pytest.param(
            [counted(says(token(), END)).replace(b"text/event-stream", b"text/html")], "bad_stream", 0, "got text/html",
            id="a page",
        ),
        pytest.param(
            [json_answer("200 OK", {"error": {"message": "no such model"}})], "bad_stream", 0, "no such model",
            id="an error with status 200",
        ),
        pytest.param(
            [counted(b'{"error": "no such model"}').replace(b"text/event-stream", b"text/plain")],
            "bad_stream", 0, "no such model", id="one as plain text, which may be a stream",
        ),
        pytest.param(
            [json_answer("200 OK", {"object": "error", "message": "no"})], "bad_stream", 0, "no",
            id="the same in an older shape",
        ),
        pytest.param(
            [json_answer("429 Too Many Requests", {"error": {"message": "queue is full"}}, b"Retry-After: 1\r\n")],
            "rejected", 0, "queue is full", id="429",
        ),
        pytest.param(
            [json_answer("503 Service Unavailable", {"detail": "loading"})], "rejected", 0, "loading", id="503"
        ),
        pytest.param(
            [json_answer("400 Bad Request", {"object": "error", "message": "too long"})], "http_error", 0, "too long",
            id="400 in an older shape",
        ),
        pytest.param(
            [b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 12\r\n\r\n<html> oops\n"], "http_error", 0, "<html> oops",
            id="502 in HTML",
        ),
        pytest.param(
            [b"HTTP/1.1 307 Moved\r\nLocation: https://x/\r\nContent-Length: 0\r\n\r\n"],
            "http_error", 0, "redirected to https://x/", id="a redirect",
        ),
    ],
)  # fmt: skip
def test_an_answer_with_ends_and_headers_of_its_own(
    answer: list[bytes], outcome: str, chunks: int, detail: str | None, one_by_one: bool
) -> None:
    seen = observe(*(bytewise(answer) if one_by_one else answer))
    assert (seen.outcome, seen.chunks) == (outcome, chunks)
    if detail is None:
        assert (seen.detail, seen.output_tokens, seen.retry_after) == (None, 2, None)
    else:
        assert detail in (seen.detail or "")


@pytest.mark.parametrize("kind", [b"", b"Content-Type: text/plain\r\n", b"content-type: Text/Event-Stream\r\n"])
def test_a_stream_is_taken_for_one_whatever_its_server_calls_it(kind: bytes) -> None:
    body = says(token("a"), END)
    seen = observe(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (kind, len(body), body))
    assert (seen.outcome, seen.chunks, seen.output_tokens) == ("ok", 1, 2)


def test_timing_and_usage_are_taken_from_the_last_chunk() -> None:
    timing = {"queue": 0.25, "prefill": 0.5, "decode": 1.5}
    seen = observe(counted(says(token(), finish(usage=usage(1, 40), timing=timing), DONE)))
    assert (seen.server_queue, seen.server_prefill, seen.server_decode) == (0.25, 0.5, 1.5)
    assert (seen.prompt_tokens, seen.output_tokens, seen.token_source, seen.text) == (40, 1, "usage", None)


@pytest.mark.parametrize(
    ("pieces", "merged"),
    [
        pytest.param([HEAD, frame(token()), frame(token()), GOOD_END], False, id="alone in its read"),
        pytest.param([HEAD + frame(token()), frame(token()), GOOD_END], False, id="with what came before it"),
        pytest.param([HEAD, frame(token()) * 2, GOOD_END], True, id="with the next chunk"),
        pytest.param([HEAD, frame(token() + token()[:9]), frame(token()[9:]), GOOD_END], True, id="with a part"),
        pytest.param([HEAD, frame(token()) + GOOD_END], True, id="with the end of the stream"),
    ],
)
def test_a_first_chunk_that_shares_its_read_is_marked(pieces: list[bytes], merged: bool) -> None:
    assert observe(*pieces).merged_first is merged


@pytest.mark.parametrize(
    ("answer", "outcome", "text", "detail"),
    [
        pytest.param(
            counted(says(token("\ud83e"), token("\udd9c\ud83e"), DONE)), "ok", "\U0001f99c\ufffd", None,
            id="in the text",
        ),
        pytest.param(
            counted(says(token("a"), event({"error": "\ud83e"}))), "bad_stream", "a", "\ufffd",
            id="in a stream's error",
        ),
        pytest.param(
            json_answer("429 Too Many Requests", {"error": {"message": "\udd9c busy"}}),
            "rejected", None, "\ufffd busy", id="in a refusal",
        ),
    ],
)  # fmt: skip
def test_halves_of_characters_are_joined_or_replaced_so_that_they_can_be_recorded(
    answer: bytes, outcome: str, text: str | None, detail: str | None
) -> None:
    seen = observe(answer)
    assert (seen.outcome, seen.text, seen.detail) == (outcome, text, detail)
    msgspec.json.encode(seen)


@pytest.mark.parametrize("count", [b"-5", b"1e400", b"NaN", b'"two"', b"2.5", b"true", b"1" + b"0" * 30])
def test_a_count_of_tokens_that_can_be_none_is_missing(count: bytes) -> None:
    facts = b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":%s}}\n\n' % count
    seen = observe(counted(says(token("a"), facts, DONE)))
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
    seen = observe(answer[:90], answer[90:], streamed=False, gap=50_000_000)
    assert (seen.outcome, seen.status, seen.chunks, seen.icl) == ("ok", 200, 0, ())
    assert (seen.t_first, seen.t_first_out, seen.read_first, seen.first_chunk_tokens) == (None, None, None, None)
    assert seen.t_last == seen.t_end
    assert seen.t_headers is not None
    assert seen.t_end - seen.t_headers == 50_000_000
    assert (seen.output_tokens, seen.server_prefill, seen.streamed) == (3, 0.1, False)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(json_answer("200 OK", {"nothing": "here"}), id="JSON without choices"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{]", id="no JSON"),
        pytest.param(counted(says(token(), END)), id="a stream though none was asked for"),
        pytest.param(json_answer("200 OK", {"error": {"message": "no"}}), id="an error with status 200"),
    ],
)
def test_a_whole_answer_that_is_none_is_a_bad_stream(answer: bytes) -> None:
    assert observe(answer, streamed=False).outcome == "bad_stream"
