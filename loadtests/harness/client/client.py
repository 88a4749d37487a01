"""The measuring client, which sends a request and completes its record.

The connection is open before the timed region starts, and `t_send` is taken at the write itself. Every read is stamped
before it is parsed, on Linux by the kernel. Parsing of events and JSON is deferred, so that one request's bookkeeping
does not delay another's stamps.

Measure its accuracy on this machine:  enginebench calibrate
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from time import monotonic_ns
from typing import ClassVar

from enginebench.records.request import Outcome, RequestRecord
from loadtests.harness.client.authentication import NO_KEY, Access
from loadtests.harness.client.call import Call
from loadtests.harness.client.exchange import Exchange
from loadtests.harness.client.grade import is_correct
from loadtests.harness.client.headers import merged_headers
from loadtests.harness.client.model_answer import without_thoughts
from loadtests.harness.client.outcome import outcome_of_opening
from loadtests.harness.client.redaction import redacted
from loadtests.harness.client.server_address import Address
from loadtests.harness.client.stamped_connection import Connection, open_connection
from loadtests.harness.client.tls import tls_context
from loadtests.harness.client.trace_context import traceparent

CLOSES_AT_ONCE = 1_000_000_000  # nanoseconds after an answer within which a server's close is no idle timeout
QUICK_CLOSES = 3  # in a row: fewer may have another reason, such as a restart of the server


class Client:
    """A keep-alive connection to a server, for one request at a time. A client belongs to one greenlet.

    Some servers (llama.cpp's) close the connection after each answer without announcing it. A request that is written
    at that moment is lost. After `QUICK_CLOSES` such connections in a row, all clients of this process close their
    connections themselves, for the rest of the run.
    """

    _quick_closes: ClassVar[Counter[Address]] = Counter()

    @classmethod
    def forget_closing(cls) -> None:
        """Forget the servers that close connections: a new run may have another server at the same address."""
        cls._quick_closes.clear()

    def __init__(
        self,
        url: str,
        *,
        access: Access = NO_KEY,
        request_timeout: float = 600.0,
        patience: float | None = None,
        epoch: int = 0,
        traced_run: str = "",
    ) -> None:
        """`Address.parse` reads `url`. Every request has the headers of `access` and of its signer; if both set the
        same header, the signer's is not sent.

        `patience` is the seconds from `t_sched` after which the user disconnects if no content has arrived. There is no
        limit on silence: a queued request may wait long for its first token. Stamps of records count from `epoch`, a
        reading of `time.monotonic_ns()`. With `traced_run`, requests have a `traceparent` of that run. Raises
        `UserMistake` if `url` is no http or https address.
        """
        self._address = Address.parse(url)
        self._tls = tls_context(access.tls) if self._address.tls else None
        self._headers = _header_lines(self._address.authority, access.headers)
        self._header_names = {name.lower() for name in access.headers}
        self._sent = dict(access.headers)  # including the headers of the last signature
        self._signer = access.signer
        self._request_timeout = request_timeout
        self._patience = inf if patience is None else patience
        self._epoch = epoch
        self._traced_run = traced_run
        self._connection: Connection | None = None
        self.free_at = 0
        """When the last answer's message ended, possibly after its content: monotonic nanoseconds."""
        self.answer_bytes = 0
        """Size of the last answer, headers and framing included."""
        self.answer_text = ""
        """Text of the last answer, to continue a conversation: without its reasoning, unless it has nothing else."""

    def connect(self) -> None:
        """Open the connection, including TLS, unless it is open. Call this before the timed region.

        Raises `OSError` with a sentence if the server cannot be reached or its certificate is not trusted.
        """
        if self._connection is not None and not self._connection.is_idle():
            self._closed_by_server()
            self.close()
        if self._connection is None:
            self._connection = open_connection(self._address, self._tls)

    def request(self, call: Call, on_end: Callable[[RequestRecord], None] = lambda _: None) -> RequestRecord:
        """Send `call`, wait for the whole answer, complete the call's record, pass it to `on_end` and return it.

        The record's `t_sched` must be set. Failures of the server or the network do not raise: they are the record's
        `outcome`. If the greenlet is killed (`gevent.GreenletExit`), `on_end` gets the outcome `cut_off`, and the
        exception is raised. A connection that the server has closed is opened again before `t_send`. If the server
        closes a kept connection before any byte of the answer, the request is sent once more (RFC 9112, 9.3.1): servers
        close idle connections, also while a request is written to them.
        """
        return self._request(call, on_end, monotonic_ns())

    def _request(self, call: Call, on_end: Callable[[RequestRecord], None], t_connect: int) -> RequestRecord:
        """Send `call`. `t_connect` is when opening a connection began, if none is open."""
        before, record = self._connection, call.record
        try:
            self.connect()
            message = self._message(call)
        except OSError as error:
            return self._not_sent(record, t_connect, outcome_of_opening(error), error.strerror, on_end)
        except BaseException:
            self._not_sent(record, t_connect, "cut_off", "stopped before it was sent", on_end)
            raise
        assert self._connection is not None
        if self._connection is not before:
            record.t_connect = t_connect - self._epoch
        record.round_trip = self._connection.round_trip
        answer = call.dialect.answer()
        exchange = Exchange(self._connection, answer, call.streamed, self._request_timeout)
        exchange.start(message, self._epoch + record.t_sched + self._patience * 1e9)
        resent = False
        try:
            exchange.wait()
            resent = exchange.was_not_read and self._connection.answers > 0
        finally:
            if exchange.was_not_read:
                self._closed_by_server()
            elif exchange.size:
                self._connection.answers += 1
                if self._connection.answers > 1:
                    self._quick_closes.pop(self._address, None)
            if not exchange.reusable or self._quick_closes[self._address] >= QUICK_CLOSES:
                self.close()
            if not resent:
                self.free_at, self.answer_bytes = exchange.ended_at, exchange.size
                exchange.complete(record, self._epoch)
                if record.detail is not None:
                    record.detail = redacted(record.detail, self._sent)
                spoken = without_thoughts(answer.spoken)
                self.answer_text = spoken or answer.text
                if call.expected is not None and record.outcome == "ok":
                    record.correct = is_correct(spoken, call.expected)
                if call.kept:
                    record.text, record.token_ends, record.logprobs = answer.text, answer.token_ends, answer.logprobs
                on_end(record)
        if resent:  # on a new connection, so there is no third attempt
            record.resent = True
            assert exchange.t_send is not None
            return self._request(call, on_end, exchange.t_send)
        return record

    def _closed_by_server(self) -> None:
        assert self._connection is not None
        if self._connection.answers == 1 and monotonic_ns() - self.free_at < CLOSES_AT_ONCE:
            self._quick_closes[self._address] += 1

    def close(self) -> None:
        """Close the connection. The client can be used again, and then reconnects."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _not_sent(
        self,
        record: RequestRecord,
        t_connect: int,
        outcome: Outcome,
        detail: str | None,
        on_end: Callable[[RequestRecord], None],
    ) -> RequestRecord:
        """Complete the record of a request without a connection or a signature."""
        self.free_at = monotonic_ns()
        record.outcome, record.detail = outcome, detail
        record.t_connect, record.t_end = t_connect - self._epoch, self.free_at - self._epoch
        on_end(record)
        return record

    def _message(self, call: Call) -> bytes:
        target = self._address.target_of_model(call.path)
        head = f"POST {target} HTTP/1.1\r\nContent-Length: {len(call.body)}\r\n"
        if self._traced_run:
            head += f"traceparent: {traceparent(self._traced_run, call.record.request_id)}\r\n"
        if self._signer is not None:
            signed = self._signer(self._address.authority, target, call.body)
            self._sent |= signed
            head += _lines({name: value for name, value in signed.items() if name.lower() not in self._header_names})
        return head.encode() + self._headers + call.body


def _header_lines(authority: str, headers: Mapping[str, str]) -> bytes:
    """Return the header lines of every request, with the blank line."""
    ours = {
        "Host": authority,
        "User-Agent": "enginebench",
        "Accept": "text/event-stream, application/vnd.amazon.eventstream, application/json",
        "Accept-Encoding": "identity",  # compression would delay tokens
        "Content-Type": "application/json",
    }
    return _lines(merged_headers(ours, headers)).encode("latin-1") + b"\r\n"


def _lines(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())
