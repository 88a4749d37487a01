"""The accuracy of the load generator, from an ordinary Locust run against a scripted server on the same clock.

Both sides timestamp every request: the server its arrival and the write of each token, the client its sending and the
arrival of each token. The server's timestamps give the true TTFT. The difference to the client's TTFT is the client's
error, which includes the way through the kernel but not the server's lateness.

The user, workload and recorder of real runs are measured, first on an idle machine, then together with processes that
keep every core busy, like an engine on the same machine.

    enginebench calibrate
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

from enginebench.records.files import read_meta, read_requests, read_samples, telemetry_files
from enginebench.records.request import RequestRecord
from enginebench.records.rules import percentile
from enginebench.records.stage import SECOND, Stage
from enginebench.settings.schema import UserMistake
from enginebench.settings.system import raise_descriptor_limit
from loadtests.harness.calibration.scripted_server import SPREAD
from loadtests.harness.command.guard import start_guarded
from loadtests.harness.command.server_process import LOCUST
from loadtests.harness.run.host import host_facts, versions
from loadtests.harness.run.options import processes_options
from loadtests.harness.run.saved_calibration import Calibration, Cell, Condition, Error

TTFT = 0.2  # mean of the scripted first-token delays, seconds
ANSWER_SECONDS = 1.0  # per answer, including the wait for its first token
MIN_TOKENS = 8  # per answer
WARM_UP = 2.0  # minimum in seconds; the warm-up lasts until every user has had an answer
GRID = ((100, 10), (100, 50), (200, 50), (400, 50), (1000, 10), (1000, 40))
"""Users, and tokens per second of each user, including the waits for first tokens."""
BUSY_GRID = ((100, 10), (100, 50), (400, 50))
QUICK_GRIDS = (((100, 10), (100, 50), (400, 50)), ((100, 50),))
"""Grids for a quiet and a busy machine that take less than a minute."""
SECONDS, QUICK_SECONDS = 6.0, 3.0  # per load, once all users are active
SCENARIO = Path(__file__).parents[2] / "concurrent.py"
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(1_000_000))"
"""A program that keeps a core busy until its parent, whose process id is its argument, has ended."""


Grid = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Pair:
    """A request as the client and the server saw it. Only durations are compared: the client's stamps count from the
    run's start."""

    seen: RequestRecord
    truth: dict[str, Any]

    @property
    def ttft(self) -> float:
        return self._error(self.seen.t_first, "first_before")

    @property
    def ttft_user_space(self) -> float:
        return self._error(self.seen.read_first, "first_before")

    @property
    def e2e(self) -> float:
        return self._error(self.seen.t_last, "last_before")

    @property
    def tpot(self) -> float:
        """Return the relative error: both sides divide by the same number of tokens."""
        assert self.seen.t_last is not None
        assert self.seen.t_first is not None
        true = self.truth["last_before"] - self.truth["first_before"]
        return float((self.seen.t_last - self.seen.t_first) / true - 1)

    def _error(self, seen: int | None, true: str) -> float:
        assert seen is not None
        assert self.seen.t_send is not None
        return float(seen - self.seen.t_send - (self.truth[true] - self.truth["received"])) / SECOND


def parse_grid(text: str) -> list[tuple[int, float]]:
    """Read users and rates from `100x50,400x50`. Raises `UserMistake`."""
    grid = []
    for load in text.split(","):
        users, _, rate = load.partition("x")
        try:
            grid.append((int(users), float(rate)))
        except ValueError:
            raise UserMistake(
                f"`{load}` is not a load; write users x tokens per second of each, such as 100x50."
            ) from None
        if grid[-1][0] < 1 or not 0 < grid[-1][1] < inf:
            raise UserMistake(f"`{load}` is not a load: it needs at least one user and more than 0 tokens per second.")
    return grid


def calibrate(quiet: Grid, busy: Grid, seconds: float, processes: int, progress: Callable[[Cell], None]) -> Calibration:
    """Run every load on a quiet and on a busy machine for `seconds`. Raises `UserMistake`."""
    raise_descriptor_limit()  # inherited by the processes started here, which have a connection for each user
    plans: tuple[tuple[Condition, Grid], ...] = (("quiet", quiet), ("busy", busy))
    cells = []
    for condition, loads in plans:
        for users, rate in loads:
            cells.append(measure(users, rate, seconds, processes, condition))
            progress(cells[-1])
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    facts = versions("enginebench", "locust", "gevent", "httptools", "msgspec")
    return Calibration(made_at, processes, tuple(cells), host_facts(), facts)


def measure(users: int, rate: float, seconds: float, processes: int, condition: Condition) -> Cell:
    """Measure one load for `seconds`, after every user has had an answer. Raises `UserMistake`."""
    tokens, tpot = pace(rate)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with scripted_server(tpot, tokens, folder / "truth.jsonl") as port, _competition(condition):
            options = [*stage_options(users, seconds), "--output-tokens", str(tokens), *processes_options(processes)]
            run = make_load(SCENARIO, f"http://127.0.0.1:{port}", folder, *options)
        truths = {truth["prompt_id"]: truth for truth in map(json.loads, (folder / "truth.jsonl").open())}
        return _cell(users, rate, condition, run, truths)


def stage_options(users: int, seconds: float) -> list[str]:
    """Return the options of one stage that is counted for `seconds`."""
    return ["--stages", str(users), "--stage-seconds", f"{seconds + WARM_UP:g}", "--warm-up", f"{WARM_UP:g}"]


def make_load(scenario: Path, url: str, runs: Path, *options: str) -> Path:
    """Run the scenario to its end, and return the run's folder. Raises `UserMistake`."""
    command = [*LOCUST, "-f", str(scenario), "--host", url, "--headless", "--only-summary"]
    command += ["--runs", str(runs), "--run-id", "run", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise UserMistake(f"the load could not be generated (exit code {done.returncode}):\n{done.stderr[-2000:]}")
    return runs / "run"


@contextmanager
def _competition(condition: Condition) -> Iterator[None]:
    """Keep every core busy with a process within the block, if the condition is "busy"."""
    endless = [sys.executable, "-c", BUSY, str(os.getpid())]
    with ExitStack() as until_the_end:
        for _ in range((os.cpu_count() or 1) if condition == "busy" else 0):
            hog = until_the_end.enter_context(subprocess.Popen(endless, stdin=subprocess.DEVNULL))
            until_the_end.callback(hog.kill)
        yield


def pace(rate: float) -> tuple[int, float]:
    """Return the tokens of an answer and the seconds between two tokens that give a user `rate` tokens/s on average.

    No token arrives during the wait for the first one, so the others arrive a little faster than `rate`.
    """
    tokens = max(MIN_TOKENS, round(rate * ANSWER_SECONDS))
    return tokens, (tokens / rate - TTFT) / (tokens - 1)


def _cell(users: int, rate: float, condition: Condition, run: Path, truths: dict[str, dict[str, Any]]) -> Cell:
    stage = read_meta(run).stages[0]
    assert stage.steady_start is not None
    assert stage.steady_end is not None
    counted = [request for request in read_requests(run) if stage.steady_start <= request.t_sched < stage.steady_end]
    pairs = [
        Pair(request, truth)
        for request in counted
        if request.outcome == "ok"
        and (truth := truths.get(request.prompt_id or "")) is not None
        and truth["tokens"] == request.output_tokens
    ]
    if not pairs:
        raise UserMistake(f"no request of {users} users succeeded; is the limit on open files (ulimit -n) too low?")
    throughput = _tokens_per_second(pairs, stage)
    if not throughput:
        raise UserMistake("no token arrived in the middle of the window: name a load with more tokens per second.")
    cpu, waited = client_use(run, stage)
    return Cell(
        users=users,
        rate=rate,
        condition=condition,
        tokens_per_second=throughput,
        requests=len(counted),
        failures=len(counted) - len(pairs),
        ttft=error_of([pair.ttft for pair in pairs]),
        ttft_user_space=error_of([pair.ttft_user_space for pair in pairs]),
        tpot=error_of([pair.tpot for pair in pairs]),
        e2e=error_of([pair.e2e for pair in pairs]),
        cpu_per_token=cpu / throughput,
        run_delay=waited,
    )


def _tokens_per_second(pairs: list[Pair], stage: Stage) -> float:
    """Return the tokens per second in the middle half of the window, when all users were active."""
    assert stage.steady_start is not None
    assert stage.steady_end is not None
    quarter = (stage.steady_end - stage.steady_start) / 4
    start, end = stage.steady_start + quarter, stage.steady_end - quarter
    answers = ((pair.seen.output_tokens or 0, pair.seen.t_first or 0, pair.seen.t_last or 0) for pair in pairs)
    return streamed(answers, start, end) / ((end - start) / SECOND)


def streamed(answers: Iterable[tuple[int, int, int]], start: float, end: float) -> float:
    """Return the tokens from `start` to `end` of answers with (tokens, first, last), each spread evenly in time."""
    return sum(
        tokens * max(0, min(last, end) - max(first, start)) / max(1, last - first) for tokens, first, last in answers
    )


def client_use(run: Path, stage: Stage) -> tuple[float, float | None]:
    """Return the cores that the client's processes used in the window, and the mean share of time in which they waited
    for a core."""
    cores, delays = 0.0, []
    for path in telemetry_files(run):
        samples = [s for s in read_samples(path) if (stage.steady_start or 0) <= s.t < (stage.steady_end or 0)]
        used = [s.client_cpu for s in samples if s.client_cpu is not None]
        cores += statistics.fmean(used) if used else 0.0
        delays += [s.run_delay for s in samples if s.run_delay is not None and s.client_cpu is not None]
    return cores, statistics.fmean(delays) if delays else None


def error_of(errors: list[float]) -> Error:
    sizes = sorted(abs(error) for error in errors)
    return Error(statistics.fmean(errors), percentile(sizes, 0.5), percentile(sizes, 0.99))


@contextmanager
def scripted_server(
    tpot: float, tokens: int, truth_file: Path, ttft: float = TTFT, spread: float = SPREAD
) -> Iterator[int]:
    """Yield the port of a scripted server. When the block ends, `truth_file` has its stamps. Raises `UserMistake`."""
    command = [sys.executable, "-P", "-m", "loadtests.harness.calibration.scripted_server", "--truth", str(truth_file)]
    command += ["--ttft", str(ttft), "--tpot", str(tpot), "--tokens", str(tokens), "--spread", str(spread)]
    server, guard = start_guarded(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            raise UserMistake("the scripted server did not start; the lines above say why")
        yield json.loads(line)["port"]
        server.terminate()
        server.wait(timeout=30)
    finally:
        server.kill()
        server.wait()
        guard.close()
