"""The pictures of docs/observability.md: the dashboards with a full queue, a throttled GPU and a late load generator.

Each fault is done to real processes: a server, Locust, and a Prometheus with the project's own configuration that
scrapes both once a second. All is well for `BEFORE` seconds, then the fault lasts for `DURING`. Afterwards the panels'
own queries are asked, and what the guide says of the fault is checked in the answers.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from docs.pictures.answers import Answers, Span
from docs.pictures.browser import height_of, take
from docs.pictures.page import WIDTH, page_of
from docs.pictures.scenarios import IMAGES, ROOT
from grafana.queries import DASHBOARDS
from loadtests.harness.command.server_process import PYTHON
from loadtests.harness.run.host import free_port
from tests.support.prometheus import answers, prometheus, until

BEFORE, DURING = 50, 60  # seconds
SETTLED = 20  # seconds that are compared: the first ones, when nothing announces the fault, and the last ones
SKIPPED = 10  # seconds over which rates are taken: the first ones show the start of the load
STOPPED, EVERY = 0.05, 0.1  # seconds that the late load generator is stopped, out of these
RISES, FALLS, LEVEL = "rises", "falls", "stays"


@dataclass(frozen=True, slots=True)
class Claim:
    """What a series of a panel does at the fault, as the guide says it."""

    page: str
    panel: str
    series: str
    does: str

    def holds(self, before: float | None, during: float | None) -> bool:
        if during is None:
            return False
        start = before or 0.0
        if self.does == RISES:
            return during > 1.3 * start
        return during < 0.8 * start if self.does == FALLS else 0.6 * start <= during <= 1.6 * start


@dataclass(frozen=True, slots=True)
class Fault:
    """`begins` is a query that is answered from the fault on, where the plan of the load brings it; otherwise it begins
    `BEFORE` seconds after the first request."""

    about: str
    server: Sequence[str]
    load: Sequence[str]
    pages: Sequence[str]
    claims: Sequence[Claim]
    strike: Callable[[int], AbstractContextManager[None]] | None = None  # with the process id of the load generator
    begins: str | None = None
    serves: Sequence[str] = field(default=(*PYTHON, "-m", "enginebench", "serve", "--port", "{port}"))


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """The process gets half of the time, in turns of 50 ms: as on a machine with too few cores."""
    over = threading.Event()

    def take_turns() -> None:
        while not over.wait(EVERY - STOPPED):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=take_turns)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


SHORT = ("--prompt-tokens", "32", "--output-tokens", "32")
FAKE = ("--engine", "fake", "-o", "ttft=0.1", "-o", "tpot=0.01", "-o", "jitter=0.2")
SLO = ("--slo", "ttft_p95=0.5,tpot_p95=0.03,e2e_p95=2.5")
FAULTS = {
    "queue-full": Fault(
        about="14 requests per second for a server that can do 10, with 4 slots and a queue of 8",
        server=(*FAKE, "-o", "concurrency=4", "--queue-size", "8"),
        load=("loadtests/rate.py", "--rate", "4,14", "--stage-seconds", str(DURING), *SHORT, *SLO),
        begins="enginebench_load_stage_index == 1",
        pages=("load-test", "engine"),
        claims=(
            Claim("load-test", "Failures by kind", "rejected", RISES),
            Claim("load-test", "Attainment over time", "fake", FALLS),
            Claim("load-test", "TTFT of the users", "fake p50", RISES),
            Claim("load-test", "TPOT of the users", "fake p50", LEVEL),
            Claim("engine", "Waiting and refused", "fake waiting", RISES),
            Claim("engine", "Waiting and refused", "fake refused", RISES),
            Claim("engine", "Share of time, by phase", "queue", RISES),
            Claim("engine", "Time in the queue", "fake p50", RISES),
        ),
    ),
    "gpu-throttled": Fault(
        about="8 users; the GPU reaches 90 °C, and its clock rate falls from 1980 to 1080 MHz",
        serves=(*PYTHON, "-m", "docs.pictures.throttled_server", "{port}", str(BEFORE + 70)),
        server=(),
        begins='enginebench_gpu_throttled{reason="hardware_thermal"} > 0',
        load=("loadtests/concurrent.py", "--stages", "8", "--stage-seconds", "300", *SHORT, *SLO),
        pages=("gpu", "engine"),
        claims=(
            Claim("gpu", "Throttling by reason", "server:8000 GPU 0 hardware_thermal", RISES),
            Claim("gpu", "Clock rates", "server:8000 GPU 0 SM", FALLS),
            Claim("gpu", "Temperature", "server:8000 GPU 0", RISES),
            Claim("gpu", "GPU utilisation", "server:8000 GPU 0", LEVEL),
            Claim("gpu", "Output per GPU", "server", FALLS),
            Claim("engine", "TPOT in the server", "fake p50", RISES),
            Claim("engine", "Tokens in and out", "fake output", FALLS),
            Claim("engine", "Batch: running and slots", "fake running", LEVEL),
            Claim("engine", "Share of time, by phase", "decode", LEVEL),
        ),
    ),
    "generator-late": Fault(
        about="8 requests per second; the load generator gets the processor half of the time",
        server=(*FAKE, "-o", "concurrency=64"),
        load=("loadtests/rate.py", "--rate", "8", "--stage-seconds", "300", *SHORT, *SLO),
        strike=starved,
        pages=("load-test",),
        claims=(
            Claim("load-test", "Load generator lag", "fake send lag", RISES),
            Claim("load-test", "Load generator lag", "fake client lag", RISES),
            Claim("load-test", "TTFT of the users", "fake p99", RISES),
            Claim("load-test", "TTFT p99: clients against servers", "fake server", LEVEL),
        ),
    ),
}


def draw(name: str, folder: Path) -> list[str]:
    """Have the fault, and draw its pages; what the guide says of it and was not so."""
    fault = FAULTS[name]
    folder.mkdir(parents=True)
    (IMAGES / "grafana").mkdir(exist_ok=True)
    failed: list[str] = []
    with _watched(fault, folder) as (api, span):
        recorded = Answers(api, span)
        for page in fault.pages:
            html = folder / f"{page}.html"
            html.write_text(page_of(DASHBOARDS[page], recorded, fault.about))
            take(html, IMAGES / f"grafana/{name}-{page}.png", WIDTH, height_of(html, WIDTH))
        for claim in fault.claims:
            failed += _checked(name, claim, recorded)
    return failed


def _checked(name: str, claim: Claim, recorded: Answers) -> Iterator[str]:
    (panel,) = (one for one in DASHBOARDS[claim.page]["panels"] if one["title"] == claim.panel)
    found = {one.name: one for one in recorded.of(panel)}
    series, end = found.get(claim.series), recorded.span.seconds
    before = series.mean(0, SETTLED) if series is not None else None
    during = series.mean(end - SETTLED, end) if series is not None else None
    print(f"{name}: {claim.panel}, {claim.series} {claim.does}: {before} → {during}")
    if not claim.holds(before, during):
        yield f"{name}: {claim.panel}, {claim.series} should be one that {claim.does}: {before} → {during}"


@contextmanager
def _watched(fault: Fault, folder: Path) -> Iterator[tuple[httpx.Client, Span]]:
    """A Prometheus that saw the fault from start to end, and when it was."""
    program = shutil.which("prometheus")
    if program is None:
        raise SystemExit("there is no Prometheus here: `make system` installs it, where that is allowed.")
    server, exporter = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    shown = {server: "server:8000", exporter: "load:9646"}  # as under Compose, whatever ports were free
    serves = [part.format(port=server.rpartition(":")[2]) for part in fault.serves]
    load = [*PYTHON, "-m", "locust", "-f", *fault.load, "--host", f"http://{server}", "--headless", "--only-summary"]
    load += ["--exporter", exporter, "--runs", str(folder / "runs"), "--run-id", "20261122-100000-fault"]
    with (
        prometheus(program, _made(folder / "prometheus"), shown, servers=[server], load=[exporter]) as api,
        _process([*serves, *fault.server], folder / "server.log"),
    ):
        until(lambda: _ready(server), "the server is ready")
        with _process(load, folder / "load.log") as generator:
            until(lambda: _at(api, "sum(enginebench_load_requests_total) > 0") is not None, "a request has ended")
            start = time.time() + SKIPPED
            if fault.begins is not None:
                until(lambda: _at(api, fault.begins or "") is not None, "the fault begins", seconds=3 * BEFORE)
            else:
                time.sleep(SKIPPED + BEFORE)
            onset = time.time()
            if fault.strike is None:
                time.sleep(DURING)
            else:
                with fault.strike(generator.pid):
                    time.sleep(DURING)
            yield api, Span(round(max(start, onset - BEFORE)), round(onset), round(time.time()))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _ready(server: str) -> bool:
    with httpx.Client(base_url=f"http://{server}") as client:
        return answers(client, "/ready")


def _at(api: httpx.Client, expr: str) -> float | None:
    found = api.get("/api/v1/query", params={"query": expr}).json()["data"]["result"]
    return float(found[0]["value"][0]) if found else None


@contextmanager
def _process(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill() if "locust" in command else process.terminate()
        process.wait(30)
