"""The server that the client is calibrated against: it writes tokens when they are due and records the time.

One thread, one loop, no framework. The kernel stamps each request when it arrives; each token is stamped just before
and just after its write, on the client's clock. A late token is not an error: the timestamp of the write counts, not
the plan. All stamps stay in memory and are written to a file at the end.

    python -m loadtests.harness.calibration.scripted_server --ttft 0.2 --tpot 0.02 --tokens 100 --truth truth.jsonl

It prints its port as a line of JSON; SIGTERM ends it. First-token delays are drawn from 0.5 to 1.5 times `--ttft`, so
that users are not synchronised; `--spread 0` makes them constant.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import itertools
import json
import random
import re
import select
import signal
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic_ns

from loadtests.harness.client.clock import WallOffset
from loadtests.harness.client.kernel_stamps import ANCILLARY_BYTES, ask_for_stamps, kernel_stamp, timespec
from loadtests.harness.workload.workload import prompt_id

LOOK_FOR_REQUESTS_NS = 1_000_000
SPREAD = 0.5  # first-token delays are drawn from this share below to this share above their mean


@dataclass(slots=True)
class Truth:
    """The true times of one request, in monotonic nanoseconds. A client finds its request by `user`, `prompt` or
    `answer`."""

    user: str  # the request's `user` field or X-Request-ID header
    prompt: str  # the text of its message, as JSON
    answer: str  # the `id` in every chunk
    received: int  # when the kernel had the whole request
    first_before: int = 0  # around the write of the first token
    first_after: int = 0
    last_before: int = 0
    last_after: int = 0
    tokens: int = 0
    asked: int = 0  # tokens of the whole answer


class Connected:
    """A connection, and the answer that is sent over it."""

    __slots__ = ("due", "inbox", "left", "sock", "token", "truth")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.inbox = b""
        self.left = 0
        self.due = 0
        self.token = b""
        self.truth = Truth("", "", "", 0)


def _frame(*events: str) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(data := f"data: {event}\n\n".encode()), data) for event in events)


def _chunk(choices: str, rest: str = "") -> str:
    return (
        f'{{"id":"{SOME_ID}","object":"chat.completion.chunk","created":1790000000,'
        f'"model":"scripted","choices":[{choices}]{rest}}}'
    )


SOME_ID = f"chatcmpl-{0:018x}"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ROLE = _frame(_chunk('{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'))
TOKEN = _frame(_chunk('{"index":0,"delta":{"content":" token"},"logprobs":null,"finish_reason":null}'))
TEXT_TOKEN = _frame(_chunk('{"index":0,"text":" token","logprobs":null,"finish_reason":null}'))
_MODELS = b'{"object":"list","data":[{"id":"scripted","object":"model","created":1790000000,"owned_by":"enginebench"}]}'
MODELS = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_MODELS), _MODELS)
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


def _with_id(truth: Truth, data: bytes) -> bytes:
    """Return `data` with the answer's id, which has the same length."""
    return data.replace(SOME_ID.encode(), truth.answer.encode())


def _tail(tokens: int) -> bytes:
    usage = f',"usage":{{"prompt_tokens":8,"completion_tokens":{tokens},"total_tokens":{tokens + 8}}}'
    end = '{"index":0,"delta":{},"text":"","logprobs":null,"finish_reason":"length"}'
    return _frame(_chunk(end), _chunk("", usage), "[DONE]") + b"0\r\n\r\n"


class ScriptedServer:
    """Answer requests; times are seconds in arguments, and nanoseconds inside."""

    def __init__(self, ttft: float, tpot: float, tokens: int, spread: float) -> None:
        self._ttft, self._tpot, self._tokens = ttft * 1e9, round(tpot * 1e9), tokens
        self._spread, self._random = spread, random.Random(1)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._connections: dict[int, Connected] = {}
        self._due: list[tuple[int, int, Connected]] = []
        self._order = itertools.count()
        self._offset = WallOffset.read()
        self.truths: list[Truth] = []
        self.running = True

    def run(self) -> None:
        """Serve until `running` is false."""
        while self.running:
            now = monotonic_ns()
            self._write_due_tokens(until=now + LOOK_FOR_REQUESTS_NS)
            for fileno, _ in self._wait():
                if fileno == self._listener.fileno():
                    self._accept()
                else:
                    self._read(self._connections[fileno])

    def _write_due_tokens(self, until: int) -> None:
        due = self._due
        while due:
            now = monotonic_ns()
            if now > until or now < due[0][0]:
                return
            self._write_token(heapq.heappop(due)[2])

    def _wait(self) -> list[tuple[int, int]]:
        """Wait for events. `epoll` has a resolution of milliseconds; `select` on its descriptor has microseconds.

        Busy waiting would slow down a client on the other hyperthread of the same core.
        """
        timeout = 0.05
        if self._due:
            timeout = min(timeout, (self._due[0][0] - monotonic_ns()) / 1e9)
        if timeout > 0:
            select.select([self._epoll.fileno()], [], [], timeout)
        return self._epoll.poll(0)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask_for_stamps(sock)
            self._connections[sock.fileno()] = Connected(sock)
            self._epoll.register(sock, select.EPOLLIN)

    def _read(self, connected: Connected) -> None:
        try:
            data, ancillary, _, _ = connected.sock.recvmsg(65536, ANCILLARY_BYTES)
        except OSError:
            data, ancillary = b"", []
        noticed = monotonic_ns()
        if not data:
            self._close(connected)
            return
        connected.inbox += data
        head, blank, body = connected.inbox.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        if not blank or len(body) < (int(length[1]) if length else 0):
            return
        connected.inbox = b""
        if head.startswith((b"POST /v1/chat/completions ", b"POST /v1/completions ")):
            stamp = kernel_stamp(timespec(ancillary))
            self._begin(connected, head, body, noticed if stamp is None else stamp - self._offset.middle, noticed)
        else:
            self._send(connected, MODELS if head.startswith((b"GET /v1/models ", b"GET /health ")) else NOT_FOUND)

    def _begin(self, connected: Connected, head: bytes, body: bytes, received: int, noticed: int) -> None:
        user = re.search(rb'"user": *"([^"]*)"', body) or re.search(rb"(?i)x-request-id: *(\S+)", head)
        limit = re.search(rb'"max(?:_completion)?_tokens": *(\d+)', body)
        prompt = re.search(rb'"(?:content|prompt)": *("(?:[^"\\]|\\.)*")', body)
        answer = f"chatcmpl-{len(self.truths):018x}"
        user_text, prompt_text = (match[1].decode() if match else "" for match in (user, prompt))
        truth = Truth(user_text, prompt_text, answer, received)
        self.truths.append(truth)
        chat = head.startswith(b"POST /v1/chat/")
        connected.truth, connected.token = truth, _with_id(truth, TOKEN if chat else TEXT_TOKEN)
        connected.left = truth.asked = int(limit[1]) if limit else self._tokens
        connected.due = noticed + round(self._ttft * self._random.uniform(1 - self._spread, 1 + self._spread))
        self._send(connected, _with_id(truth, HEAD + ROLE if chat else HEAD))
        heapq.heappush(self._due, (connected.due, next(self._order), connected))

    def _write_token(self, connected: Connected) -> None:
        truth = connected.truth
        before = monotonic_ns()
        self._send(connected, connected.token)
        after = monotonic_ns()
        if not truth.tokens:
            truth.first_before, truth.first_after = before, after
        truth.last_before, truth.last_after = before, after
        truth.tokens += 1
        connected.left -= 1
        if connected.left:
            connected.due += self._tpot
            heapq.heappush(self._due, (connected.due, next(self._order), connected))
        else:
            self._send(connected, _with_id(truth, _tail(truth.tokens)))

    def _send(self, connected: Connected, data: bytes) -> None:
        try:
            connected.sock.send(data)
        except OSError:  # closed, or its buffer is full: the request will not match, which is reported
            connected.left = 1

    def _close(self, connected: Connected) -> None:
        connected.left = 1
        del self._connections[connected.sock.fileno()]
        self._epoll.unregister(connected.sock)
        connected.sock.close()


def _prompt_id(truth: Truth) -> str | None:
    """Return the prompt's id in the client's records."""
    try:
        return prompt_id(json.loads(truth.prompt))
    except ValueError:
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description="A server that writes tokens when they are due and notes the time.")
    parser.add_argument("--ttft", type=float, default=0.2, help="mean time to first token, seconds")
    parser.add_argument("--tpot", type=float, default=0.02, help="time per output token, seconds")
    parser.add_argument("--tokens", type=int, default=100, help="tokens per answer, where the request names none")
    parser.add_argument("--spread", type=float, default=SPREAD, help="of the time to first token, as a share of it")
    parser.add_argument("--truth", type=Path, required=True, help="where the stamps go at the end")
    options = parser.parse_args()
    server = ScriptedServer(options.ttft, options.tpot, options.tokens, options.spread)

    def stop(*_: object) -> None:
        server.running = False

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    gc.disable()
    print(json.dumps({"port": server.port}), flush=True)
    server.run()
    with options.truth.open("w") as lines:
        for truth in server.truths:
            lines.write(json.dumps(asdict(truth) | {"prompt_id": _prompt_id(truth)}) + "\n")


if __name__ == "__main__":
    main()
