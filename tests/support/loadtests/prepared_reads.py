"""One exchange of the client with prepared reads, without a socket, a server or waiting."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence

from enginebench.records.request import RequestRecord
from loadtests.harness.client.dialects.openai import CompletionAnswer
from loadtests.harness.client.exchange import Exchange
from loadtests.harness.client.model_answer import Answer
from loadtests.harness.client.stamped_connection import Connection, Read
from tests.support.loadtests.asking import due

CLOSED = b""
"""The read that means that the server has closed the connection."""


class Reads(Connection):
    """A connection that returns prepared reads, `gap` nanoseconds apart."""

    def __init__(self, pieces: Iterable[bytes], gap: int = 0) -> None:
        self.fileno, self._writer = os.pipe()  # the event loop wants a real one
        self.left = list(pieces)
        self.stamp, self.gap = time.monotonic_ns(), gap

    def receive(self) -> Read | None:
        self.stamp = self.stamp + self.gap if self.gap else time.monotonic_ns()
        return (self.stamp, b"", self.left.pop(0)) if self.left else None

    def prepare(self, message: bytes) -> None: ...

    def send(self) -> bool:
        return True

    def close(self) -> None:
        os.close(self.fileno)
        os.close(self._writer)


def exchange_of(
    pieces: Iterable[bytes], *, streamed: bool = True, gap: int = 0, answer: type[Answer] = CompletionAnswer
) -> Exchange:
    """Return the exchange after all pieces were read in order. If the answer is not complete then, no more bytes arrive
    until the time limit."""
    connection = Reads(pieces, gap)
    exchange = Exchange(connection, answer(), streamed, 600.0)
    exchange.start(b"")
    while connection.left and not exchange.ended_at:
        exchange.on_readable()
    if not exchange.ended_at:
        exchange.on_timer()
    connection.close()
    return exchange


def observe(
    *pieces: bytes, streamed: bool = True, gap: int = 0, answer: type[Answer] = CompletionAnswer
) -> RequestRecord:
    began = time.monotonic_ns()
    return seen_by(exchange_of(pieces, streamed=streamed, gap=gap, answer=answer), began)


def seen_by(exchange: Exchange, t_sched: int = 0) -> RequestRecord:
    """Return the record of an exchange that has ended."""
    record = due(t_sched).record
    exchange.complete(record)
    return record


def bytewise(answer: Sequence[bytes]) -> list[bytes]:
    """Return the same answer in reads of one byte each; a `CLOSED` at the end is kept."""
    single = [bytes([byte]) for piece in answer for byte in piece]
    return [*single, CLOSED] if answer[-1] == CLOSED else single
