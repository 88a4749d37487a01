"""The accuracy and the cost of several load testers, side by side, against the same server with known times.

    python -m validation.accuracy.client_accuracy --output validation/results/client_accuracy.json
    python -m validation.accuracy.client_accuracy iter_lines guidellm --loads 10,100 --rounds 1 --output /tmp/two.json
    python -m validation.accuracy.client_accuracy --output validation/results/client_accuracy.json --table

Each tool drives the scripted server with the same numbers of streams; each stream sends the next request as soon as
its answer of 100 tokens is complete. The error is the tool's value for a request minus the value from the server's
stamps of the same request. Each load is measured in rounds, each with a different order of the tools; `--table` prints
the medians of the rounds. All tools together take about 40 minutes on two cores, less if tools fail: eight seconds a
cell, 12 with 500 streams and 17 with 1,000, plus the start and the end of a tool. The file is written after each cell,
and the same command continues after an interruption. If a tool fails, or takes two minutes longer than the load, the
file has the reason, and the tool gets no heavier load; without this entry it is tried again.

The first two seconds, in which users start and connections are opened, are not counted, and more of them if Locust,
which starts a hundred users a second, takes longer.

CPU is that of the tool's whole process tree from the end of these seconds to the last request, without start-up and
evaluation. Memory is the highest sum of that tree's resident memory, start and evaluation included. The server has a
separate process; its lateness counts against no tool.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import psutil

from enginebench.analysis.document import Axis, Figure, Point, Series
from enginebench.analysis.write.svg import svg
from enginebench.records.formatting import counted
from enginebench.settings.system import raise_descriptor_limit
from loadtests.harness.calibration.calibrate import error_of, scripted_server, streamed
from loadtests.harness.command.command_terminal import sigterm_is_ctrl_c
from loadtests.harness.run.saved_calibration import Error
from validation.peers.tools import TOOLS, Load, Seen, ToolFailed, variables_of
from validation.processes import Sample, between, run_watched
from validation.program import ROOT, command_line, write

TOKENS = 100  # per answer
ITL = 0.01  # seconds from token to token
USERS = (1, 10, 100, 500, 1000)
ROUNDS = 3
SECONDS = 6.0  # counted seconds of a load
SETTLE = 2.0  # minimum seconds after the first request that are not counted
STARTED = 100  # users a second, as in `loadtests`, whose import would let gevent patch this process
PATIENCE = 120.0  # seconds for a tool to start, evaluate and end, in addition to its load
MIN_REQUESTS = 100  # requests that a p99 needs


@dataclass(frozen=True, slots=True)
class Row:
    """A tool at one load, in one round. Errors in seconds."""

    tool: str
    version: str
    users: int
    round: int
    nominal: float  # tokens per second
    achieved: float
    requests: int  # compared
    unmatched: int  # reported by the tool, but unknown to the server or too short
    ttft: Error
    tpot: Error
    cpu_per_token: float  # seconds
    memory: int  # bytes
    cores: float  # used by the tool
    cores_of_others: float  # used by other processes, which disturb the measurement
    load_average: float  # the machine's, just before
    command: list[str]


@dataclass(frozen=True, slots=True)
class Failure:
    tool: str
    users: int
    round: int
    reason: str


@dataclass
class Results:
    """The measured cells. A tool among the failures gets no heavier load."""

    rows: list[Row] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def failure(self, tool: str, users: int) -> Failure | None:
        """Return why the tool has no numbers at this load."""
        return next((failure for failure in self.failures if failure.tool == tool and failure.users <= users), None)

    def rounds(self, tool: str, users: int) -> list[Row]:
        return [row for row in self.rows if row.tool == tool and row.users == users]

    def missing(self, tools: Sequence[str], loads: Sequence[int], rounds: int) -> Iterator[tuple[str, int, int]]:
        """Yield the tool, the users and the round of each cell that is still to be measured, lightest loads first."""
        for users in loads:
            for number in range(1, rounds + 1):
                for tool in random.Random(f"{users} {number}").sample(tools, len(tools)):
                    done = any(row.round == number for row in self.rounds(tool, users))
                    if not done and self.failure(tool, users) is None:
                        yield tool, users, number


def settling(users: int) -> float:
    """Return the seconds until all users have started and their first answers have begun."""
    return max(SETTLE, users / STARTED + 1.0)


def measure(key: str, users: int, number: int) -> Row:
    """Measure one cell. Raises `ToolFailed` with the last lines of the tool's output."""
    tool = TOOLS[key]
    load = Load(users, TOKENS, ITL, settling(users) + SECONDS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with scripted_server(ITL, TOKENS, folder / "truth.jsonl") as port:
            command = tool.command(f"http://127.0.0.1:{port}", load, folder)
            (server,) = (
                p for p in psutil.Process().children() if "loadtests.harness.calibration.scripted_server" in p.cmdline()
            )
            before, load_average = server.cpu_times(), os.getloadavg()[0]
            log, env = folder / "log", variables_of(tool, load, folder)
            try:
                code, samples = run_watched(command, env, folder, log, load.seconds + PATIENCE)
            except TimeoutError as error:
                raise ToolFailed(str(error)) from None
            after = server.cpu_times()
        truths = [json.loads(line) for line in (folder / "truth.jsonl").read_bytes().splitlines()]
        arrivals = enumerate(sorted(truths, key=lambda truth: truth["received"]))
        by_batch = sorted(arrivals, key=lambda arrival: (arrival[0] // users, _ttft(arrival[1])))
        for rank, (_, truth) in enumerate(by_batch):
            truth["rank"] = str(rank)
        try:
            seen = list(tool.read(folder))
        except (OSError, ValueError, LookupError, TypeError) as error:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise ToolFailed(f"exit code {code}, no results ({error}):\n{last}") from None
        shown = [
            word.replace(name, "FOLDER").replace(f"{ROOT}/", "").replace(str(Path.home()), "~") for word in command
        ]
    server_cpu = after.user + after.system - before.user - before.system
    return compared(key, number, load, seen, truths, samples, server_cpu, load_average, shown)


def compared(
    key: str,
    number: int,
    load: Load,
    seen: list[Seen],
    truths: list[dict[str, Any]],
    samples: list[Sample],
    server_cpu: float,
    load_average: float,
    command: list[str],
) -> Row:
    """Compare the tool's values with the server's stamps. Raises `ToolFailed`."""
    tool = TOOLS[key]
    whole = {truth[tool.key]: truth for truth in truths if truth["tokens"] == load.tokens}
    if not whole:
        raise ToolFailed("no request of it was answered to the end")
    first = min(truth["received"] for truth in truths)
    begin = first + round(settling(load.users) * 1e9)
    end = max(truth["received"] for truth in whole.values())
    pairs = [(request, whole[request.key]) for request in seen if request.key in whole]
    counted = [(request, truth) for request, truth in pairs if begin <= truth["received"]]
    if not counted:
        raise ToolFailed(f"of its {len(seen)} requests the server knows {len(pairs)}, and none began after settling")
    answers = ((answer["tokens"], answer["first_before"], answer["last_before"]) for answer in whole.values())
    tokens = streamed(answers, begin, end)
    window = (end - begin) / 1e9
    tree, machine = (between(samples, begin, end, part) for part in ("tree", "machine"))
    answering = (max(truth["last_after"] for truth in whole.values()) - first) / 1e9
    return Row(
        tool=key,
        version=tool.version,
        users=load.users,
        round=number,
        nominal=load.users * load.tokens / load.answer,
        achieved=tokens / window,
        requests=len(counted),
        unmatched=len(seen) - len(pairs),
        ttft=error_of([request.ttft - _ttft(truth) for request, truth in counted]),
        tpot=error_of([request.tpot - _tpot(truth) for request, truth in counted]),
        cpu_per_token=tree / tokens,
        memory=max(sample.memory for sample in samples),
        cores=tree / window,
        cores_of_others=max(0.0, (machine - tree) / window - server_cpu / answering),
        load_average=load_average,
        command=command,
    )


def _ttft(truth: dict[str, Any]) -> float:
    return float(truth["first_before"] - truth["received"]) / 1e9


def _tpot(truth: dict[str, Any]) -> float:
    streaming = int(truth["last_before"] - truth["first_before"])
    return streaming / (int(truth["tokens"]) - 1) / 1e9


def _ms(seconds: float) -> str:
    size = abs(seconds) * 1e3
    return f"{seconds * 1e3:,.{3 if size < 1 else 1 if size < 100 else 0}f}"


def _median(rows: list[Row], read: Callable[[Row], float]) -> float:
    return statistics.median(read(row) for row in rows)


def _error(metric: str, statistic: str) -> Callable[[list[Row]], str]:
    def cell(rows: list[Row]) -> str:
        few = statistic == "p99" and any(row.requests < MIN_REQUESTS for row in rows)
        return _ms(_median(rows, lambda row: getattr(getattr(row, metric), statistic))) + "*" * few

    return cell


TABLES: dict[str, Callable[[list[Row]], str]] = {
    "TTFT error, p99, ms": _error("ttft", "p99"),
    "TTFT error, p50, ms": _error("ttft", "p50"),
    "TPOT error, p99, ms": _error("tpot", "p99"),
    "share of the load": lambda rows: f"{_median(rows, lambda row: row.achieved / row.nominal):.0%}",
    "CPU seconds per 1,000 tokens": lambda rows: f"{_median(rows, lambda row: row.cpu_per_token) * 1e3:.3f}",
    "peak memory, MB": lambda rows: f"{_median(rows, lambda row: row.memory) / 1e6:,.0f}",
}


def markdown(results: Results) -> Iterator[str]:
    """Yield the lines of a table for each quantity, then the reasons of empty cells. A p99 of fewer than 100 requests a
    round is actually the largest error, and has an asterisk."""
    loads = sorted({row.users for row in results.rows} | {failure.users for failure in results.failures})
    seen = {row.tool for row in results.rows} | {failure.tool for failure in results.failures}
    tools = [key for key in TOOLS if key in seen]
    for title, cell in TABLES.items():
        yield f"| {title} | " + " | ".join(counted(users, "stream") for users in loads) + " |"
        yield "|---|" + "---:|" * len(loads)
        for key in tools:
            cells = [_cell(results, key, users, cell) for users in loads]
            yield f"| {TOOLS[key].name} {TOOLS[key].version} | " + " | ".join(cells) + " |"
        yield ""
    yield from (
        f"- {TOOLS[failure.tool].name} at {failure.users:,} streams: {failure.reason.splitlines()[0]}"
        for failure in results.failures
    )


def chart(results: Results) -> str:
    """Return an SVG of the p99 error of TTFT against streams."""
    series: dict[str, list[Point]] = {}
    for tool, users in sorted({(row.tool, row.users) for row in results.rows}, key=lambda key: key[1]):
        error = _median(results.rounds(tool, users), lambda row: abs(row.ttft.p99) * 1e3)
        series.setdefault(TOOLS[tool].name, []).append(Point(users, error, label=str(users)))
    lines = tuple(Series(tool.name, tuple(series[tool.name])) for tool in TOOLS.values() if tool.name in series)
    title = f"Error of TTFT p99, {TOKENS} tokens, one every {ITL * 1e3:g} ms"
    axes = Axis("streams"), Axis("TTFT error p99", "ms")
    return svg(Figure("ttft_error", title, "load", *axes, lines), standalone=True)


def _cell(results: Results, key: str, users: int, cell: Callable[[list[Row]], str]) -> str:
    failure = results.failure(key, users)
    if failure is not None:
        return "failed" if failure.users == users else "—"
    rows = results.rounds(key, users)
    return cell(rows) if rows else "—"


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("tool", nargs="*", choices=[*TOOLS, []], help="all by default")
    parser.add_argument("--loads", default=",".join(map(str, USERS)), help="streams of each load")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--table", action="store_true", help="print what the file has, and measure nothing")
    parser.add_argument("--chart", type=Path, help="write a chart of what the file has, an SVG")
    arguments = parser.parse_args()
    results = Results()
    if arguments.output and arguments.output.exists():
        results = msgspec.json.decode(arguments.output.read_bytes(), type=Results)
    if arguments.chart:
        arguments.chart.write_text(chart(results), encoding="utf-8")
    if arguments.table:
        print(*markdown(results), sep="\n")
        return
    raise_descriptor_limit()  # the server and the tools have a connection for each stream
    loads = sorted(int(number) for number in arguments.loads.split(","))
    with sigterm_is_ctrl_c():
        for key, users, number in results.missing(arguments.tool or list(TOOLS), loads, arguments.rounds):
            print(f"{key}, {users:,} streams, round {number}:", end=" ", file=sys.stderr, flush=True)
            try:
                row = measure(key, users, number)
                results.rows.append(row)
                print(f"TTFT error p99 {_ms(row.ttft.p99)} ms, {row.achieved:,.0f} tokens/s", file=sys.stderr)
            except ToolFailed as failure:
                results.failures.append(Failure(key, users, number, str(failure)))
                print(failure, file=sys.stderr)
            write(arguments.output, "locust", "gevent", **asdict(results))
    print(*markdown(results), sep="\n")


if __name__ == "__main__":
    main()
