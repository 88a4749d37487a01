"""The time and memory of a report on a million requests of a hundred tokens, and whether its percentiles are exact.

    python -m validation.speed.report_at_scale --output validation/results/report_at_scale.json
    python -m validation.speed.report_at_scale --requests 200000 --from lines

A run folder is written with random latencies (five stages of users, one request in two hundred refused), either as the
lines that a load test writes or as the Parquet table that a report makes from them. `enginebench report` then runs as a
separate program. Each percentile in its summary is checked by counting: at least as many values as its rank are no
larger, and fewer are smaller. For the count, the values are drawn again from their seeds, a slice at a time.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import polars as pl
import psutil

from enginebench.analysis.data.lines import SCHEMA
from enginebench.analysis.data.requests_table import TABLE, sink
from enginebench.records.command import typed_command
from enginebench.records.files import requests_file, write_meta
from enginebench.records.load import Users
from enginebench.records.run import RunMeta
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from loadtests.harness.run.host import host_facts, versions
from validation.processes import look
from validation.program import command_line, write

TOKENS = 100
STAGES = (100, 200, 300, 400, 500)  # users
SLICE = 10_000  # requests with one seed
REFUSED = 200  # one of this many requests
TARGETS = {"lines": (20.0, 2e9), "parquet": (90.0, 4e9)}  # seconds, bytes
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A slice of requests, in nanoseconds. `gaps` has a row for each request."""

    number: Ints
    stage: Ints
    sched: Ints
    ttft: Ints
    gaps: Ints
    refused: npt.NDArray[np.bool_]

    @property
    def e2e(self) -> Ints:
        return np.asarray(self.ttft + self.gaps.sum(axis=1), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Result:
    """Durations in seconds, sizes in bytes. Memory is the peak of the resident memory of the whole process tree."""

    source: str
    requests: int
    tokens: int
    size: int  # size of the lines or the table
    seconds: float
    cpu_seconds: float
    most_resident: int
    percentiles_checked: int
    percentiles_wrong: int

    @property
    def reached(self) -> bool:
        seconds, resident = TARGETS[self.source]
        return self.seconds <= seconds and self.most_resident <= resident and not self.percentiles_wrong


def stages_of(requests: int) -> tuple[Stage, ...]:
    """Place requests 1 ms apart, the first and last tenth of each stage outside its window."""
    length = requests // len(STAGES) * SECOND // 1000
    stages = []
    for index, users in enumerate(STAGES):
        start = index * length
        plan = StagePlan(Users(users), Extent(0.1 * length / SECOND), Extent(0.8 * length / SECOND))
        stages.append(Stage(index, plan, start, start + length // 10, start + 9 * length // 10, start + length))
    return tuple(stages)


def draw(begin: int, requests: int) -> Drawn:
    """Return the slice whose first request has the number `begin`."""
    rng = np.random.default_rng(begin)
    number = np.arange(begin, min(begin + SLICE, requests))
    n, stage = len(number), number * len(STAGES) // requests
    ttft = (rng.lognormal(math.log(0.2), 0.4, n) * (1 + stage) * SECOND).astype(np.int64)
    gaps = rng.integers(15_000_000, 25_000_000, (n, TOKENS - 1))
    return Drawn(
        number, stage, number * SECOND // 1000 + rng.integers(0, 900_000, n), ttft, gaps, number % REFUSED == 7
    )


def frame_of(drawn: Drawn) -> pl.DataFrame:
    """Return the slice as records."""
    refused = pl.Series(drawn.refused)
    sent, n = drawn.sched + 20_000, len(drawn.number)
    first, last = sent + drawn.ttft, sent + drawn.e2e
    columns: dict[str, Any] = {
        "request_id": pl.Series(drawn.number).cast(pl.String),
        "worker": "0",
        "scenario": "concurrent",
        "stage": drawn.stage,
        "user": drawn.number % np.array(STAGES)[drawn.stage],
        "outcome": pl.Series(np.where(drawn.refused, "rejected", "ok")),
        "status": np.where(drawn.refused, 429, 200),
        "t_sched": drawn.sched,
        "t_send": sent,
        "t_headers": first - 50_000,
        "t_end": np.where(drawn.refused, sent + SECOND // 100, last + 50_000),
        "stamps": "kernel",
        "prompt_tokens": 200,
        "planned_prompt_tokens": 200,
        "planned_output_tokens": TOKENS,
        "attempt": 0,
    }
    answered: dict[str, Any] = {
        "t_first": first,
        "t_first_out": first,
        "t_last": last,
        "read_first": first + 40_000,
        "output_tokens": TOKENS,
        "first_chunk_tokens": 1,
        "cached_tokens": 0,
        "token_source": "usage",
        "finish_reason": "length",
        "answer_digest": "9f86d081884c7d65",
        "prompt_id": "2c26b46b68ffc68f",
        "server_queue": drawn.ttft * 0.3 / SECOND,
        "server_prefill": drawn.ttft * 0.6 / SECOND,
        "server_decode": drawn.gaps.sum(axis=1) / SECOND,
    }
    frame = pl.DataFrame({"request_id": columns.pop("request_id")})
    frame = frame.with_columns(**{name: _column(value) for name, value in (columns | answered).items()})
    frame = frame.with_columns(
        icl=pl.Series(drawn.gaps.reshape(-1)).reshape((n, TOKENS - 1)).arr.to_list(),
        chunks=pl.lit(TOKENS),
        merged_first=pl.lit(False),
        resent=pl.lit(False),
        streamed=pl.lit(True),
        unseen_tokens=pl.lit(0),
        retry_after=pl.when(refused).then(1.0),
        detail=pl.when(refused).then(pl.lit("queue full")),
    )
    frame = frame.with_columns(
        **{name: pl.when(~refused).then(pl.col(name)) for name in answered},
        icl=pl.when(~refused).then("icl").otherwise(pl.lit([], pl.List(pl.Int64))),
        chunks=pl.when(~refused).then("chunks").otherwise(0),
    )
    missing = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in frame.columns]
    return frame.with_columns(missing).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def _column(value: Any) -> Any:
    return (
        pl.Series(value) if isinstance(value, np.ndarray) else value if isinstance(value, pl.Series) else pl.lit(value)
    )


def slices(requests: int) -> Iterator[Drawn]:
    for begin in range(0, requests, SLICE):
        yield draw(begin, requests)


def write_run(folder: Path, requests: int, source: str) -> int:
    """Write a run folder, and return the size of its lines or its table in bytes."""
    folder.mkdir(parents=True)
    stages = stages_of(requests)
    meta = RunMeta(
        run_id=folder.name,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        scenario="concurrent",
        url="http://127.0.0.1:8000",
        model="none",
        plan=tuple(stage.plan for stage in stages),
        stages=stages,
        workload={"ignore_eos": True},
        engine={"name": "drawn", "dtype": "none"},
        host=host_facts(),
        versions=versions("enginebench"),
        label="drawn",
        command=typed_command(),
    )
    write_meta(folder, meta)
    if source == "parquet":
        sink(lambda gaps: (frame_of(drawn).cast({"icl": pl.List(gaps)}) for drawn in slices(requests)), folder / TABLE)
        return (folder / TABLE).stat().st_size
    path = folder / requests_file(0)
    with path.open("wb") as file:
        for drawn in slices(requests):
            write_lines(file, drawn)
    return path.stat().st_size


def write_lines(file: BinaryIO, drawn: Drawn) -> None:
    frame = frame_of(drawn)
    sent = frame.select("request_id", "worker", "stage", "t_sched", "t_send")
    for event, lines in (("sent", sent), ("ended", frame)):
        lines.select(pl.lit(event).alias("event"), pl.all()).write_ndjson(file)


def report(folder: Path) -> tuple[float, float, int]:
    """Run `enginebench report`. Return its seconds, CPU seconds and largest resident memory."""
    command = [sys.executable, "-m", "enginebench", "report", str(folder), "--allow-invalid"]
    began, most = time.monotonic(), 0
    process = psutil.Popen(command, stdout=subprocess.DEVNULL)
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        most = max(most, look(process, {}))
        time.sleep(0.05)
    seconds, code = time.monotonic() - began, os.waitstatus_to_exitcode(status)
    if code not in {0, 1}:
        raise SystemExit(f"the report ended with {code}")
    return seconds, usage.ru_utime + usage.ru_stime, max(most, usage.ru_maxrss * 1024)


def check(folder: Path, requests: int) -> tuple[int, int]:
    """Return the number of checked percentiles, and how many of them are wrong."""
    summary = json.loads((folder / "summary.json").read_text())
    stages = stages_of(requests)
    shown = {
        (stage["index"], metric, p): round(percentile["value"] * SECOND)
        for stage in summary["stages"]
        for metric in ("ttft", "e2e", "icl")
        for p in ("p50", "p90", "p95", "p99")
        if (percentile := stage["metrics"][metric]["percentiles"][p])["value"] is not None
    }
    smaller, no_larger = dict.fromkeys(shown, 0), dict.fromkeys(shown, 0)
    totals: dict[tuple[int, str], int] = {}
    for drawn in slices(requests):
        for stage in stages:
            assert stage.steady_start is not None
            assert stage.steady_end is not None
            inside = (drawn.sched >= stage.steady_start) & (drawn.sched < stage.steady_end)
            if not inside.any():
                continue
            well = inside & ~drawn.refused
            values = {"ttft": drawn.ttft[well], "e2e": drawn.e2e[well], "icl": drawn.gaps[well].reshape(-1)}
            attempted = {"ttft": int(inside.sum()), "e2e": int(inside.sum()), "icl": int(well.sum()) * (TOKENS - 1)}
            for metric, number in attempted.items():
                totals[stage.index, metric] = totals.get((stage.index, metric), 0) + number
            for key, value in shown.items():
                if key[0] == stage.index:
                    smaller[key] += int((values[key[1]] < value).sum())
                    no_larger[key] += int((values[key[1]] <= value).sum())
    wrong = 0
    for key in shown:
        rank = math.ceil(round(float(key[2][1:]) / 100 * totals[key[:2]], 9))
        wrong += not smaller[key] < rank <= no_larger[key]
    return len(shown), wrong


def measure(source: str, requests: int, folder: Path) -> Result:
    run = folder / f"{source}-{requests}"
    size = write_run(run, requests, source)
    seconds, cpu, resident = report(run)
    checked, wrong = check(run, requests)
    return Result(source, requests, requests * TOKENS, size, seconds, cpu, resident, checked, wrong)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--requests", type=int, help="default: a million as lines, ten million as Parquet")
    parser.add_argument("--from", dest="source", choices=list(TARGETS), help="default: one after the other")
    parser.add_argument("--folder", type=Path, help="for the runs, which take up to 6 GB; default: a temporary one")
    arguments = parser.parse_args()
    results = []
    for source in [arguments.source] if arguments.source else list(TARGETS):
        requests = arguments.requests or {"lines": 1_000_000, "parquet": 10_000_000}[source]
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            result = measure(source, requests, Path(folder))
        results.append(result)
        print(
            f"{result.requests:,} requests from {source} ({result.size / 1e9:.2f} GB): {result.seconds:.1f} s, "
            f"{result.cpu_seconds:.1f} s of CPU, {result.most_resident / 1e9:.2f} GB, "
            f"{result.percentiles_wrong} of {result.percentiles_checked} percentiles wrong"
        )
    write(
        arguments.output,
        *("polars", "numpy", "msgspec"),
        targets={source: {"seconds": t, "most_resident": b} for source, (t, b) in TARGETS.items()},
        results=[asdict(result) | {"reached": result.reached} for result in results],
    )
    raise SystemExit(any(not result.reached for result in results))


if __name__ == "__main__":
    main()
