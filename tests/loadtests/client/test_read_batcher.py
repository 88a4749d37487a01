"""Reads that may wait are made together, first tokens are not among them, and nothing is left behind."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from functools import partial

import gevent
import pytest

from enginebench.records.request import RequestRecord
from loadtests.harness.client.client import Client
from loadtests.harness.client.exchange import Exchange
from loadtests.harness.client.read_batcher import BATCH, PAUSE, UNHURRIED_NS, ReadBatcher, read_batcher
from tests.support.loadtests.asking import GOOD_END, due
from tests.support.servers.wire_script import HEAD, Step, WireServer, frame, token

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps what it receives"),
]

SLOW = 2 * UNHURRIED_NS / 1e9


class Reader:
    """One end of a socket pair, and how often it was read."""

    def __init__(self, batcher: ReadBatcher) -> None:
        self.far, self.near = socket.socketpair()
        self.near.setblocking(False)
        self.reads: list[bytes] = []
        batcher.add(self.near.fileno(), lambda: self.reads.append(self.near.recv(100)))

    def close(self) -> None:
        self.near.close()
        self.far.close()


@pytest.fixture
def batcher() -> ReadBatcher:
    return ReadBatcher()


@pytest.fixture
def readers(batcher: ReadBatcher) -> Iterator[list[Reader]]:
    several = [Reader(batcher) for _ in range(3)]
    yield several
    for reader in several:
        reader.close()


def test_what_comes_alone_is_read_at_once_and_what_comes_in_a_row_is_read_together(readers: list[Reader]) -> None:
    readers[0].far.send(b"alone")
    gevent.sleep(10 * PAUSE)
    assert readers[0].reads == [b"alone"]
    for _ in range(10):
        readers[1].far.send(b"x")
        gevent.sleep(PAUSE / 20)
    gevent.sleep(4 * PAUSE)
    assert sum(map(len, readers[1].reads)) == 10
    assert len(readers[1].reads) < 10


def test_more_than_can_be_read_in_one_go_is_read_all_the_same(batcher: ReadBatcher) -> None:
    many = [Reader(batcher) for _ in range(2 * BATCH + 1)]
    for reader in many:
        reader.far.send(b"x")
    gevent.sleep(10 * PAUSE)
    assert [reader.reads for reader in many] == [[b"x"]] * len(many)
    for reader in many:
        reader.close()


def test_a_reader_that_has_left_is_not_called_even_when_next(batcher: ReadBatcher, readers: list[Reader]) -> None:
    first, other, _ = readers
    left: list[Reader] = []

    def leave_for(one: Reader, another: Reader) -> None:
        one.near.recv(100)
        batcher.remove(another.near.fileno())
        left.append(another)

    for one, another in ((first, other), (other, first)):
        batcher.remove(one.near.fileno())
        batcher.add(one.near.fileno(), partial(leave_for, one, another))
    first.far.send(b"x")
    other.far.send(b"x")
    gevent.sleep(4 * PAUSE)
    assert len(left) == 1


def ask(script: list[Step], monkeypatch: pytest.MonkeyPatch, requests: int = 1) -> tuple[RequestRecord, list[int]]:
    """What was seen at last, and after how many reads of each answer reads were batched."""
    after: list[int] = []
    gather = Exchange._batch_reads

    def counting(exchange: Exchange) -> None:
        after.append(exchange._answer.chunks + len(exchange._pending))
        gather(exchange)

    monkeypatch.setattr(Exchange, "_batch_reads", counting)
    with WireServer(script) as server:
        client = Client(server.url)
        for _ in range(requests):
            seen = client.request(due(time.monotonic_ns()))
        client.close()
    assert seen.outcome == "ok"
    assert not read_batcher()._callbacks
    return seen, after


def test_after_an_answer_that_takes_its_time_the_next_one_is_batched_from_its_second_token_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script: list[Step] = [HEAD, SLOW, *(step for _ in range(8) for step in (frame(token()), SLOW)), GOOD_END]
    seen, after = ask(script, monkeypatch, requests=2)
    assert after == [2, 1], "the first one with its second token"
    assert (seen.chunks, seen.merged_first, seen.stamps) == (8, False, "kernel")
    assert all(SLOW * 0.9e9 < gap < SLOW * 3e9 for gap in seen.icl)


def test_an_answer_in_a_hurry_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pause = UNHURRIED_NS / 1e9 / 10
    script: list[Step] = [HEAD, SLOW, *(step for _ in range(8) for step in (frame(token()), pause)), GOOD_END]
    seen, after = ask(script, monkeypatch)
    assert seen.chunks >= 8
    assert not after or max(seen.icl) > UNHURRIED_NS  # a crowded machine can make anything slow


def test_a_request_that_is_cut_off_leaves_nothing_behind() -> None:
    with WireServer([HEAD, *(step for _ in range(100) for step in (frame(token()), SLOW))]) as server:
        client = Client(server.url)
        heard: list[RequestRecord] = []
        asking = gevent.spawn(client.request, due(time.monotonic_ns()), heard.append)
        gevent.sleep(6 * SLOW)
        assert read_batcher()._callbacks
        asking.kill()
        client.close()
    assert [seen.outcome for seen in heard] == ["cut_off"]
    assert heard[0].chunks >= 2
    assert not read_batcher()._callbacks
