"""The client against a server that is ugly on purpose, and whose own clock says when it wrote what."""

from __future__ import annotations

import gc
import json
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gevent
import pytest
import trustme

from loadtests.harness.client.call import Call
from loadtests.harness.client.client import Client
from loadtests.harness.client.clock import WallOffset
from loadtests.harness.client.exchange import Exchange
from records.metrics import BY_NAME
from records.request import Observation
from tests.support.wire_script import (
    DONE,
    END,
    HEAD,
    HEAD_UNTIL_CLOSE,
    Step,
    WireServer,
    delta,
    event,
    finish,
    frame,
    json_answer,
    token,
    usage,
)

pytestmark = pytest.mark.alone

CHAT = Call("/v1/chat/completions", b'{"stream": true}', True)
WHOLE = Call("/v1/chat/completions", b"{}", False)
ROOT = Path(__file__).parents[2]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps what it receives")


def ask(server: WireServer, call: Call = CHAT, **settings: Any) -> Observation:
    client = Client(server.url, **settings)
    heard: list[Observation] = []
    seen = client.request(call, time.monotonic_ns(), heard.append)
    client.close()
    assert heard == [seen]
    return seen


def ask_scripted(*script: Step, call: Call = CHAT, **settings: Any) -> Observation:
    with WireServer(script) as server:
        return ask(server, call, **settings)


def tokens_every(seconds: float) -> list[Step]:
    return [step for _ in range(100) for step in (frame(token()), seconds)]


GOOD_END = frame(finish(usage=usage(2))) + frame(DONE) + END

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
        [b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", HEAD, frame(token()), GOOD_END],
        *("ok", 1, 2, None),
        id="an interim answer first",
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


@on_linux
def test_stamps_are_those_of_the_servers_own_writes() -> None:
    script: list[Step] = [HEAD + frame(delta(role="assistant")), 0.1, frame(delta(reasoning="hm")), 0.1]
    script += [frame(token()), 0.1, frame(token()), 0.1, GOOD_END]
    with WireServer(script) as server:
        seen = ask(server)
        server.finish_writing()
        writes, received = server.writes[0], server.received[0]
    assert seen.stamps == "kernel"
    assert not seen.merged_first
    assert seen.t_send is not None
    assert seen.t_send < received
    for stamp, write in zip(
        [seen.t_headers, seen.t_first, seen.t_first_out, seen.t_last, seen.t_end], writes, strict=True
    ):
        assert stamp is not None
        assert write.before - 0.0001e9 < stamp < write.after + 0.05e9  # 0.1 s would be the next write's
    assert seen.t_first is not None
    assert seen.read_first is not None
    assert seen.read_first > seen.t_first
    assert sum(seen.icl) == (seen.t_last or 0) - seen.t_first


@on_linux
def test_a_busy_client_shows_as_client_lag_and_not_in_the_stamps() -> None:
    with WireServer([HEAD, 0.05, frame(token()), 0.3, GOOD_END]) as server:

        def hog() -> None:  # blocks the event loop until the token has been written, and 50 ms more
            while not server.writes or len(server.writes[0]) < 2:
                time.sleep(0.001)
            time.sleep(0.05)

        client = Client(server.url)
        client.connect()
        hogging = gevent.spawn(hog)
        seen = client.request(CHAT, 0, lambda _: None)
        hogging.join()
        client.close()
        write = server.writes[0][1]
    assert seen.t_first is not None
    assert seen.read_first is not None
    assert seen.t_first < write.after + 0.01e9
    assert seen.read_first > write.after + 0.045e9


@pytest.mark.parametrize(
    ("script", "merged"),
    [
        pytest.param([HEAD, 0.05, frame(token()), 0.1, frame(token()), GOOD_END], False, id="alone in its read"),
        pytest.param([HEAD + frame(token()), 0.1, frame(token()), GOOD_END], False, id="with what came before it"),
        pytest.param([HEAD, 0.05, frame(token()) * 2, 0.1, GOOD_END], True, id="with the next chunk"),
        pytest.param(
            [HEAD, 0.05, frame(token() + token()[:9]), 0.1, frame(token()[9:]), GOOD_END], True, id="with a part"
        ),
        pytest.param([HEAD, 0.05, frame(token()) + GOOD_END], True, id="with the end of the stream"),
    ],
)
def test_a_first_chunk_that_shares_its_read_is_marked(script: list[Step], merged: bool) -> None:
    assert ask_scripted(*script).merged_first is merged


def test_a_wall_clock_that_is_set_during_a_request_leaves_user_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = WallOffset.read
    steps = iter([0, 3_600_000_000_000])

    def read() -> WallOffset:
        now, step = honest(), next(steps)
        return WallOffset(now.low + step, now.high + step)

    monkeypatch.setattr(WallOffset, "read", read)
    seen = ask_scripted(HEAD, 0.02, frame(token()), 0.02, GOOD_END)
    assert (seen.outcome, seen.stamps) == ("ok", "user")
    assert seen.t_first == seen.read_first


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


def test_one_connection_serves_many_requests() -> None:
    with WireServer([HEAD, frame(token()), GOOD_END]) as server:
        client = Client(server.url, headers={"authorization": "Bearer secret"})
        client.connect()
        assert [client.request(CHAT, 0, lambda _: None).outcome for _ in range(5)] == ["ok"] * 5
        client.close()
    assert server.connections == 1
    head = server.requests[0].lower()
    assert head.startswith(b"post /v1/chat/completions http/1.1\r\n")
    assert b"authorization: bearer secret\r\n" in head
    assert b"accept-encoding: identity\r\n" in head


@pytest.mark.parametrize(
    "first",
    [
        pytest.param([HEAD, frame(token()), GOOD_END, "close"], id="closed while idle"),
        pytest.param([HEAD, frame(token()), GOOD_END, "reset"], id="reset while idle"),
        pytest.param([HEAD_UNTIL_CLOSE, token(), DONE, "close"], id="the server said it would close"),
        pytest.param(
            [HEAD, frame(token()), GOOD_END, b"HTTP/1.1 408 Timeout\r\n\r\n"], id="bytes that nobody asked for"
        ),
    ],
)
def test_a_lost_idle_connection_is_opened_again_before_the_timed_region(first: list[Step]) -> None:
    with WireServer(first, [HEAD, frame(token()), GOOD_END]) as server:
        client = Client(server.url)
        client.connect()
        before = client.request(CHAT, 0, lambda _: None)
        gevent.sleep(0.1)
        after = client.request(CHAT, 0, lambda _: None)
        client.close()
    assert (before.outcome, before.t_connect) == ("ok", None)
    assert after.outcome == "ok"
    assert after.t_connect is not None
    assert after.t_send is not None
    assert after.t_connect < after.t_send, "opening a connection lies before the timed region"
    assert server.connections == 2


def test_a_user_is_free_when_the_message_ends_not_at_done() -> None:
    """A body that goes on for 0.4 s after [DONE] is the server's doing, and no lateness of the load generator."""
    slow_end: list[Step] = [HEAD, frame(token()), frame(token()), frame(finish(usage=usage(2))), frame(DONE), 0.4, END]
    with WireServer(slow_end) as server:
        client = Client(server.url)
        seen = client.request(CHAT, 0, lambda _: None)
        client.close()
    assert seen.outcome == "ok"
    assert client.free_at - seen.t_end == pytest.approx(0.4e9, abs=0.1e9)


def test_hidden_reasoning_takes_no_part_in_the_time_per_token() -> None:
    """50 tokens of which 44 were thought in secret, and 6 shown 20 ms apart: TPOT is 20 ms, not 2."""
    shown = [step for _ in range(6) for step in (frame(token()), 0.02)]
    hidden = usage(50) | {"completion_tokens_details": {"reasoning_tokens": 44}}
    hidden |= {"prompt_tokens_details": {"cached_tokens": 5}}
    with WireServer([HEAD, *shown, frame(finish(usage=hidden)) + frame(DONE) + END]) as server:
        client = Client(server.url)
        seen = client.request(CHAT, 0, lambda _: None)
        client.close()
    assert (seen.output_tokens, seen.reasoning_tokens, seen.unseen_tokens, seen.cached_tokens) == (50, 44, 44, 5)
    assert BY_NAME["tpot"].of(seen) == pytest.approx(0.02, rel=0.2)


def test_reasoning_that_is_shown_counts() -> None:
    thought = usage(4) | {"completion_tokens_details": {"reasoning_tokens": 2}}
    parts = [frame(delta(reasoning_content="hm")), frame(delta(reasoning_content="so")), frame(token()), frame(token())]
    with WireServer([HEAD, *parts, frame(finish(usage=thought)) + frame(DONE) + END]) as server:
        client = Client(server.url)
        seen = client.request(CHAT, 0, lambda _: None)
        client.close()
    assert (seen.chunks, seen.reasoning_tokens, seen.unseen_tokens, seen.finish_reason) == (4, 2, 0, "stop")


def test_a_request_that_got_no_answer_is_never_sent_twice() -> None:
    with WireServer(["close"]) as server:
        assert ask(server).outcome == "disconnected"
        time.sleep(0.1)
    assert len(server.requests) == 1


def test_silence_and_slowness_have_their_limits() -> None:
    silent = ask_scripted(HEAD, frame(token()), 1.0, silence_timeout=0.2)
    assert (silent.outcome, silent.chunks) == ("timeout", 1)
    assert 0.2e9 <= silent.t_end - (silent.t_first or 0) < 0.9e9
    slow = ask_scripted(HEAD, *tokens_every(0.1), request_timeout=0.35, silence_timeout=0.2)
    assert slow.outcome == "timeout"
    assert 2 <= slow.chunks <= 4
    assert "0.35 s" in (slow.detail or "")


def test_a_killed_request_is_cut_off_and_keeps_what_it_has_seen() -> None:
    with WireServer([HEAD, *tokens_every(0.05)]) as server:
        client = Client(server.url)
        heard: list[Observation] = []
        user = gevent.spawn(client.request, CHAT, 0, heard.append)
        gevent.sleep(0.3)
        user.kill()
        assert isinstance(user.value, gevent.GreenletExit)
        client.close()
    (seen,) = heard
    assert seen.outcome == "cut_off"
    assert 2 <= seen.chunks <= 7
    assert seen.output_tokens is None
    assert (seen.text or "").split() == ["word"] * seen.chunks


def test_a_server_that_is_not_there_is_an_outcome_not_an_exception() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}")
    heard: list[Observation] = []
    seen = client.request(CHAT, 5, heard.append)
    assert heard == [seen]
    assert (seen.outcome, seen.t_sched, seen.t_send, seen.status) == ("disconnected", 5, None, None)
    assert f"no connection to 127.0.0.1:{port}" in (seen.detail or "")
    with pytest.raises(OSError, match="no connection to"):
        client.connect()


def test_a_long_prompt_is_written_while_the_answer_may_already_come() -> None:
    body = json.dumps({"prompt": "x" * 8_000_000}).encode()
    call = Call("/v1/chat/completions", body, True)
    with WireServer([HEAD, frame(token()), GOOD_END]) as server:
        assert ask(server, call).outcome == "ok"
    assert server.requests[0].endswith(body)
    refusal = json_answer("413 Payload Too Large", {"error": {"message": "at most 1 MB"}})
    with WireServer([refusal, 0.3, "close"]) as server:
        seen = ask(server, call, headers={"X-Hold-Body": "1"}, silence_timeout=5)
    assert (seen.outcome, seen.status, seen.detail) == ("http_error", 413, "at most 1 MB")


@pytest.fixture(scope="module")
def certificate() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls_server(certificate: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.issue_cert("127.0.0.1").configure_cert(context)
    return context


def test_tls_is_verified_unless_told_otherwise(
    certificate: trustme.CA, tls_server: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: list[Step] = [
        HEAD + frame(delta(role="assistant")),
        0.05,
        frame(token()),
        0.05,
        frame(token()),
        0.05,
        GOOD_END,
    ]
    with WireServer(script, tls=tls_server) as server:
        refused = ask(server)
        assert (refused.outcome, refused.t_send) == ("disconnected", None)
        assert "is not trusted" in (refused.detail or "")
        assert ask(server, insecure=True).outcome == "ok"
        certificate.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        seen = ask(server)
        write = server.writes[-1][1]
    assert (seen.outcome, seen.chunks, seen.output_tokens) == ("ok", 2, 2)
    if sys.platform == "linux":  # decryption comes after the stamp, so TLS costs no truth
        assert seen.stamps == "kernel"
    assert seen.t_first is not None
    assert write.before - 0.0001e9 < seen.t_first < write.after + 0.04e9


def test_session_tickets_after_the_handshake_close_no_connection(tls_server: ssl.SSLContext) -> None:
    """A TLS 1.3 server sends them unasked: bytes that belong to no request, on a connection that is fine."""
    assert tls_server.num_tickets == 2
    with WireServer([HEAD, frame(token()), GOOD_END], tls=tls_server) as server:
        client = Client(server.url, insecure=True)
        client.connect()
        gevent.sleep(0.1)
        seen = client.request(CHAT, 0, lambda _: None)
        client.close()
        assert (seen.outcome, seen.t_connect, server.connections) == ("ok", None, 1)


@pytest.mark.parametrize(
    ("url", "headers", "message"),
    [
        pytest.param("127.0.0.1:8000", {}, "give one like http://", id="no scheme"),
        pytest.param("ftp://x", {}, "is no server's address", id="another protocol"),
        pytest.param("http://x:99999", {}, "no number from 0 to 65535", id="a port too high"),
        pytest.param("http://x", {"X": "a\r\nY: b"}, "a value one line", id="a header with a line break"),
    ],
)
def test_what_cannot_work_is_refused_at_once(url: str, headers: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Client(url, headers=headers)


@pytest.mark.parametrize("base", ["", "/", "/v1", "/v1/", "/proxy/v1"])
def test_a_base_url_may_end_where_openai_clients_want_it_to_end(base: str) -> None:
    with WireServer([HEAD, frame(token()), GOOD_END]) as server:
        client = Client(server.url + base)
        assert client.request(CHAT, 0, lambda _: None).outcome == "ok"
        client.close()
    prefix = "/proxy" if "proxy" in base else ""
    assert server.requests[0].startswith(f"POST {prefix}/v1/chat/completions HTTP/1.1\r\n".encode())


def exchanges() -> int:
    return sum(type(thing) is Exchange for thing in gc.get_objects())


def test_nothing_of_a_request_is_kept() -> None:
    with WireServer([HEAD, *[frame(token())] * 200, GOOD_END]) as server:
        client = Client(server.url)
        gc.collect()
        gc.disable()
        before = exchanges()
        try:
            for _ in range(20):
                client.request(CHAT, 0, lambda _: None)
            kept = exchanges() - before
        finally:
            gc.enable()
        client.close()
    assert kept <= 1


def test_it_works_the_same_under_locusts_patches() -> None:
    """Locust patches the process; the client must neither need that nor mind it."""
    program = """
import sys, time
import locust
from loadtests.harness.client.call import Call
from loadtests.harness.client.client import Client
client = Client(sys.argv[1])
client.connect()
seen = client.request(Call("/v1/chat/completions", b"{}", True), time.monotonic_ns(), lambda _: None)
print(seen.outcome, seen.chunks, seen.stamps)
"""
    with WireServer([HEAD, 0.02, frame(token()), 0.02, frame(token()), GOOD_END]) as server:
        command = [sys.executable, "-c", program, server.url]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split()[:2] == ["ok", "2"]
    if sys.platform == "linux":
        assert done.stdout.split()[2] == "kernel"
