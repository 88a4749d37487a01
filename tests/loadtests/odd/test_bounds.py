"""Streams without an end: how each request ends, and how much memory two clients take for it.

The clients are in a process of their own, whose peak is read for each server.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from loadtests.harness.client.dialects.endpoints import DIALECTS
from loadtests.harness.client.limits import TOO_LONG
from tests.support.loadtests.prepared_reads import CLOSED, observe
from tests.support.servers import odd
from tests.support.servers.dialect_answers import ANSWERS, aws_frame
from tests.support.servers.framings import counted, until_close
from tests.support.servers.wire_script import DONE, HEAD, delta, event, finish, frame, token

CLIENTS = "2"
MAX_GROWTH, MAX_PEAK = 60, 250  # MB
FRAMING = "bad_stream: more than 64 kB came without content, such as headers"
EVENT = "bad_stream: an event is longer than 4 MB"
LIKELIHOODS = event({"choices": [{"delta": {}, "logprobs": {"content": [{"token": "a", "logprob": -1}] * 9}}]})
ENDS = {
    "endless_continue_at_once": FRAMING,
    "endless_header": FRAMING,
    "endless_headers": FRAMING,
    "endless_chunk_size": FRAMING,
    "endless_trailer": "ok: None",  # the answer was complete
    "endless_json": "bad_stream: the answer is longer than 4 MB",
    "endless_line": EVENT,
    "endless_event": EVENT,
    "endless_comment": EVENT,
    "endless_text": "bad_stream: the answer's text is longer than 4 MB",
    "gzip_bomb": "bad_stream: the server compressed its answer (gzip), against the request",
    "gzip_stream": "bad_stream: the server compressed its answer (gzip), against the request",
}


@pytest.fixture(scope="module")
def heard() -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        urls = [stack.enter_context(odd.OddServer(odd.Odd(chat=getattr(odd, name)))).url for name in ENDS]
        command = [sys.executable, "-m", "tests.support.loadtests.peak_memory", CLIENTS, *urls]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        yield dict(zip(ENDS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("name", ENDS)
def test_a_stream_without_an_end_has_one_and_is_not_kept(heard: dict[str, Any], name: str) -> None:
    seen = heard[name]
    assert seen["heard"] == [ENDS[name]]
    assert seen["peak"] <= min(seen["before"] + MAX_GROWTH, MAX_PEAK)


@pytest.mark.parametrize(
    ("limit", "pieces", "detail"),
    [
        pytest.param(
            ("model_answer.MAX_CHUNKS", 100), [HEAD, *[frame(token("a"))] * 200], "the answer has more than 100 chunks",
            id="chunks",
        ),
        pytest.param(
            ("model_answer.MAX_CHUNKS", 100), [HEAD, *[frame(LIKELIHOODS)] * 100],
            "the answer has more than 100 chunks", id="probabilities without tokens",
        ),
        pytest.param(
            ("exchange.STREAM_LIMIT", 2**20), [HEAD, *[frame(b": a comment\n" * 1000)] * 200],
            "the answer is longer than 1 MB", id="nothing but comments",
        ),
    ],
)  # fmt: skip
def test_a_stream_that_keeps_little_has_an_end_too(
    limit: tuple[str, int], pieces: list[bytes], detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, value = limit
    monkeypatch.setattr("loadtests.harness.client.exchange.LIMIT", 1000)
    monkeypatch.setattr(f"loadtests.harness.client.{name}", value)
    seen = observe(*pieces)
    assert (seen.outcome, seen.detail) == ("bad_stream", detail)


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"x-gzip", b"deflate, gzip", b"zstd"])
@pytest.mark.parametrize("header", [b"Content-Encoding", b"Transfer-Encoding"])
@pytest.mark.parametrize("status", [b"200 OK", b"500 Oops"])
def test_what_is_compressed_is_refused_by_its_headers(encoding: bytes, header: bytes, status: bytes) -> None:
    head = b"HTTP/1.1 %s\r\n%s: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % (status, header, encoding)
    seen = observe(head + frame(b"\x1f\x8b\x08 something"), frame(b"more"))
    if status.startswith(b"200"):
        refused = f"the server compressed its answer ({encoding.decode()}), against the request"
        assert (seen.outcome, seen.detail, seen.chunks) == ("bad_stream", refused, 0)
    else:
        assert (seen.outcome, seen.detail) == ("http_error", None), "not in the words of a compressed page"


@pytest.mark.parametrize("encoding", [b"identity", b"Identity", b"", b"none"])
def test_what_is_not_compressed_is_read_whatever_says_so(encoding: bytes) -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: %s\r\n\r\n" % encoding)
    assert observe(head, frame(token()), frame(finish() + DONE), b"0\r\n\r\n").outcome == "ok"


def test_a_frame_of_amazon_has_a_limit() -> None:
    data = aws_frame({"delta": {"text": "a" * (5 * 2**20)}}, event_type="contentBlockDelta")
    seen = observe(ANSWERS["bedrock"].head, frame(data[:100]), CLOSED, answer=DIALECTS["bedrock"].answer)
    assert seen.outcome == "bad_stream"
    assert TOO_LONG in (seen.detail or "")


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        pytest.param(
            b"HTTP/1.1 307 Moved\r\nLocation: https://%s/\r\nContent-Length: 0\r\n\r\n" % (b"x" * 9999),
            "redirected to https://xxx", id="a redirect",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: 1\r\n\r\n." % (b"x" * 9999),
            "asked for an event stream, got xxx", id="a type",
        ),
        pytest.param(
            until_close(b"data: " + b"x" * 9999 + b"\n\n"), "an event cannot be read (Expecting", id="an event",
        ),
    ],
)  # fmt: skip
def test_what_is_recorded_of_a_server_s_words_is_short(answer: bytes, detail: str) -> None:
    seen = observe(answer, CLOSED)
    assert (seen.detail or "").startswith(detail)
    assert len(seen.detail or "") <= 300


def test_a_finish_reason_is_short() -> None:
    seen = observe(counted(token() + finish("x" * 9999) + DONE))
    assert (seen.outcome, len(seen.finish_reason or "")) == ("ok", 300)


def test_an_answer_within_the_limit_is_kept_whole() -> None:
    """Three megabytes of text in events of a megabyte, one of them over many lines."""
    text = "word " * 200_000
    seen = observe(counted(token(text) + delta(reasoning=text) + token(text) + finish() + DONE))
    assert (seen.outcome, seen.chunks, seen.text) == ("ok", 3, text * 3)
