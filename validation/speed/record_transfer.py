"""How long do the records of workers on other hosts take to the master, and what does it hold in memory meanwhile?

    python -m validation.speed.record_transfer --output validation/results/record_transfer.json
    python -m validation.speed.record_transfer --requests 100000

A Locust master and its workers are processes of this machine, connected as on several hosts, with the load tests' own
transfer (`users/worker_records.py`). Each worker has the records of its share of a million requests of a hundred tokens
in a folder that the master does not see. The master asks for them as it does at the end of a run. What arrives must
equal what was sent, byte for byte.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from enginebench.settings.system import free_port
from validation.program import command_line, print_fields, write
from validation.speed.report_at_scale import draw, write_lines

REQUESTS, WORKERS = 1_000_000, 4
BLOCK = 10_000  # requests that are drawn; a worker's file repeats them, far beyond what the compression looks back
START = 30.0  # seconds for the workers to connect
MOST_SECONDS = 60.0
MOST_GROWTH = 32e6  # bytes: a few pieces of each worker
SAMPLED = 0.05  # seconds between two looks at the master's memory


@dataclass(frozen=True, slots=True)
class Transferred:
    requests: int
    workers: int
    size: int  # of the records, bytes
    seconds: float
    before: int  # resident bytes of the master
    after_a_tenth: int
    most: int
    equal: bool
    load_average: float  # of the machine, before

    @property
    def reached(self) -> bool:
        return self.equal and self.seconds < MOST_SECONDS and self.most - self.after_a_tenth < MOST_GROWTH


def master(port: int, workers: int, folder: Path) -> None:
    """Says "ready" when all workers are there, gathers when it is told to, and says how many seconds it took."""
    from locust.env import Environment

    from loadtests.harness.users import worker_records

    runner = Environment().create_master_runner("127.0.0.1", port)
    give_up = time.monotonic() + START
    while len(runner.clients.ready) < workers:
        if time.monotonic() > give_up:
            sys.exit("the workers did not connect")
        time.sleep(0.05)
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    worker_records.gather(runner, folder)
    print(time.monotonic() - began, flush=True)
    runner.quit()


def worker(port: int, folder: Path) -> None:
    from locust.env import Environment

    from loadtests.harness.users import worker_records

    runner = Environment().create_worker_runner("127.0.0.1", port)
    worker_records.register_worker(runner, lambda: tuple(folder.iterdir()))
    runner.greenlet.join()


def write_records(path: Path, requests: int, number: int) -> int:
    """The lines of one worker; their size in bytes."""
    with io.BytesIO() as drawn:
        write_lines(drawn, draw(number * BLOCK, (number + 1) * BLOCK))
        block = drawn.getvalue()
    with path.open("wb") as file:
        for _ in range(requests // BLOCK):
            file.write(block)
        return file.tell()


def resident(process: psutil.Process, until: subprocess.Popen[str]) -> Iterator[tuple[float, int]]:
    """Seconds since the first look and bytes, until `until` has written its figure."""
    assert until.stdout is not None
    began = time.monotonic()
    while not select.select([until.stdout], [], [], SAMPLED)[0]:
        yield time.monotonic() - began, process.memory_info().rss


def digest(paths: list[Path]) -> str:
    found = hashlib.blake2b()
    for path in sorted(paths):
        found.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                found.update(block)
    return found.hexdigest()


def measure(requests: int, workers: int) -> Transferred:
    port, load_average = free_port(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name, ExitStack() as until_the_end:
        arrived = Path(name) / "master"
        arrived.mkdir()
        own = [Path(name) / f"worker-{number}" for number in range(workers)]
        size = 0
        for number, folder in enumerate(own):
            folder.mkdir()
            size += write_records(folder / f"requests-{number}.jsonl", requests // workers, number)

        def start(role: str, *arguments: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "validation.speed.record_transfer", "--role", role, "--port", str(port)]
            process = subprocess.Popen([*command, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            until_the_end.callback(process.kill)
            return process

        receiver = start("master", "--folder", str(arrived), "--workers", str(workers))
        for folder in own:
            start("worker", "--folder", str(folder))
        assert receiver.stdout is not None
        assert receiver.stdin is not None
        if receiver.stdout.readline().strip() != "ready":
            sys.exit("the master did not start")
        process = psutil.Process(receiver.pid)
        before = process.memory_info().rss
        receiver.stdin.write("\n")
        receiver.stdin.flush()
        samples = list(resident(process, receiver))
        seconds = float(receiver.stdout.readline())
        sent = digest([path for folder in own for path in folder.iterdir()])
        equal = digest(list(arrived.iterdir())) == sent
    return Transferred(
        requests=requests,
        workers=workers,
        size=size,
        seconds=seconds,
        before=before,
        after_a_tenth=max(bytes_ for at, bytes_ in samples if at <= max(0.1 * seconds, 2 * SAMPLED)),
        most=max(bytes_ for _, bytes_ in samples),
        equal=equal,
        load_average=load_average,
    )


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--role", choices=("master", "worker"), help="what the program starts of itself")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path())
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    if arguments.role == "master":
        return master(arguments.port, arguments.workers, arguments.folder)
    if arguments.role == "worker":
        return worker(arguments.port, arguments.folder)
    if shutil.disk_usage(tempfile.gettempdir()).free < 6 * 2000 * arguments.requests:
        sys.exit("not enough space for the records in the folder for temporary files (TMPDIR).")
    result = measure(arguments.requests, arguments.workers)
    print_fields(asdict(result))
    write(arguments.output, "locust", "gevent", transfer=asdict(result))
    sys.exit(0 if result.reached else 1)


if __name__ == "__main__":
    main()
