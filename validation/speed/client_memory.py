"""Does the load generator's memory stay flat? Half an hour of an open loop against this project's server.

    python -m validation.speed.client_memory --output validation/results/client_memory.json
    python -m validation.speed.client_memory --seconds 120

The server's metrics are scraped once a second as telemetry, and the load generator's own every five seconds, as
Prometheus does it. Resident memory of Locust's process is read once a second. Flat: the largest of the last fifth is at
most `GROWTH` above the largest of the second minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import psutil

from enginebench.records.files import read_requests
from enginebench.settings.system import free_port
from validation.processes import started_server
from validation.program import ROOT, command_line, print_fields, write

SECONDS, RATE, TOKENS = 1800.0, 50.0, 8
SETTLED = 60.0  # seconds
GROWTH = 1.02
SCRAPED = 5.0  # seconds between two scrapes of the load generator


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: the largest of each twentieth of the run."""

    seconds: float
    rate: float
    requests: int
    failed: int
    resident: list[int]
    second_minute: int
    last_fifth: int
    load_average: float  # of the machine, before

    @property
    def flat(self) -> bool:
        return self.last_fifth <= GROWTH * self.second_minute


def measure(seconds: float, rate: float) -> Memory:
    load_average, port = os.getloadavg()[0], free_port()
    serve = ["-m", "enginebench", "serve", "--engine", "fake", "--port", "0", "-o", "ttft=0.05", "-o", "tpot=0.01"]
    with tempfile.TemporaryDirectory() as name, started_server([sys.executable, *serve]) as (_, server):
        command = [sys.executable, "-m", "locust", "-f", "loadtests/rate.py", "--headless", "--only-summary"]
        command += ["--host", f"http://127.0.0.1:{server}", "--runs", name, "--run-id", "run", "--rate", f"{rate:g}"]
        command += ["--stage-seconds", f"{seconds:g}", "--output-tokens", str(TOKENS)]
        command += ["--exporter", f"127.0.0.1:{port}"]
        began, samples = time.monotonic(), list[tuple[float, int]]()
        with psutil.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as locust:
            scraped = began
            while locust.poll() is None:
                now = time.monotonic()
                with suppress(psutil.Error):
                    samples.append((now - began, locust.memory_info().rss))
                if now - scraped > SCRAPED:
                    scraped = now
                    with suppress(httpx.HTTPError):
                        httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
                time.sleep(1.0)
        if locust.returncode:
            sys.exit(f"the load could not be generated (exit code {locust.returncode})")
        outcomes = [request.outcome for request in read_requests(Path(name) / "run")]
    parts = [[bytes_ for at, bytes_ in samples if part <= 20 * at / seconds < part + 1] for part in range(20)]
    return Memory(
        seconds=seconds,
        rate=rate,
        requests=len(outcomes),
        failed=sum(outcome != "ok" for outcome in outcomes),
        resident=[max(part) for part in parts],
        second_minute=max(bytes_ for at, bytes_ in samples if SETTLED <= at < 2 * SETTLED),
        last_fifth=max(bytes_ for at, bytes_ in samples if 0.8 * seconds <= at < seconds),
        load_average=load_average,
    )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--rate", type=float, default=RATE, help="requests per second")
    arguments = parser.parse_args()
    found = measure(arguments.seconds, arguments.rate)
    print_fields(asdict(found))
    write(arguments.output, "locust", "gevent", memory=asdict(found))
    sys.exit(0 if found.flat else 1)


if __name__ == "__main__":
    main()
