"""How true several load testers are, and what they cost: side by side, against the same server of known truth.

    python -m validation.accuracy.client_accuracy --output validation/results/client_accuracy.json
    python -m validation.accuracy.client_accuracy iter_lines guidellm --loads 10,100 --seconds 5

Each tool drives the scripted server at the same numbers of users, each asking again as soon as it has its answer,
at 50 tokens/s. Error is what the tool reports of a request minus what the server's stamps say of that very request.
Every tool climbs from light loads to heavy ones until its TTFT p99 error exceeds 10 ms; 100 users are measured always.
The first seconds, in which users start and connections are opened, are not counted: two, or more where Locust, which
starts a hundred users a second, needs them.

CPU is that of the tool's whole process tree, between those first seconds and the last request: no start-up, no
evaluation after the run. The server has a process of its own; what it is late counts against no tool.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from loadtests.harness.calibration.calibrate import error_of, pace, scripted_server, streamed
from loadtests.harness.run.calibration import Error
from validation.peers.tools import TOOLS, Load, Seen, Tool, ToolFailed, variables_of
from validation.processes import Sample, between, run_watched
from validation.program import ROOT, command_line, write

RATE = 50.0  # tokens per second and user
USERS = (10, 20, 50, 100, 200, 400, 600, 800)
ALWAYS = 100  # users: the load at which all tools are compared
LIMIT = 0.010  # seconds of TTFT p99 error
SETTLE = 2.0  # seconds after the first request that are not counted, at least
STARTED = 100  # users a second, as the shapes of `loadtests` do it; to import those lets gevent patch this process
PATIENCE = 180.0  # seconds for a tool to start, evaluate and end, in addition to its load
REACHED = 0.9  # a tool that makes less than this share of the load has not made the load


@dataclass(frozen=True, slots=True)
class Row:
    """A tool at one load. Errors in seconds, that of TPOT as a share of the true value."""

    tool: str
    version: str
    users: int
    nominal: float  # tokens per second
    achieved: float
    requests: int  # compared
    unmatched: int  # reported by the tool, and unknown to the server or not of full length
    ttft: Error
    tpot: Error
    cpu_per_token: float  # seconds
    cores: float  # used by the tool
    cores_of_others: float  # used by neither the tool nor the server: what disturbed the measurement
    load_average: float  # of the machine, just before
    command: list[str]

    @property
    def good(self) -> bool:
        return self.ttft.p99 < LIMIT and self.achieved > REACHED * self.nominal


def settling(users: int) -> float:
    """Return seconds until all are there and their first answers have begun."""
    return max(SETTLE, users / STARTED + 1.0)


def measure(tool: Tool, users: int, seconds: float) -> Row:
    """Raise `ToolFailed` with the tool's own last words."""
    tokens, tpot = pace(RATE)
    seconds += settling(users) - SETTLE
    load = Load(users, RATE, tokens, seconds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with scripted_server(tpot, tokens, folder / "truth.jsonl") as port:
            command = tool.command(f"http://127.0.0.1:{port}", load, folder)
            (server,) = (
                p for p in psutil.Process().children() if "loadtests.harness.calibration.scripted_server" in p.cmdline()
            )
            before, load_average = server.cpu_times(), os.getloadavg()[0]
            log, env = folder / "log", variables_of(tool, load, folder)
            try:
                code, samples = run_watched(command, env, folder, log, seconds + PATIENCE)
            except TimeoutError as error:
                raise ToolFailed(str(error)) from None
            after = server.cpu_times()
        truths = [json.loads(line) for line in (folder / "truth.jsonl").read_bytes().splitlines()]
        if code and not truths:
            raise ToolFailed("\n".join(log.read_text(errors="replace").splitlines()[-15:]))
        try:
            seen = list(tool.read(folder))
        except (OSError, ValueError) as error:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise ToolFailed(f"exit code {code}, no results ({error}):\n{last}") from None
        shown = [
            word.replace(name, "FOLDER").replace(f"{ROOT}/", "").replace(str(Path.home()), "~") for word in command
        ]
    server_cpu = after.user + after.system - before.user - before.system
    return compared(tool, load, seen, truths, samples, server_cpu, load_average, shown)


def compared(
    tool: Tool,
    load: Load,
    seen: list[Seen],
    truths: list[dict[str, Any]],
    samples: list[Sample],
    server_cpu: float,
    load_average: float,
    command: list[str],
) -> Row:
    """Return what the tool has seen, against what the server's stamps say. Raises `ToolFailed`."""
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
    tree, machine = (between(samples, begin, end, field) for field in ("tree", "machine"))
    answering = (max(truth["last_after"] for truth in whole.values()) - first) / 1e9
    return Row(
        tool=tool.name,
        version=tool.version,
        users=load.users,
        nominal=load.users * load.rate,
        achieved=tokens / window,
        requests=len(counted),
        unmatched=len(seen) - len(pairs),
        ttft=error_of([request.ttft - _ttft(truth) for request, truth in counted]),
        tpot=error_of([request.tpot / _tpot(truth) - 1 for request, truth in counted]),
        cpu_per_token=tree / tokens,
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


def climb(tool: Tool, users: list[int], seconds: float) -> Iterator[Row]:
    """Measure from the lightest load until one is too much, and the load for comparison in any case.

    Raises `ToolFailed`.
    """
    too_much = False
    for number in users:
        if not too_much or number == ALWAYS:
            row = measure(tool, number, seconds)
            too_much = too_much or not row.good
            yield row


HEADER = (
    "tool, users × tokens/s | achieved tokens/s | requests | TTFT bias ms | TTFT p50 ms | TTFT p99 ms | TPOT p50 % "
    "| TPOT p99 % | CPU s per 1 000 tokens | cores | others' cores"
)


def as_line(row: Row) -> str:
    ttft = (f"{row.ttft.bias * 1e3:+.3f}", f"{row.ttft.p50 * 1e3:.3f}", f"{row.ttft.p99 * 1e3:.3f}")
    tpot = (f"{row.tpot.p50 * 100:.4f}", f"{row.tpot.p99 * 100:.4f}")
    cpu = (f"{row.cpu_per_token * 1e3:.4f}", f"{row.cores:.2f}", f"{row.cores_of_others:.2f}")
    load = f"{row.tool} {row.version}, {row.users} × {RATE:g}"
    return " | ".join((load, f"{row.achieved:,.0f}", f"{row.requests:,}", *ttft, *tpot, *cpu))


def verdicts(rows: list[Row]) -> Iterator[str]:
    for name in dict.fromkeys(row.tool for row in rows):
        good = [row for row in rows if row.tool == name and row.good]
        if not good:
            yield f"{name}: above {LIMIT * 1e3:g} ms already at the lightest load."
            continue
        best = max(good, key=lambda row: row.achieved)
        yield (
            f"{name}: p99 error under {LIMIT * 1e3:g} ms up to {best.achieved:,.0f} tokens/s, "
            f"{best.achieved / best.cores:,.0f} per core used."
        )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("tool", nargs="*", choices=[*TOOLS, []], help="all by default")
    parser.add_argument("--loads", default=",".join(map(str, USERS)), help="users of each load")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each load lasts")
    arguments = parser.parse_args()
    users = sorted(int(number) for number in arguments.loads.split(","))
    rows: list[Row] = []
    failures: dict[str, str] = {}
    print(HEADER)
    print(" | ".join("---" for _ in HEADER.split("|")))
    for name in arguments.tool or TOOLS:
        try:
            for row in climb(TOOLS[name], users, arguments.seconds):
                rows.append(row)
                print(as_line(row), flush=True)
        except ToolFailed as failure:
            failures[name] = str(failure)
            print(f"{name}: {failure}", file=sys.stderr)
    print("", *verdicts(rows), sep="\n")
    documents = [asdict(row) for row in rows]
    write(arguments.output, "locust", "gevent", seconds=arguments.seconds, rows=documents, failures=failures)


if __name__ == "__main__":
    main()
