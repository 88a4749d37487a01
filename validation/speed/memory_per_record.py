"""How much memory a long run takes: a million real requests through Locust, the client and the recorder.

    python -m validation.speed.memory_per_record --output validation/results/memory_per_record.json
    python -m validation.speed.memory_per_record --requests 20000

One worker process runs `loadtests/concurrent.py` against the scripted server, whose answers are one token long and come
at once. Every second its resident memory is noted beside the number of lines in its record file. A record is written as
its request ends and then forgotten, so the curve has to be flat.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from loadtests.harness.calibration.calibrate import scripted_server
from validation.program import ROOT, command_line, write

LIMIT = 300_000_000  # bytes of resident memory
FIRST_TOKEN = 0.01  # seconds, mean
INTERVAL = 1.0  # seconds between two looks


@dataclass(frozen=True, slots=True)
class Point:
    seconds: float
    requests: int  # recorded so far
    resident: int  # bytes


def run(requests: int, users: int) -> list[Point]:
    """Until `requests` have been recorded."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with scripted_server(0.01, 1, folder / "truth.jsonl", ttft=FIRST_TOKEN) as port:
            command = [
                *(sys.executable, "-m", "locust", "-f", "loadtests/concurrent.py", "--headless", "--only-summary"),
                *("--host", f"http://127.0.0.1:{port}", "--runs", str(folder / "runs"), "--run-id", "long"),
                *("--stages", str(users), "--stage-seconds", "36000", "--output-tokens", "1", "--prompt-tokens", "8"),
            ]
            with (folder / "log").open("wb") as log:
                worker = psutil.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
                try:
                    points = list(_watch(worker, folder / "runs" / "long" / "requests-0.jsonl", requests))
                finally:
                    worker.send_signal(signal.SIGTERM)
                    worker.wait(60)
    return points


def _watch(worker: psutil.Popen, records: Path, requests: int) -> Iterator[Point]:
    started, position, lines = time.monotonic(), 0, 0
    while lines < requests:
        time.sleep(INTERVAL)
        if worker.poll() is not None:
            raise SystemExit("Locust ended before its time")
        if records.exists():
            with records.open("rb") as file:
                file.seek(position)
                while block := file.read(1 << 20):
                    lines += block.count(b"\n")
                position = file.tell()
        yield Point(time.monotonic() - started, lines, worker.memory_info().rss)


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=100)
    arguments = parser.parse_args()
    points = run(arguments.requests, arguments.users)
    early = next(point for point in points if point.requests >= arguments.requests / 100)
    last, most = points[-1], max(point.resident for point in points)
    grown = last.resident - early.resident
    rate = (last.requests - early.requests) / (last.seconds - early.seconds)
    print(
        f"{last.requests:,} requests at {rate:,.0f} a second: {most / 1e6:.0f} MB at most, {grown / 1e6:+.1f} MB from "
        f"the {early.requests:,}th to the last, {grown / (last.requests - early.requests):.1f} bytes a record."
    )
    write(
        arguments.output,
        *("locust", "gevent"),
        users=arguments.users,
        requests=last.requests,
        most_resident=most,
        bytes_per_record=grown / (last.requests - early.requests),
        points=[asdict(point) for point in [*points[::10], last]],
    )
    raise SystemExit(most > LIMIT)


if __name__ == "__main__":
    main()
