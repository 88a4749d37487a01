"""One request in flight: from the write of its first byte to the last byte of the answer.

Reads are callbacks of the event loop itself, so a token costs no switch of greenlets: each read is stamped and kept.
The bytes are parsed when enough reads have accumulated, or when a read may be the end of the message. The waiting
greenlet is resumed once, when the answer has ended.
"""

from __future__ import annotations

from hashlib import blake2b
from math import inf
from operator import sub
from time import monotonic_ns
from typing import Any

from gevent import get_hub
from gevent.hub import Waiter

from enginebench.records.request import Outcome, RequestRecord
from loadtests.harness.client.clock import WallOffset
from loadtests.harness.client.kernel_stamps import kernel_stamp, kernel_stamps
from loadtests.harness.client.limits import LIMIT, STREAM_LIMIT, TOO_LONG
from loadtests.harness.client.model_answer import Answer, Moment, shorten
from loadtests.harness.client.outcome import EXHAUSTION, Ending, outcome_of
from loadtests.harness.client.read_batcher import UNHURRIED_NS, ReadBatcher, read_batcher
from loadtests.harness.client.response import Response
from loadtests.harness.client.stamped_connection import Connection, Read

READS_PER_PARSE = 64  # bounds the memory of a long answer, and the time that parsing blocks the loop (0.3 ms)
END_OF_MESSAGE = b"\r\n\r\n"
MIN_CHUNK = 16  # bytes; fewer may be the rest of a last event or an end marker that two reads share
LINGER = 1.0  # seconds from the last event to the end of the message, after which the connection is closed
DIGEST_BYTES = 8  # size of the hash that is equal for equal answers
UNNAMED_STREAMS = {"", "text/plain", "application/octet-stream"}  # media types of streams of some servers


class Exchange:
    """Use it once: `start`, `wait`, `complete`."""

    def __init__(self, connection: Connection, answer: Answer, streamed: bool, request_timeout: float) -> None:
        """`answer` is an empty answer of the API's dialect."""
        self._connection = connection
        self._receive = connection.receive
        self._streamed = streamed
        self._request_timeout = request_timeout
        self._response = Response()
        self._answer = answer
        self._last_event = answer.last_event
        self._body = bytearray()  # body of an answer that is no event stream
        self._pending: list[Read] = []
        self._is_stream = False
        self._may_defer = False
        self._ending: Ending | None = None
        self._detail: str | None = None
        self._headers_at: Moment | None = None
        self._last: Moment | None = None
        self.ended_at = 0  # user-space clock
        self.size = 0  # bytes of the answer, headers and framing included
        self._last_read = 0
        self.t_send: int | None = None  # user-space clock
        self._offset = WallOffset.read()
        hub = get_hub()
        self._waiter: Waiter[None] = Waiter(hub)
        self._leaves_at = inf
        self._readable = hub.loop.io(connection.fileno, 1, priority=1)  # before the reads that can wait
        self._batcher: ReadBatcher | None = None
        self._writable: Any = None
        self._timer: Any = None

    @property
    def reusable(self) -> bool:
        """Return whether the connection can take another request after this one."""
        return self._ending == "complete" and self._response.keep_alive

    @property
    def was_not_read(self) -> bool:
        """Return whether the connection ended without a byte of an answer."""
        return self._ending in {"closed", "lost"} and self.size == 0

    def start(self, message: bytes, leaves_at: float = inf) -> None:
        """Write the request. The connection must be idle.

        The user disconnects at `leaves_at`, in monotonic nanoseconds, if no content has arrived.
        """
        self._connection.prepare(message)
        self._readable.start(self.on_readable)
        self._leaves_at = leaves_at
        self._arm(min(self._request_timeout, (leaves_at - monotonic_ns()) / 1e9))
        try:
            self.t_send = self._last_read = monotonic_ns()
            everything_sent = self._connection.send()
        except OSError as error:
            self._lost(error)
            return
        if not everything_sent:  # the loop writes the rest of a long prompt; the answer may already begin
            self._writable = get_hub().loop.io(self._connection.fileno, 2)
            self._writable.start(self.on_writable)

    def wait(self) -> None:
        """Wait until the answer has ended in any way. An exception from outside cuts the request off."""
        try:
            if self._ending is None:
                self._waiter.get()
        except BaseException:
            if self._ending is None:
                self._parse()
            if self._ending is None:
                self._end("cut_off", "stopped before its answer was complete")
            raise

    # Callbacks of the event loop. They must not raise.

    def on_readable(self) -> None:
        try:
            read = self._receive()
        except OSError as error:
            self._parse()
            self._lost(error)
            return
        if read is None:
            return
        data = read[2]
        pending = self._pending
        pending.append(read)
        before, self._last_read = self._last_read, read[0]
        may_defer, begins = self._may_defer, False
        if self._batcher is None and may_defer and read[1]:
            begins = self._connection.unhurried
            if len(pending) > 1 and read[0] - before > UNHURRIED_NS:  # the previous read may have had the first token
                self._batch_reads()
        if (
            may_defer
            and not begins
            and len(pending) < READS_PER_PARSE
            and len(data) >= MIN_CHUNK
            and not data.endswith(END_OF_MESSAGE)
            and self._last_event not in data
            and b"error" not in data
        ):
            return
        self._parse()
        if begins and self._answer.chunks and self._ending is None:
            self._batch_reads()  # from the first token, because the answer before this one was unhurried

    def _batch_reads(self) -> None:
        """Read less often from now on: reads are late, but their kernel stamps are not."""
        try:
            batcher = read_batcher()
            batcher.add(self._connection.fileno, self.on_readable)
        except OSError:  # no free descriptor or memory: reads stay immediate
            return
        self._readable.stop()
        self._batcher = batcher

    def on_writable(self) -> None:
        try:
            if not self._connection.send():
                return
        except OSError:  # the server may have refused early and closed: its answer may still be readable
            pass
        self._writable.close()
        self._writable = None

    def on_timer(self) -> None:
        now = monotonic_ns()
        assert self.t_send is not None
        left = self._request_timeout - (now - self.t_send) / 1e9
        if now >= self._leaves_at:
            self._parse()
            if not self._answer.user:
                self._end("too_long", "the user left before the first token")
            self._leaves_at = inf
        if self._ending is not None:
            return
        if self._answer.done is not None:
            self._end("too_long", None)
        elif left <= 0:
            self._parse()
            self._end("too_long", f"not complete after {self._request_timeout:g} s")
        else:
            self._arm(min(left, (self._leaves_at - now) / 1e9))

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.close()
        self._timer = get_hub().loop.timer(max(seconds, 0.001))
        self._timer.start(self.on_timer)

    # Parsing.

    def _parse(self) -> None:
        pending, self._pending = self._pending, []
        had_ended = self._answer.done is not None
        try:
            if self._may_defer and pending and pending[-1][2]:
                self._take_all(pending)
            else:
                for stamp, timespec, data in pending:
                    self._take(data, (kernel_stamp(timespec), stamp))
                    if self._response.malformed is not None or self._ending is not None:
                        break
            if self.size > LIMIT and self._last is not None:
                self._answer.check_length(self._last)
                if self.size > STREAM_LIMIT:
                    self._end("malformed", f"the answer is longer than {STREAM_LIMIT // 2**20} MB")
        except Exception as error:  # a mistake in this client must not let a user wait forever
            self._end("malformed", f"the client could not read the answer: {error!r}")
            raise
        if self._response.ended:
            self._end("complete", None)
        elif self._response.malformed is not None:
            self._end("malformed", self._response.malformed)
        elif self._answer.error is not None:
            self._end("malformed", self._answer.error)
        elif self._answer.done is not None and not had_ended and self._ending is None:
            self._arm(LINGER)

    def _take(self, data: bytes, moment: Moment) -> None:
        self._last = moment
        self.size += len(data)
        response = self._response
        if not data:
            self._end("complete" if response.end_of_stream() else "closed", None)
            return
        pieces = response.feed(data)
        if self._headers_at is None and response.has_head:
            self._headers_at = moment
            kind = response.media_type
            is_stream = kind == self._answer.media_type or (self._streamed and kind in UNNAMED_STREAMS)
            self._is_stream = is_stream and response.status == 200
            self._may_defer = self._is_stream and response.framing != "counted"
        if not pieces:
            return
        if self._is_stream:
            self._answer.feed(b"".join(pieces), moment)
        else:
            self._body += b"".join(pieces)
            if len(self._body) > LIMIT:
                self._end("malformed", f"the answer {TOO_LONG}")

    def _take_all(self, kept: list[Read]) -> None:
        """Take reads of an event stream that has begun, none of which is its end."""
        stamps, timespecs, reads = zip(*kept, strict=True)
        self.size += sum(map(len, reads))
        moments = [*zip(kernel_stamps(timespecs), stamps, strict=True)]
        self._last = moments[-1]
        self._answer.feed_all(self._response.feed_all(reads), moments)

    # The end.

    def _lost(self, error: OSError) -> None:
        ending: Ending = "exhausted" if error.errno in EXHAUSTION else "lost"
        self._end(ending, f"connection lost: {error.strerror or error}")

    def _end(self, ending: Ending, detail: str | None) -> None:
        if self._ending is not None:
            return
        self._ending, self._detail, self.ended_at = ending, detail, monotonic_ns()
        if self._batcher is not None:
            self._batcher.remove(self._connection.fileno)
        self._readable.close()
        self._timer.close()
        if self._writable is not None:
            self._writable.close()
        self._waiter.switch(None)

    # The record.

    def complete(self, record: RequestRecord, epoch: int = 0) -> None:
        """Complete the record, after the exchange has ended.

        Stamps count from `epoch`, a reading of the monotonic clock.
        """
        assert self._ending is not None
        answer, response = self._answer, self._response
        if self._ending == "complete":
            self._read_remaining()
        record.outcome, detail = outcome_of(
            self._ending,
            self._detail,
            response,
            answer,
            body=bytes(self._body),
            streamed=self._streamed,
            is_stream=self._is_stream,
        )
        record.detail = None if detail is None else shorten(detail)
        offset = self._offset.narrowed(WallOffset.read())
        kernel = offset is not None and self._all_kernel_stamped
        chunks, behind = answer.user, epoch
        if offset is not None and kernel:
            # The offset's own error must not make a stamp later than the read.
            chunks, behind = answer.kernel, max((offset.middle, *map(sub, answer.kernel, answer.user))) + epoch

        def stamp(moment: Moment | None) -> int | None:
            if moment is None:
                return None
            wall, user = moment
            # A read of nothing (end of stream) has no kernel stamp.
            return min(wall - behind, user - epoch) if kernel and wall is not None else user - epoch

        text, tokens = answer.text, answer.output_tokens
        record.status, record.streamed = response.status, self._streamed
        record.t_send = None if self.t_send is None else self.t_send - epoch
        record.t_headers = stamp(self._headers_at)
        if chunks:
            record.t_first, record.t_last = chunks[0] - behind, chunks[-1] - behind
            record.read_first = answer.user[0] - epoch
            record.icl = tuple(map(sub, chunks[1:], chunks))
            self._connection.unhurried = kernel and chunks[-1] - chunks[0] > UNHURRIED_NS * (len(chunks) - 1)
        elif text and not self._is_stream:
            record.t_last = stamp(self._last)
        if answer.first_out is not None:
            record.t_first_out = chunks[answer.first_out] - behind
        ended_at = stamp(self._end_moment(record.outcome))
        record.t_end = self.ended_at - epoch if ended_at is None else ended_at
        record.stamps = "kernel" if kernel else "user"
        record.merged_first, record.chunks = answer.merged_first, answer.chunks
        record.first_chunk_tokens = answer.first_tokens
        record.prompt_tokens, record.output_tokens = answer.prompt_tokens, tokens
        record.token_source = None if tokens is None else "usage"
        record.reported_tokens = answer.reported_tokens if tokens is None else None
        record.cached_tokens, record.reasoning_tokens = answer.cached_tokens, answer.reasoning_tokens
        record.unseen_tokens = answer.unseen_tokens
        record.unknown_text = ", ".join(answer.unknown_fields) or None
        record.finish_reason = answer.finish_reason
        record.text = text or None if tokens is None else None
        record.answer_digest = blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest() if text else None
        record.retry_after = response.retry_after
        record.server_queue, record.server_prefill = answer.queue, answer.prefill
        record.server_decode = answer.decode

    def _read_remaining(self) -> None:
        assert self._last is not None
        if self._is_stream:
            self._answer.close(self._last)
        elif self._response.status == 200 and not self._streamed and self._response.content_encoding == "identity":
            self._answer.whole(bytes(self._body), self._last)

    def _end_moment(self, outcome: Outcome) -> Moment | None:
        """Return the moment of the read that ended the request; `None` after a timeout, which no read ended."""
        if outcome == "ok" and self._answer.done is not None:
            return self._answer.done
        if outcome == "bad_stream" and self._answer.error_at is not None:
            return self._answer.error_at
        return self._last if self._ending in {"complete", "closed"} else None

    @property
    def _all_kernel_stamped(self) -> bool:
        moments = (self._headers_at, self._answer.done)
        return all(self._answer.kernel) and all(moment[0] is not None for moment in moments if moment is not None)
