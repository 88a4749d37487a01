"""Locust as users start it, with one of our scenarios, in a separate process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from enginebench.records.files import read_meta, read_requests
from enginebench.records.request import RequestRecord
from enginebench.records.run import RunMeta
from enginebench.records.stage import Stage
from enginebench.settings.system import free_port
from loadtests.harness.run.options import processes_options
from tests.support.forked import POSSIBLE, Forked
from tests.support.servers.scripted import ScriptedServer
from tests.support.servers.served import RunningServer

ROOT = Path(__file__).parents[3]
CONCURRENT = ROOT / "loadtests/concurrent.py"
LOCUST = str(Path(sys.executable).parent / "locust")
HELD = (
    "locust.main",
    "httpx",
    "msgspec",
    "enginebench.records.files",
    "enginebench.records.metrics",
    "enginebench.settings.schema",
)
MS = 1_000_000


@dataclass
class Locust:
    """A Locust process that can be stopped in several ways, and the runs it left."""

    process: subprocess.Popen[str] | Forked
    runs: Path

    def wait(self, timeout: float = 120) -> str:
        """Return Locust's output. After `timeout` seconds, it and its workers are killed, and the test fails."""
        try:
            output, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            output, _ = self.process.communicate()
            raise AssertionError(f"Locust has not ended after {timeout:g} s: {output}") from None
        return output

    def finish(self) -> Locust:
        """Wait for the end of a run in which nothing failed."""
        output = self.wait()
        assert self.process.returncode == 0, output
        assert "Traceback" not in output, output
        return self

    def wait_until(self, condition: Callable[[], bool], timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, f"Locust has ended: {self.wait()}"
            assert time.monotonic() < deadline, "this takes too long"
            time.sleep(0.05)

    @property
    def run(self) -> Path:
        (folder,) = self.runs.iterdir()
        return folder

    @property
    def meta(self) -> RunMeta:
        return read_meta(self.run)

    @property
    def stage(self) -> Stage | None:
        """Return the current stage from the run's file; `None` before the first one."""
        begun = [path.parent for path in self.runs.glob("*/meta.json")]
        return read_meta(begun[0]).stages[-1] if begun and read_meta(begun[0]).stages else None

    @property
    def records(self) -> list[RequestRecord]:
        return list(read_requests(self.run))

    def window(self, stage: Stage) -> list[RequestRecord]:
        """Return the requests that were due in the stage's window, in order."""
        assert stage.steady_start is not None
        assert stage.steady_end is not None
        found = [one for one in self.records if stage.steady_start <= one.t_sched < stage.steady_end]
        return sorted(found, key=lambda one: one.t_sched)


def start(
    server: ScriptedServer | RunningServer,
    folder: Path,
    *options: str,
    headless: bool = True,
    processes: int = 1,
    cwd: Path = ROOT,
    scenario: Path = CONCURRENT,
    preparation: Callable[[], None] | None = None,
    environment: Mapping[str, str] = {},
) -> Locust:
    """`preparation` is called in the new process before it becomes Locust."""
    runs = folder / "runs"
    command = [LOCUST, "-f", str(scenario), "--host", server.url, "--runs", str(runs), "--only-summary", *options]
    command += processes_options(processes)
    command += ["--headless"] if headless else []
    return Locust(launch(command, cwd, {**inherited(), **environment}, preparation), runs)


def inherited() -> dict[str, str]:
    """Return the environment without settings and keys of who runs the tests."""
    own = ("ENGINEBENCH", "OPENAI", "ANTHROPIC", "AWS_")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


def start_worker(scenario: Path, port: str, environment: Mapping[str, str] = {}) -> subprocess.Popen[bytes]:
    """Start a worker as on another machine, whose master listens on `port`."""
    command = [LOCUST, "-f", str(scenario), "--worker", "--master-host", "127.0.0.1", "--master-port", port]
    return subprocess.Popen(command, cwd=ROOT, env={**inherited(), **environment}, stderr=subprocess.DEVNULL)


def launch(
    command: list[str], cwd: Path, environment: Mapping[str, str], preparation: Callable[[], None] | None = None
) -> subprocess.Popen[str] | Forked:
    """Start Locust with standard error merged into standard output."""
    if POSSIBLE and preparation is None:
        return Forked(HELD, command, cwd, environment, merged=True)
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=environment,
        start_new_session=True,
        preexec_fn=preparation,
    )


@contextmanager
def with_page(
    server: ScriptedServer, folder: Path, *options: str, clean: bool = False, **settings: Any
) -> Iterator[tuple[Locust, httpx.Client]]:
    """Start Locust with its page, and wait until that is served. If `clean`, it may print no traceback."""
    port = str(free_port())
    locust = start(server, folder, "--web-port", port, *options, headless=False, **settings)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as page:
        try:
            locust.wait_until(lambda: answers(page))
            yield locust, page
        finally:
            locust.process.terminate()
            output = locust.wait()
    assert not clean or "Traceback" not in output, output


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers(page: httpx.Client) -> bool:
    """Return whether Locust's page is served."""
    try:
        return page.get("/").is_success
    except httpx.TransportError:
        return False
