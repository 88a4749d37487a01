"""What `/health` takes next to one client without a key that never ends its request's head.

    python -m validation.speed.endless_heads --output validation/results/endless_heads.json

The client sends as fast as the server reads, and connects again when it is refused. Memory is the peak of the server's
process.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from validation.processes import peak_memory, started_server
from validation.program import command_line, write

SERVER = (sys.executable, "-m", "enginebench", "serve", "--engine", "fake", "--port", "0")
START = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
PIECE = 262_144
HEADS = {
    "none": b"",
    "one line without end": b"x" * PIECE,
    "lines without end": b"x-a: b\r\n" * (PIECE // 8),
    "empty lines": b"\r\n" * (PIECE // 2),
}


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds of `/health`; connections of the hostile client; bytes."""

    head: str
    answers: int
    median: float
    p99: float
    longest: float
    connections: int
    memory: int


class EndlessHead(threading.Thread):
    def __init__(self, port: int, piece: bytes) -> None:
        super().__init__(daemon=True)
        self.port, self.piece, self.connections, self.ended = port, piece, 0, False

    def run(self) -> None:
        while not self.ended:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                self.connections += 1
                connection.sendall(b"" if self.piece.startswith(b"\r\n") else START)
                while not self.ended:
                    connection.sendall(self.piece)


@contextmanager
def beside(port: int, piece: bytes) -> Iterator[EndlessHead]:
    client = EndlessHead(port, piece)
    if piece:
        client.start()
    yield client
    client.ended = True
    if piece:
        client.join()


def health(port: int, seconds: float) -> list[float]:
    """Seconds of each answer, over one new connection each, in ascending order."""
    took, until = [], time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(65_536), b""))
        if not answer.startswith(b"HTTP/1.1 200 "):
            raise ValueError(f"an unexpected answer: {answer[:200]!r}")
        took.append(time.perf_counter() - began)
        time.sleep(0.01)
    return sorted(took)


def measure(seconds: float) -> list[Result]:
    results = []
    for name, piece in HEADS.items():
        with started_server(SERVER) as (process, port), beside(port, piece) as client:
            took = health(port, seconds)
            median, p99 = (took[int(share * len(took))] for share in (0.5, 0.99))
            results.append(Result(name, len(took), median, p99, took[-1], client.connections, peak_memory(process)))
    return results


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each head")
    arguments = parser.parse_args()
    results = measure(arguments.seconds)
    write(arguments.output, results=[asdict(result) for result in results])
    print(f"{'head':22}{'answers':>8}{'p50 ms':>8}{'p99 ms':>8}{'max ms':>8}{'connections':>12}{'MB':>6}")
    for result in results:
        print(
            f"{result.head:22}{result.answers:8}{1e3 * result.median:8.1f}{1e3 * result.p99:8.1f}"
            f"{1e3 * result.longest:8.1f}{result.connections:12}{result.memory / 1e6:6.0f}"
        )


if __name__ == "__main__":
    main()
