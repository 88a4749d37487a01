"""What a refused request costs: 429 under a flood, by the size of the body.

    python -m validation.speed.refusals --output validation/results/refusals.json

The only slot of a server without a queue is taken. Sixteen clients send requests without a pause, each over one
connection, and check that every answer is a 429 with `Retry-After`. CPU time is that of the server's process, user and
system.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from validation.processes import cpu_of, http_request, started_server
from validation.program import command_line, write

CHAT = "/v1/chat/completions"
CLIENTS = 16
SIZES = {"a short chat": 100, "16 000 characters": 16_000, "120 000 characters": 120_000}
SERVER = (sys.executable, "-m", "enginebench", "serve", "--engine", "fake", "-o", "ttft=3600", "-o", "concurrency=1")
LIMITS = ("--queue-size", "0", "--warmup-tokens", "0", "--request-timeout", "3600", "--port", "0")


@dataclass(frozen=True, slots=True)
class Result:
    """Bytes; refusals per second; CPU seconds per refusal."""

    body: str
    size: int
    refusals: float
    cpu: float


def request(characters: int) -> bytes:
    content = "x" * characters
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 1, "stream": True}
    return http_request(CHAT, json.dumps(body).encode(), keep_alive=True)


@contextmanager
def occupied(port: int) -> Iterator[None]:
    """The only slot is taken."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request(1))
        time.sleep(1)
        yield


def refused(port: int, content: bytes, until: float) -> int:
    """Send until `until` (monotonic); how many were refused. Raises `ValueError` at any other answer."""
    refusals = 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        while time.monotonic() < until:
            connection.sendall(content)
            answer = b""
            while not answer.endswith(b"}}"):
                if not (data := connection.recv(65_536)):
                    raise ConnectionError("the server closed the connection")
                answer += data
            if not answer.startswith(b"HTTP/1.1 429 ") or b"retry-after: " not in answer:
                raise ValueError(f"an unexpected answer: {answer[:200]!r}")
            refusals += 1
    return refusals


def measure(seconds: float) -> list[Result]:
    results = []
    with started_server([*SERVER, *LIMITS]) as (process, port), occupied(port):
        for name, size in SIZES.items():
            content = request(size)
            before, began = cpu_of(process), time.monotonic()
            with ThreadPoolExecutor(CLIENTS) as pool:
                clients = [pool.submit(refused, port, content, began + seconds) for _ in range(CLIENTS)]
                refusals = sum(client.result() for client in clients)
            took = time.monotonic() - began
            results.append(Result(name, len(content), refusals / took, (cpu_of(process) - before) / refusals))
    return results


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each size")
    arguments = parser.parse_args()
    results = measure(arguments.seconds)
    write(arguments.output, results=[asdict(result) for result in results])
    print(f"{'body':20}{'bytes':>9}{'429 per s':>11}{'CPU ms each':>13}")
    for result in results:
        print(f"{result.body:20}{result.size:9}{result.refusals:11.0f}{1e3 * result.cpu:13.3f}")


if __name__ == "__main__":
    main()
