"""The server's own overhead: one server process with the fake engine, driven from another process.

    python -m validation.speed.server_throughput                 # every scenario, 5 s each
    python -m validation.speed.server_throughput flood --seconds 10 --output flood.json

    flood      64 streams without delay: maximum tokens per second, and CPU per token
    paced      64 streams × 400 tokens/s: one write per token; CPU per token
    latency    100 streams × 50 tokens/s: from the generation of a token in the engine to its arrival in the driver
    requests   16 clients, answers of 1 token, not streamed: requests per second
    streams-N  as `latency`, with N streams × 20 tokens/s: added delay by the number of streams

CPU time covers only the server's process, user and system, read before and after (psutil). "Tokens per CPU second"
is the throughput of a core that does nothing else; "tokens per second" was measured while this machine also ran the
engine and the driver. `latency` is the time from the stamp that the engine writes into the token (`stamped_engine.py`)
to the kernel's receive stamp in the driver or, without one, to the driver's read: an upper bound on the delay that
the server adds. Clients start one after another.
"""

from __future__ import annotations

import json
import multiprocessing
import re
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection as Pipe

import psutil

from loadtests.harness.client.clock import WallOffset
from loadtests.harness.client.kernel_stamps import ANCILLARY_BYTES, ask_for_stamps, kernel_stamp, timespec
from validation.processes import cpu_of, http_request, started_server
from validation.program import command_line, write

CONTENT = b'"content":" '  # every word of the fake engine begins with a space; the role-only chunk has no content
USAGE = re.compile(rb'"completion_tokens":(\d+)')
READ_BYTES = 64 * 1024
STAMP = re.compile(rb'"content":" (\d+)"')
SPREAD = 1.0  # seconds over which the clients start
WARM_UP = 1.0  # seconds from then until the measured window


@dataclass(frozen=True, slots=True)
class Scenario:
    options: tuple[str, ...]  # options of the fake engine
    clients: int
    tokens: int  # per answer
    streamed: bool = True
    stamped: float | None = None  # seconds per token of an engine that stamps its tokens, instead of the fake one


SCENARIOS = {
    "flood": Scenario((), clients=64, tokens=2_000),
    "paced": Scenario(("tpot=0.0025",), clients=64, tokens=2_000),
    "latency": Scenario((), clients=100, tokens=100, stamped=0.02),
    "requests": Scenario((), clients=16, tokens=1, streamed=False),
    "streams-100": Scenario((), clients=100, tokens=200, stamped=0.05),
    "streams-300": Scenario((), clients=300, tokens=200, stamped=0.05),
    "streams-1000": Scenario((), clients=1_000, tokens=200, stamped=0.05),
}


@dataclass(frozen=True, slots=True)
class Result:
    """Rates per second over the measured window; CPU and added delay in seconds, `None` if it was not measured."""

    scenario: str
    seconds: float
    requests: float
    tokens: float
    server_cpu_share: float  # share of one core
    engine_cpu_share: float
    driver_cpu_share: float
    server_cpu_per_token: float
    tokens_per_cpu_second: float
    late_p50: float | None
    late_p99: float | None


class Client:
    """A keep-alive connection that sends the next request as soon as it has its answer."""

    def __init__(self, port: int, request: bytes, scenario: Scenario, late: list[float]) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        ask_for_stamps(self.socket)
        self._offset = WallOffset.read()
        self.answers = 0
        self.tokens = 0
        self._request = request
        self._scenario = scenario
        self._late = late
        self._end = b"0\r\n\r\n" if scenario.streamed else b"}}"

    def send(self) -> None:
        self._tail = b""
        self._seen = 0
        self.socket.send(self._request)

    def read(self) -> None:
        data, ancillary, _, _ = self.socket.recvmsg(READ_BYTES, ANCILLARY_BYTES)
        now = time.monotonic_ns()
        if (stamp := kernel_stamp(timespec(ancillary))) is not None:
            now = min(now, stamp - self._offset.middle)
        if not data:
            raise ConnectionError("the server closed the connection")
        data = self._tail + data
        complete = data.endswith(self._end)
        end = len(data) if complete else data.rfind(b"\n") + 1
        whole, self._tail = data[:end], data[end:]
        arrived = whole.count(CONTENT)
        if self._scenario.stamped is not None:
            self._late += [1e-9 * (now - int(stamp)) for stamp in STAMP.findall(whole)]
        self._seen += arrived
        self.tokens += arrived
        if complete:
            self._finish(whole)

    def _finish(self, last: bytes) -> None:
        usage = USAGE.search(last)
        if usage is None or int(usage[1]) != self._scenario.tokens or self._seen != self._scenario.tokens:
            raise ValueError(f"an unexpected answer: {last[-1024:]!r}")
        self.answers += 1
        self.send()


def drive(port: int, scenario: Scenario, seconds: float, report: Pipe) -> None:
    """Warm up, in the driver's process, report the start of the window, and then the results."""
    late: list[float] = []
    request = _request(scenario)
    clients = [Client(port, request, scenario, late) for _ in range(scenario.clients)]
    ready = select.epoll()
    reads: dict[int, Callable[[], None]] = {}

    def turn(until: float) -> None:
        while (left := until - time.perf_counter()) > 0:
            for descriptor, _ in ready.poll(left):
                reads[descriptor]()

    for client in clients:
        ready.register(client.socket, select.EPOLLIN)
        reads[client.socket.fileno()] = client.read
        client.send()
        turn(time.perf_counter() + SPREAD / len(clients))
    turn(time.perf_counter() + WARM_UP)
    late.clear()
    before = sum(client.answers for client in clients), sum(client.tokens for client in clients)
    report.send("counting")
    turn(time.perf_counter() + seconds)
    after = sum(client.answers for client in clients), sum(client.tokens for client in clients)
    report.send((after[0] - before[0], after[1] - before[1], late))


def _request(scenario: Scenario) -> bytes:
    body = {
        "messages": [{"role": "user", "content": "Tell me a story about a fox."}],
        "max_tokens": scenario.tokens,
        "temperature": 0,
        "stream": scenario.streamed,
    }
    return http_request("/v1/chat/completions", json.dumps(body).encode(), keep_alive=True)


def server(scenario: Scenario) -> AbstractContextManager[tuple[psutil.Process, int]]:
    """Return a server process and its port."""
    options = [part for option in scenario.options for part in ("-o", option)]
    command = [sys.executable, "-m", "enginebench", "serve", "fake", "--port", "0", *options]
    if scenario.stamped is not None:
        command = [sys.executable, "-m", "validation.speed.stamped_engine", str(scenario.stamped)]
    return started_server(command)


def measure(name: str, seconds: float) -> Result:
    scenario = SCENARIOS[name]
    here, there = multiprocessing.Pipe()
    with server(scenario) as (process, port):
        driver = multiprocessing.get_context("spawn").Process(target=drive, args=(port, scenario, seconds, there))
        driver.start()
        there.close()
        here.recv()
        watched = [process, process.children()[0], psutil.Process(driver.pid)]
        started, before = time.perf_counter(), [cpu_of(member) for member in watched]
        requests, tokens, late = here.recv()
        used = [cpu_of(member) - cpu for member, cpu in zip(watched, before, strict=True)]
        took = time.perf_counter() - started
        driver.join()
    late.sort()
    return Result(
        scenario=name,
        seconds=took,
        requests=requests / took,
        tokens=tokens / took,
        server_cpu_share=used[0] / took,
        engine_cpu_share=used[1] / took,
        driver_cpu_share=used[2] / took,
        server_cpu_per_token=used[0] / tokens,
        tokens_per_cpu_second=tokens / used[0],
        late_p50=late[len(late) // 2] if late else None,
        late_p99=late[int(len(late) * 0.99)] if late else None,
    )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("scenario", nargs="*", choices=[*SCENARIOS, []], help="all by default")
    parser.add_argument("--seconds", type=float, default=5.0, help="counted, after a second of warm-up")
    arguments = parser.parse_args()
    results = [measure(name, arguments.seconds) for name in arguments.scenario or SCENARIOS]
    write(arguments.output, results=[asdict(result) for result in results])
    print(f"{'scenario':14}{'req/s':>9}{'tokens/s':>11}{'server µs/token':>17}{'tokens/CPU s':>14}", end="")
    print(f"{'server':>9}{'engine':>9}{'driver':>9}{'late p50 ms':>13}{'p99 ms':>9}")
    for result in results:
        late = [f"{1e3 * value:.2f}" if value is not None else "" for value in (result.late_p50, result.late_p99)]
        print(
            f"{result.scenario:14}{result.requests:9.0f}{result.tokens:11.0f}{1e6 * result.server_cpu_per_token:17.1f}"
            f"{result.tokens_per_cpu_second:14.0f}{result.server_cpu_share:9.0%}{result.engine_cpu_share:9.0%}"
            f"{result.driver_cpu_share:9.0%}{late[0]:>13}{late[1]:>9}"
        )


if __name__ == "__main__":
    main()
