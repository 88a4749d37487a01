"""The measured processes: a server for the duration of a measurement, and a program that is sampled while it runs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from validation.program import ROOT

STOP_TIMEOUT = 60  # seconds to exit after SIGTERM
INTERVAL = 0.25  # seconds between two samples


@contextmanager
def started_server(command: Sequence[str]) -> Iterator[tuple[psutil.Process, int]]:
    """Yield the process and its port, once it is ready. `command` prints what `enginebench serve` prints."""
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        ready = next((line for line in process.stderr if " is ready at " in line), None)
        if ready is None:
            raise SystemExit("the server did not start")
        yield psutil.Process(process.pid), int(ready.rsplit(":", 1)[1])
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def http_request(path: str, body: bytes | None = None, keep_alive: bool = False) -> bytes:
    """Return a request to such a server as bytes, for clients that use plain sockets: a GET, or a POST of a JSON
    `body`."""
    method, content = ("GET", b"") if body is None else ("POST", body)
    connection = "keep-alive" if keep_alive else "close"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds so far, user and system, and the memory in use."""

    at: int  # monotonic nanoseconds
    tree: float  # the program and its descendants, including those that have ended
    machine: float  # all processes
    memory: int = 0  # bytes: resident memory of the program and its descendants, shared pages counted in each


def run_watched(
    command: list[str], env: Mapping[str, str], folder: Path, log: Path, timeout: float
) -> tuple[int, list[Sample]]:
    """Run `command` in `folder` with its output in `log`. Return its exit code, and four samples a second.

    Raises `TimeoutError` after `timeout` seconds. After a timeout or an interruption, the program and its descendants
    are killed.
    """
    used: dict[int, float] = {}
    samples = []
    with log.open("wb") as output:
        process = psutil.Popen(
            command,
            env=dict(env),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a program that reads the terminal would stop itself and this process
        )
        give_up = time.monotonic() + timeout
        try:
            while process.poll() is None:
                memory = look(process, used)
                samples.append(Sample(time.monotonic_ns(), sum(used.values()), machine_cpu(), memory))
                if time.monotonic() > give_up:
                    raise TimeoutError(f"it had not ended after {timeout:.0f} s")
                time.sleep(INTERVAL)
        finally:
            if process.poll() is None:
                for member in [*process.children(recursive=True), process]:
                    member.kill()
                process.wait()
    return process.returncode, samples


def look(process: psutil.Popen, used: dict[int, float]) -> int:
    """Update `used`, the CPU seconds of the process and its descendants by process id. Return their bytes of memory."""
    memory = 0
    try:
        tree = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return memory
    for member in tree:
        with suppress(psutil.NoSuchProcess):
            used[member.pid] = cpu_of(member)
            memory += member.memory_info().rss
    return memory


def cpu_of(process: psutil.Process) -> float:
    """Return the CPU seconds so far, user and system together."""
    return float(sum(process.cpu_times()[:2]))


def peak_memory(process: psutil.Process) -> int:
    """Return the peak of the process's resident memory so far, as Linux keeps it, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024


def machine_cpu() -> float:
    """Return the seconds for which the cores have been busy, added up."""
    times = psutil.cpu_times()
    return sum(times) - times.idle - times.iowait - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)


def between(samples: list[Sample], start: int, end: int, field: str) -> float:
    """Return by how much `field` grew from `start` to `end` (monotonic nanoseconds), interpolated between samples."""
    return _value(samples, end, field) - _value(samples, start, field)


def _value(samples: list[Sample], at: int, field: str) -> float:
    earlier = later = samples[0]
    for sample in samples:
        earlier, later = later, sample
        if sample.at >= at:
            break
    low, high = getattr(earlier, field), getattr(later, field)
    if later.at == earlier.at:
        return float(high)
    share = min(1.0, max(0.0, (at - earlier.at) / (later.at - earlier.at)))
    return float(low + (high - low) * share)
