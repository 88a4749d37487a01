"""Every ugly stream under every framing, in one write and byte by byte: the same answer is seen each time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from loadtests.harness.client.call import Call
from loadtests.harness.client.client import Client
from records.request import Observation
from tests.support.servers.wire_script import DONE, Step, WireServer, delta, event, finish, json_answer, token, usage

CHAT = Call("/v1/chat/completions", b'{"stream": true}', True)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def chunked(body: bytes) -> bytes:
    """An HTTP chunk for each line: events are cut at every line end."""
    lines = [line + b"\n" for line in body.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines if line)
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def oddly_chunked(body: bytes) -> bytes:
    """Three chunks with extensions, upper-case and zero-padded sizes, and trailers at the end."""
    third = len(body) // 3 + 1
    parts = [body[k * third : (k + 1) * third] for k in range(3)]
    chunks = b"".join(b'%04X;name="a;b";x=1\r\n%s\r\n' % (len(part), part) for part in parts if part)
    return OK + b"Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0;last\r\nX-Sum: 7\r\n\r\n"


def counted(body: bytes) -> bytes:
    return OK + b"Content-Length: %d\r\n\r\n" % len(body) + body


def until_close(body: bytes) -> bytes:
    return OK + b"Connection: close\r\n\r\n" + body


def http_1_0(body: bytes) -> bytes:
    return b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n" + body


FRAMINGS = [chunked, oddly_chunked, counted, until_close, http_1_0]


def says(*events: bytes) -> bytes:
    return b"".join(events)


def choice(**fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "finish_reason": None, **fields}]})


END = finish(usage=usage(2)) + DONE

# Body, content chunks, output tokens: all of these are complete answers.
GOOD: list[Any] = [
    pytest.param(says(token("a"), token("b"), END), 2, 2, id="LF"),
    pytest.param(says(token("a"), token("b"), END).replace(b"\n", b"\r\n"), 2, 2, id="CR LF"),
    pytest.param(says(token("a"), token("b"), END).replace(b"\n", b"\r"), 2, 2, id="CR alone"),
    pytest.param(b"\xef\xbb\xbf" + says(token("a"), END), 1, 2, id="a byte order mark"),
    pytest.param(says(token("a"), token("b"), END).replace(b"data: ", b"data:"), 2, 2, id="no space after the colon"),
    pytest.param(
        b"retry: 500\n\n" + says(token("a"), END).replace(b"data: ", b"event: message\nid: 7\ndata: "),
        *(1, 2),
        id="event, id and retry fields",
    ),
    pytest.param(
        says(token("a"), END).replace(b"data: {", b"id\nevent\nfoo: bar\ndata: {"), 1, 2, id="fields that nobody knows"
    ),
    pytest.param(b": ping\n\n" + says(token("a"), b":\n\n", token("b"), b": x\n", END), 2, 2, id="comments"),
    pytest.param(b"\n\n\n" + says(token("a"), b"\n\n", token("b"), END, b"\n\n"), 2, 2, id="blank lines"),
    pytest.param(says(token("a"), b"data:\n\n", b"data: \n\n", token("b"), END), 2, 2, id="blank data lines"),
    pytest.param(
        says(json.dumps({"choices": [{"delta": {"content": "a"}}]}, indent=1).encode())
        .replace(b"\n", b"\ndata: ")
        .join([b"data: ", b"\n\n" + END]),
        *(1, 2),
        id="JSON over many data lines",
    ),
    pytest.param(
        'data: {"choices":[{"delta":{"content":"né ☃ 🦜 日本"}}]}\n\n'.encode() + END,
        1,
        2,
        id="characters of many bytes",
    ),
    pytest.param(says(token("x" * 1_000_000), END), 1, 2, id="a line of a megabyte"),
    pytest.param(
        says(token("data: [DONE]\n\n"), token("0\r\n\r\n"), END), 2, 2, id="text that looks like the protocol"
    ),
    pytest.param(
        says(delta(content=[]), delta(content=[{"type": "text", "text": "a"}, {"type": "image"}, None]), END),
        *(1, 2),
        id="content as a list of parts",
    ),
    pytest.param(
        says(token("a"), finish(usage={"prompt_tokens": 7.0, "completion_tokens": "2"}), DONE), 1, 2, id="odd numbers"
    ),
    pytest.param(
        says(event({"choices": [], "prompt_filter_results": []}), delta(role="assistant", content=None), token(), END),
        *(1, 2),
        id="no choices first, then null content",
    ),
    pytest.param(
        says(delta(role="assistant", content="", refusal=None, tool_calls=None), token(), END), 1, 2, id="nulls beside"
    ),
    pytest.param(
        says(delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]), token(), END),
        *(2, 2),
        id="tool calls",
    ),
    pytest.param(
        says(*[event({"choices": [{"delta": {"content": "a"}}], "usage": None})] * 3, finish(usage=usage(3)), DONE),
        *(3, 3),
        id="usage null in each chunk",
    ),
    pytest.param(
        says(
            event({"choices": [{"delta": {"role": "assistant", "content": ""}}], "usage": usage(0)}),
            *(event({"choices": [{"delta": {"content": "a"}}], "usage": usage(n)}) for n in (1, 2, 3)),
            event({"choices": [], "usage": usage(3)}),
            DONE,
        ),
        *(3, 3),
        id="usage in each chunk",
    ),
    pytest.param(
        says(
            token("a"),
            choice(delta={"content": "b"}, finish_reason="length"),
            event({"choices": [], "usage": usage(2)}),
            DONE,
        ),
        *(2, 2),
        id="content beside the finish reason",
    ),
    pytest.param(
        says(event({"choices": [{"index": n, "delta": {"content": "a"}} for n in range(3)]}), END), 1, 2, id="choices"
    ),
    pytest.param(
        says(delta(reasoning_content="hm"), delta(reasoning="hm"), delta(reasoning_content="", content="a"), END),
        *(3, 2),
        id="reasoning by both names",
    ),
    pytest.param(says(choice(text="a"), choice(text=""), choice(text="b", delta=None), END), 2, 2, id="completions"),
    pytest.param(says(token("a"), END)[:-1], 1, 2, id="[DONE] without its blank line"),
    pytest.param(says(token("a"), END)[:-2], 1, 2, id="[DONE] without a line end"),
    pytest.param(says(token("a"), finish(usage=usage(2)))[:-2], 1, 2, id="no [DONE] and no last line end"),
    pytest.param(says(token("a"), END, token("late"), b"data: {nope\n\n"), 1, 2, id="more after [DONE]"),
    pytest.param(
        says(event({"choices": [{"delta": {"content": "a"}}], "error": None}), END), 1, 2, id="an error that is null"
    ),
]

# Body, outcome, content chunks, a part of what is said about it.
BAD: list[Any] = [
    pytest.param(says(token(), token()), "disconnected", 2, "ended without [DONE]", id="no end"),
    pytest.param(says(token(), token()[:-9]), "bad_stream", 1, "not as expected", id="ends inside an event"),
    pytest.param(b"", "disconnected", 0, "ended without [DONE]", id="nothing at all"),
    pytest.param(
        says(token(), event({"error": {"message": "out of memory", "code": 500}}), DONE),
        *("bad_stream", 1, "out of memory"),
        id="an error in OpenAI's shape, and [DONE] all the same",
    ),
    pytest.param(
        says(token(), event({"object": "error", "message": "too long", "code": 400}), DONE),
        *("bad_stream", 1, "too long"),
        id="an error in an older shape",
    ),
    pytest.param(
        says(token(), b'event: error\ndata: {"error":{"message":"overloaded"}}\n\n'),
        *("bad_stream", 1, "overloaded"),
        id="an error event",
    ),
    pytest.param(
        says(token(), event({"choices": 7}), DONE), "bad_stream", 1, "not as expected", id="choices that are none"
    ),
    pytest.param(says(token(), b"data: oops\n\n", DONE), "bad_stream", 1, "oops", id="no JSON"),
    pytest.param(
        says(token(), b'data: "text"\n\n', DONE), "bad_stream", 1, "not as expected", id="JSON that is no object"
    ),
    pytest.param(
        says(token(), token("?").replace(b"?", b"\xff"), DONE), "bad_stream", 1, "not as expected", id="no UTF-8"
    ),
]


def ask(answer: bytes, bytewise: bool, closes: bool) -> Observation:
    script: list[Step] = [answer[n : n + 1] for n in range(len(answer))] if bytewise else [answer]
    with WireServer([*script, "close"] if closes else script) as server:
        client = Client(server.url, silence_timeout=10)
        seen = client.request(CHAT, time.monotonic_ns(), lambda _: None)
        client.close()
    return seen


def ask_all_ways(body: bytes, framing: Any) -> list[Observation]:
    answer, closes = framing(body), framing in {until_close, http_1_0}
    ways = [False] if len(answer) > 3000 else [False, True]
    return [ask(answer, bytewise, closes) for bytewise in ways]


@pytest.mark.parametrize("framing", FRAMINGS, ids=lambda framing: framing.__name__)
@pytest.mark.parametrize(("body", "chunks", "tokens"), GOOD)
def test_a_complete_answer_is_seen_whole(body: bytes, chunks: int, tokens: int, framing: Any) -> None:
    for seen in ask_all_ways(body, framing):
        assert (seen.outcome, seen.detail) == ("ok", None)
        assert (seen.chunks, seen.output_tokens, seen.prompt_tokens) == (chunks, tokens, 7)
        assert len(seen.icl) == chunks - 1
        assert seen.t_send is not None
        assert seen.t_first is not None
        assert seen.t_last is not None
        assert seen.t_send < seen.t_first <= seen.t_last <= seen.t_end


@pytest.mark.parametrize("framing", FRAMINGS, ids=lambda framing: framing.__name__)
@pytest.mark.parametrize(("body", "outcome", "chunks", "detail"), BAD)
def test_an_answer_that_is_none_says_why(body: bytes, outcome: str, chunks: int, detail: str, framing: Any) -> None:
    for seen in ask_all_ways(body, framing):
        assert (seen.outcome, seen.chunks) == (outcome, chunks)
        assert detail in (seen.detail or "")


@pytest.mark.parametrize(
    ("answer", "outcome", "detail"),
    [
        pytest.param(
            json_answer("200 OK", {"error": {"message": "no such model"}}), "bad_stream", "no such model", id="an error"
        ),
        pytest.param(
            json_answer("200 OK", {"object": "error", "message": "no"}), "bad_stream", "no", id="an error, older shape"
        ),
        pytest.param(
            json_answer("200 OK", {"choices": [{"message": {"content": "hi"}}]}),
            "bad_stream",
            "asked for an event stream",
            id="a whole answer",
        ),
        pytest.param(counted(says(token(), token()))[:-9], "disconnected", "closed", id="shorter than its length"),
        pytest.param(
            OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\ndata:\r\n", "disconnected", "closed", id="cut between chunks"
        ),
        pytest.param(
            counted(says(token(), END)).replace(b"text/event-stream", b"text/html"),
            "bad_stream",
            "got text/html",
            id="a page",
        ),
    ],
)
def test_an_answer_in_place_of_a_stream(answer: bytes, outcome: str, detail: str) -> None:
    for bytewise in (False, True):
        seen = ask(answer, bytewise, closes=True)
        assert seen.outcome == outcome
        assert detail in (seen.detail or "")


@pytest.mark.parametrize("kind", [b"", b"Content-Type: text/plain\r\n", b"content-type: Text/Event-Stream\r\n"])
def test_a_stream_is_taken_for_one_whatever_its_server_calls_it(kind: bytes) -> None:
    body = says(token("a"), END)
    seen = ask(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (kind, len(body), body), False, False)
    assert (seen.outcome, seen.chunks, seen.output_tokens) == ("ok", 1, 2)
