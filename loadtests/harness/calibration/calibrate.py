"""Measure the client against the truth: scripted server in one process, load in others, one clock for all.

Of every request both sides keep stamps. The server's say when the request had reached this host and when each token was
written; the client's say when it sent and when tokens came. True TTFT is from the first to the second, and whatever the
client says beyond that is its error: the bytes' way through the kernel is in it, the server's slowness is not.

    enginebench calibrate
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadtests.harness.calibration.result import Calibration, Cell, Error
from loadtests.harness.run.host import host_facts, versions

TTFT = 0.2  # mean of the scripted first-token delays, seconds
ANSWER_SECONDS = 1.0  # an answer takes about so long, the wait for its first token included
FEWEST_TOKENS = 8  # of an answer
GRID = ((100, 10), (100, 50), (200, 50), (400, 50), (800, 50), (1000, 10), (1000, 40))
"""Users, and tokens per second for each: over all of a user's time, waits for first tokens included."""


class CalibrationFailed(Exception):
    """The measurement itself could not be made. The message is a sentence."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One request from both sides; absolute monotonic nanoseconds."""

    seen: dict[str, Any]
    truth: dict[str, Any]

    @property
    def ttft(self) -> float:
        return self._error("t_first", "first_before")

    @property
    def ttft_user_space(self) -> float:
        return self._error("read_first", "first_before")

    @property
    def e2e(self) -> float:
        return self._error("t_last", "last_before")

    @property
    def tpot(self) -> float:
        """Relative: both sides divide by the same number of tokens."""
        true = self.truth["last_before"] - self.truth["first_before"]
        return float((self.seen["t_last"] - self.seen["t_first"]) / true - 1)

    def _error(self, seen: str, true: str) -> float:
        latency = self.seen[seen] - self.seen["t_send"]
        return float(latency - (self.truth[true] - self.truth["received"])) / 1e9


def parse_grid(text: str) -> list[tuple[int, float]]:
    """`100x50,400x50` -> users and rates. Raises `ValueError` with a sentence."""
    grid = []
    for load in text.split(","):
        users, _, rate = load.partition("x")
        try:
            grid.append((int(users), float(rate)))
        except ValueError:
            raise ValueError(f"`{load}` is no load; write users x tokens per second for each, like 100x50.") from None
        if grid[-1][0] < 1 or grid[-1][1] <= 0:
            raise ValueError(f"`{load}` is no load: at least one user and more than 0 tokens per second.")
    return grid


def calibrate(
    grid: Sequence[tuple[int, float]], seconds: float, processes: int, progress: Callable[[Cell], None]
) -> Calibration:
    """Run every load of `grid` for `seconds`. Raises `CalibrationFailed`."""
    _raise_open_file_limit()
    cells = []
    for users, rate in grid:
        cells.append(measure(users, rate, seconds, processes))
        progress(cells[-1])
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = versions("enginebench", "gevent", "httptools", "msgspec")
    return Calibration(made_at, processes, tuple(cells), host_facts(), facts)


def measure(users: int, rate: float, seconds: float, processes: int, spread: float | None = None) -> Cell:
    """One load. Users start spread over one answer's time, or over `spread` seconds. Raises `CalibrationFailed`."""
    tokens, tpot = pace(rate)
    spread = tokens / rate if spread is None else spread
    with tempfile.TemporaryDirectory() as folder:
        truth_file = Path(folder) / "truth.jsonl"
        server_core, client_cores = cores_apart(processes)
        with scripted_server(tpot, tokens, truth_file, core=server_core) as port:
            shares = [users // processes + (n < users % processes) for n in range(processes)]
            loads = [
                _spawn(
                    "loadtests.harness.calibration.load",
                    *("--url", f"http://127.0.0.1:{port}", "--users", str(share), "--tokens", str(tokens)),
                    *("--seconds", str(seconds + spread), "--spread", str(spread), "--name", f"p{n}"),
                    *("--cores", *map(str, client_cores)),
                )
                for n, share in enumerate(shares)
                if share
            ]
            results = [_result(load) for load in loads]
        truths = {truth["user"]: truth for truth in map(json.loads, truth_file.read_text().splitlines())}
    return _cell(users, rate, processes, results, truths)


def cores_apart(processes: int) -> tuple[int | None, list[int]]:
    """A core for the server, and those for the clients; none named where there are not enough for everybody.

    Left alone, the kernel likes to wake a client on the very core whose server has just written to it. Real servers
    are elsewhere, or have more to do than this one.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) <= processes:
        return None, []
    return cores[-1], cores[:-1]


def pace(rate: float) -> tuple[int, float]:
    """Tokens of an answer, and seconds between two of them, for a user to get `rate` tokens/s on average.

    The wait for the first token brings nothing, so the others come a little faster than `rate`.
    """
    tokens = max(FEWEST_TOKENS, round(rate * ANSWER_SECONDS))
    return tokens, (tokens / rate - TTFT) / (tokens - 1)


def _cell(
    users: int, rate: float, processes: int, results: list[dict[str, Any]], truths: dict[str, dict[str, Any]]
) -> Cell:
    seen = [request for result in results for request in result["requests"]]
    good = [request for request in seen if request["outcome"] == "ok" and request["user"] in truths]
    pairs = [Pair(request, truths[request["user"]]) for request in good]
    pairs = [pair for pair in pairs if pair.truth["tokens"] == pair.seen["tokens"]]
    if not pairs:
        raise CalibrationFailed(
            f"no request of {users} users succeeded; is the limit on open files (ulimit -n) too low?"
        )
    streamed = sum(pair.seen["tokens"] for pair in pairs)
    waits = [result["cpu_wait"] for result in results if result["cpu_wait"] is not None]
    return Cell(
        users=users,
        rate=rate,
        processes=processes,
        tokens_per_second=_rate_in_the_middle(pairs),
        requests=len(seen),
        failures=len(seen) - len(pairs),
        ttft=_error([pair.ttft for pair in pairs]),
        ttft_user_space=_error([pair.ttft_user_space for pair in pairs]),
        tpot=_error([pair.tpot for pair in pairs]),
        e2e=_error([pair.e2e for pair in pairs]),
        client_lag_p99=percentile([(pair.seen["read_first"] - pair.seen["t_first"]) / 1e9 for pair in pairs], 0.99),
        merged_first=sum(pair.seen["merged_first"] for pair in pairs) / len(pairs),
        cpu_per_token=sum(result["cpu"] for result in results) / streamed,
        cpu_wait=statistics.fmean(waits) if waits else None,
        truth_p99=percentile([(pair.truth["first_after"] - pair.truth["first_before"]) / 1e9 for pair in pairs], 0.99),
        stamps="kernel" if all(pair.seen["stamps"] == "kernel" for pair in pairs) else "user",
    )


def _rate_in_the_middle(pairs: list[Pair]) -> float:
    """Tokens per second between the quarter points of the time in which tokens came: ramps left out."""
    first = min(pair.truth["first_before"] for pair in pairs)
    last = max(pair.truth["last_before"] for pair in pairs)
    start, end = first + (last - first) / 4, last - (last - first) / 4
    streamed = 0.0
    for pair in pairs:
        begun, done = pair.truth["first_before"], pair.truth["last_before"]
        inside = max(0.0, min(done, end) - max(begun, start))
        streamed += pair.truth["tokens"] * inside / max(1, done - begun)
    return float(streamed / ((end - start) / 1e9))


def _error(errors: list[float]) -> Error:
    sizes = [abs(error) for error in errors]
    return Error(statistics.fmean(errors), percentile(sizes, 0.5), percentile(sizes, 0.99))


def percentile(values: list[float], q: float) -> float:
    """Nearest rank: the smallest value that at least `q` of all do not exceed."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


@contextmanager
def scripted_server(
    tpot: float, tokens: int, truth_file: Path, ttft: float = TTFT, core: int | None = None
) -> Iterator[int]:
    """Its port. Leaving the block ends it, and `truth_file` has its stamps. Raises `CalibrationFailed`."""
    server = _spawn(
        "loadtests.harness.calibration.scripted_server",
        *("--ttft", str(ttft), "--tpot", str(tpot), "--tokens", str(tokens), "--truth", str(truth_file)),
        *(() if core is None else ("--core", str(core))),
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            raise CalibrationFailed("the scripted server did not start; the lines above say why")
        yield json.loads(line)["port"]
        server.terminate()
        server.wait(timeout=30)
    finally:
        server.kill()
        server.wait()


def _raise_open_file_limit() -> None:
    """A thousand users are a thousand connections on either side. The processes started from here inherit it."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # not on Windows

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _spawn(module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", module, *arguments], stdout=subprocess.PIPE, text=True)


def _result(load: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = load.communicate()
    if load.returncode != 0:
        raise CalibrationFailed(f"a load process ended with {load.returncode}; the lines above say why")
    result: dict[str, Any] = json.loads(output)
    return result
