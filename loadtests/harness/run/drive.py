"""Run a scenario in a Locust process and follow it; serve engines for it one after the other.

Locust patches the process that imports it, so whoever drives it stays outside.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from loadtests.harness.run.options import Settings, add_options
from loadtests.harness.run.progress import Tally, progress, where_it_stands
from loadtests.harness.run.run_id import new_run_id
from loadtests.harness.run.server_process import PYTHON, ServerProcess
from loadtests.harness.schedule.stages import SECOND
from records.record import RunMeta, read_meta

POLL = 0.5  # seconds between two looks at the records
NO_SCENARIO = {"__init__", "cli"}


class Mistake(Exception):
    """The user's: one sentence, with the choices."""


class RunFailed(Exception):
    """Locust ended without a run. A sentence."""


@dataclass(frozen=True, slots=True)
class Job:
    """One scenario with its settings. `load` are options of the harness, `locust` others of Locust's own."""

    scenario: Path
    settings: Settings
    load: tuple[str, ...]
    locust: tuple[str, ...] = ()


def find_scenario(name: str) -> Path:
    """`concurrent`, or the path of somebody's own file. Raises `Mistake`."""
    if name.endswith(".py"):
        if Path(name).is_file():
            return Path(name).absolute()
        raise Mistake(f"there is no file {name}.")
    package = find_spec("loadtests")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0])
    choices = sorted(path.stem for path in folder.glob("*.py") if path.stem not in NO_SCENARIO)
    if name not in choices:
        raise Mistake(f"no scenario called `{name}`; choose from {', '.join(choices)}, or give a file of your own.")
    return folder / f"{name}.py"


def read_settings(load: Sequence[str]) -> Settings:
    """The settings that these words, the environment and the defaults make. Raises `Mistake`."""

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise Mistake(message)

    parser = Parser(add_help=False)
    add_options(parser)
    try:
        return Settings.parse(vars(parser.parse_args(list(load))))
    except ValueError as error:
        raise Mistake(str(error)) from error


def engine_options(given: Sequence[str], engines: Sequence[str]) -> dict[str, list[str]]:
    """`["a=1", "fake.b=2"]` → what each engine gets. Raises `Mistake`."""
    options: dict[str, list[str]] = {engine: [] for engine in engines}
    for option in given:
        name, equals, value = option.partition("=")
        engine, dot, setting = name.partition(".")
        if not equals:
            raise Mistake(f"an engine's setting is name=value, or engine.name=value for one of them, not `{option}`.")
        if not dot:
            for each in options.values():
                each.append(option)
        elif engine in options:
            options[engine].append(f"{setting}={value}")
        else:
            raise Mistake(f"`-o {option}` is for `{engine}`, which is not among the engines: {', '.join(engines)}.")
    return options


@dataclass(frozen=True, slots=True)
class Measured:
    """A run's folder, and the most streamed chunks per second that were seen over any five seconds of it."""

    folder: Path
    label: str
    peak: float


def measure_engine(job: Job, engine: str, options: Sequence[str], model: str | None, console: Console) -> Measured:
    """Serve `engine`, run the job against it, stop it. Raises `ServerFailed` and `RunFailed`."""
    folder = _new_folder(job, job.settings.label or engine)
    with ServerProcess(engine, options, model, folder / "server.log") as server:
        with progress(console, engine) as show:
            server.wait_until_ready(lambda seconds: show(None, f"loading, {seconds:.0f} s"))
        return _run(job, server.url, folder, engine, console)


def measure_url(job: Job, url: str, console: Console) -> Measured:
    """Run the job against a server that is there. Raises `RunFailed`."""
    label = job.settings.label or url.partition("://")[2].rstrip("/")
    folder = _new_folder(job, label)
    return _run(job, url, folder, label, console)


def _new_folder(job: Job, label: str) -> Path:
    folder = (job.settings.runs / new_run_id(label, datetime.now(UTC))).absolute()
    folder.mkdir(parents=True)
    return folder


def _run(job: Job, url: str, folder: Path, title: str, console: Console) -> Measured:
    command = [*PYTHON, "-m", "locust", "-f", str(job.scenario), "--host", url, "--headless", "--only-summary"]
    command += [*job.load, "--runs", str(folder.parent), "--run-id", folder.name, "--exit-code-on-error", "0"]
    command += job.locust
    log = folder / "locust.log"
    tally = Tally(folder)
    with log.open("wb") as output, progress(console, title) as show:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | ({"ENGINEBENCH_API_KEY": key} if (key := job.settings.api_key) else {}),
            start_new_session=True,  # a Ctrl-C in the terminal is ours to answer
        )
        try:
            meta: RunMeta | None = None
            while process.poll() is None:
                time.sleep(POLL)
                meta = meta or _meta(folder)
                if meta is None:
                    show(None, "starting")
                    continue
                tally.update()
                show(*where_it_stands(meta.stages, _age(meta), tally))
        except BaseException:
            process.send_signal(signal.SIGTERM)  # the run writes down what it has
            _wait(process)
            raise
    if _meta(folder) is None:
        raise RunFailed(_reason(log))
    tally.update()
    if tally.requests + tally.cut_off == 0:
        raise RunFailed(f"{title}: not one request was sent. {_reason(log)}")
    console.print(f"{title}: {tally.total()}", highlight=False)
    if process.returncode != 0:
        console.print(f"{title}: Locust ended with exit code {process.returncode}: see {log}", style="yellow")
    return Measured(folder, title, tally.peak)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _meta(folder: Path) -> RunMeta | None:
    try:
        return read_meta(folder)
    except FileNotFoundError:
        return None


def _age(meta: RunMeta) -> int:
    return round((datetime.now(UTC) - datetime.fromisoformat(meta.started_at)).total_seconds() * SECOND)


def _reason(log: Path) -> str:
    """What Locust complained of, without its own preamble."""
    lines = log.read_text(errors="replace").splitlines()
    errors = [line.partition(": ")[2] for line in lines if "/ERROR/" in line]
    said = (
        errors or [line for line in lines if line.startswith("locust: error:")] or lines[-1:] or ["Locust said nothing"]
    )
    return f"{said[0].removeprefix('locust: error: ')}\n(all it said: {log})"


@contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """Stopped by whatever means, servers and Locust must not stay behind."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before: Mapping[signal.Signals, object] = {s: signal.signal(s, interrupt) for s in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
