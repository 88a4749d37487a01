"""How long the most expensive request bodies delay another client's stream, and how much memory they take.

    python -m validation.speed.worst_bodies                    # one body after another, then four at a time
    python -m validation.speed.worst_bodies --output validation/results/worst_bodies.json

Meanwhile, another client reads a stream of one token every 20 ms. The gap is the longest time between two of its reads,
by the kernel's receive stamps if there are any. Memory is the peak of the server's process since its start.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection as Pipe

from loadtests.harness.client.clock import WallOffset
from loadtests.harness.client.kernel_stamps import ANCILLARY_BYTES, ask_for_stamps, kernel_stamp, timespec
from validation.processes import http_request, peak_memory, started_server
from validation.program import command_line, write

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SIZE = 4 * 1024 * 1024 - 1024  # just below the server's limit
VALUES = 132_000  # just below what the server reads for the fake engine's context
TPOT = 0.02  # seconds
MARGIN = 0.1  # seconds before and after a body that count for it
FOUR = "all of them, four at a time"


@dataclass(frozen=True, slots=True)
class Body:
    name: str
    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Result:
    """Durations in seconds, sizes in bytes."""

    name: str
    size: int
    status: int
    seconds: float
    gap: float
    peak_memory: int


def bodies() -> Iterator[Body]:
    def filled(begin: bytes, part: bytes, end: bytes) -> bytes:
        return begin + part * ((SIZE - len(begin) - len(end)) // len(part)) + end

    def many(begin: bytes, part: bytes, times: int, end: bytes) -> bytes:
        return begin + part * times + end

    chat = b'{"messages":[{"role":"user","content":"a"}],"max_tokens":1,'
    yield Body("ids and strings", TEXT, filled(b'{"prompt":[', b'1,"a",', b"1]}"))
    yield Body("strings", TEXT, filled(b'{"prompt":[', b'"a",', b'"a"]}'))
    yield Body("lists", TEXT, filled(b'{"prompt":[', b"[1],", b"[1]]}"))
    yield Body("ids", TEXT, filled(b'{"prompt":[', b"1,", b"1]}"))
    yield Body("ids that fit", TEXT, b'{"max_tokens":1,"prompt":[' + b"101," * 99_999 + b"101]}")
    yield Body("text", TEXT, b'{"prompt":"' + b"hello wo" * 237_500 + b'"}')
    yield Body("one word", TEXT, b'{"prompt":"' + b"x" * 1_900_000 + b'"}')
    yield Body("escapes", TEXT, filled(b'{"prompt":"', rb"\u00e9", b'"}'))
    yield Body("commas in text", TEXT, filled(b'{"prompt":"', b",", b'"}'))
    yield Body(
        "messages that are read", CHAT, many(b'{"messages":[', b'{"role":"user","content":"a"},', VALUES // 2, b"1]}")
    )
    yield Body("empty messages", CHAT, many(b'{"messages":[', b'{"role":"assistant"},', VALUES, b"1]}"))
    start = b'{"messages":[{"role":"user","content":['
    yield Body("parts that are read", CHAT, many(start, b'{"type":"text","text":"a"},', VALUES // 2, b"1]}]}"))
    yield Body("messages", CHAT, b'{"messages":[' + b'{"role":"user","content":"a"},' * 127_000 + b'{"role":"user"}]}')
    yield Body(
        "parts", CHAT, filled(b'{"messages":[{"role":"user","content":[', b'{"type":"text","text":""},', b"1]}]}")
    )
    yield Body("numbers for messages", CHAT, filled(b'{"messages":[', b"1,", b"1]}"))
    yield Body("arrays in arrays", CHAT, filled(b'{"messages":', b"[", b""))
    yield Body("objects in objects", CHAT, filled(b"", b'{"messages":', b""))
    yield Body("unknown fields", CHAT, b"{" + b",".join(b'"a%d":1' % number for number in range(300_000)) + b"}")
    yield Body("tools", CHAT, filled(chat + b'"tools":[', b"{},", b"{}]}"))
    yield Body("metadata", CHAT, filled(chat + b'"metadata":{"a":[', b'"",', b'""]}}'))
    yield Body("stop strings", CHAT, filled(chat + b'"stop":[', b'"a",', b'"a"]}'))
    yield Body("no UTF-8", CHAT, filled(b'{"messages":"', b"\xff", b'"}'))
    yield Body("text to tokenise", "/tokenize", b'{"prompt":"' + b"hello wo" * 237_500 + b'"}')


def post(port: int, body: Body) -> int:
    """Return the status of the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(http_request(body.path, body.content))
        answer = b""
        while data := connection.recv(65536):
            answer += data
    return int(answer.split(b" ", 2)[1])


def read_stream(port: int, results: Pipe) -> None:
    """Read tokens, in a separate process, until told to stop; then send their arrival times (monotonic seconds)."""
    content = json.dumps({"messages": [{"role": "user", "content": "a"}], "max_tokens": 100_000, "stream": True})
    arrived = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        ask_for_stamps(connection)
        offset = WallOffset.read()
        connection.sendall(http_request(CHAT, content.encode()))
        while not results.poll():
            data, ancillary, _, _ = connection.recvmsg(65536, ANCILLARY_BYTES)
            if not data:
                raise ConnectionError("the stream ended")
            stamp = kernel_stamp(timespec(ancillary))
            arrived.append(1e-9 * (time.monotonic_ns() if stamp is None else stamp - offset.middle))
    results.send(arrived)


def measure(chosen: list[Body]) -> list[Result]:
    """Send each body alone, then all of them, four at a time."""
    here, there = multiprocessing.Pipe()
    command = [sys.executable, "-m", "enginebench", "serve", "fake", "-o", f"tpot={TPOT}", "--port", "0"]
    rows: list[tuple[str, int, int, float, float, int]] = []
    with started_server(command) as (process, port):
        reader = multiprocessing.get_context("spawn").Process(target=read_stream, args=(port, there))
        reader.start()
        time.sleep(2)

        def timed(name: str, several: list[Body]) -> None:
            began = time.monotonic()
            with ThreadPoolExecutor(4) as pool:
                statuses = list(pool.map(lambda body: post(port, body), several))
            ended = time.monotonic()
            time.sleep(2 * MARGIN)
            peak = peak_memory(process)
            rows.append((name, sum(len(body.content) for body in several), max(statuses), began, ended, peak))

        for body in chosen:
            timed(body.name, [body])
        timed(FOUR, chosen)
        here.send("stop")
        arrived = here.recv()
        reader.join()
    return [
        Result(name, size, status, ended - began, longest_gap(arrived, began - MARGIN, ended + MARGIN), peak)
        for name, size, status, began, ended, peak in rows
    ]


def longest_gap(arrived: list[float], start: float, end: float) -> float:
    inside = [at for at in arrived if start <= at <= end]
    return max(later - earlier for earlier, later in itertools.pairwise(inside))


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    results = measure(list(bodies()))
    write(arguments.output, results=[asdict(result) for result in results])
    print(f"{'body':30}{'MB':>8}{'status':>8}{'seconds':>9}{'gap ms':>8}{'peak MB':>9}")
    for result in results:
        size, peak = result.size / 1e6, result.peak_memory / 1e6
        print(f"{result.name:30}{size:8.1f}{result.status:8}{result.seconds:9.2f}{1e3 * result.gap:8.0f}{peak:9.0f}")


if __name__ == "__main__":
    main()
