"""However a server's bytes are cut into reads, a request ends where it should and says the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.harness.client.dialects.openai import CompletionAnswer
from loadtests.harness.client.exchange import Exchange
from tests.support.loadtests.prepared_reads import Reads, exchange_of, seen_by
from tests.support.servers.wire_script import (
    DONE,
    END,
    HEAD,
    HEAD_UNTIL_CLOSE,
    delta,
    event,
    finish,
    frame,
    token,
    usage,
)

ANSWER = b"".join(
    [
        HEAD + frame(delta(role="assistant", content="")),
        frame(delta(reasoning_content="hm 🦜")),
        *(frame(token(f" {n} ☃\n\r\n")) for n in range(10)),
        frame(b": ping\r\n\r\n" + token(" error ").replace(b"\n", b"\r\n")),
        frame(token(" [DONE]\n\n")) + frame(token("0\r\n\r\n")),
        frame(event({"choices": [], "usage": usage(14), "timing": {"queue": 1.0}})) + frame(finish()),
        frame(DONE) + END,
    ]
)


@settings(max_examples=100, deadline=None)
@given(cuts=st.lists(st.integers(1, len(ANSWER) - 1), max_size=60))
def test_for_any_split_into_reads_the_observation_is_the_same(cuts: list[int]) -> None:
    at = sorted({0, *cuts, len(ANSWER)})
    exchange = exchange_of([ANSWER[start:end] for start, end in pairwise(at)])
    assert exchange.reusable, "the last read ended the message, and nothing was waited for"
    seen = seen_by(exchange)
    assert (seen.outcome, seen.chunks, seen.output_tokens, seen.prompt_tokens) == ("ok", 14, 14, 7)
    assert (seen.server_queue, seen.first_chunk_tokens, len(seen.icl)) == (1.0, 1, 13)
    assert seen.t_first is not None
    assert seen.t_first_out is not None


def test_a_mistake_of_our_own_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("an unforeseen mistake")

    monkeypatch.setattr("loadtests.harness.client.model_answer.Answer.feed", fail)
    exchange = Exchange(Reads([ANSWER]), CompletionAnswer(), True, 600.0)
    exchange.start(b"")
    with pytest.raises(ZeroDivisionError):
        exchange.on_readable()
    seen = seen_by(exchange)
    assert (seen.outcome, "an unforeseen mistake" in (seen.detail or "")) == ("bad_stream", True)


def test_a_stream_of_carriage_returns_that_stays_open_is_done_at_done() -> None:
    events = [token(f" {n}").replace(b"\n", b"\r") for n in range(20)]
    exchange = exchange_of([HEAD_UNTIL_CLOSE, *events, DONE.replace(b"\n", b"\r")])
    assert seen_by(exchange).outcome == "ok"
