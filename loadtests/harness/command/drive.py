"""Run a scenario in a Locust process and follow it; serve engines for it one after the other.

Locust patches the process that imports it, so it runs in a separate process.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from rich.console import Console

from loadtests.harness.command.progress import Tally, progress, where_it_stands
from loadtests.harness.command.server_process import PYTHON, Guard, ServerProcess
from loadtests.harness.run.options import COMMAND, command_of_run, processes_options
from loadtests.harness.run.run_id import new_run_id
from loadtests.harness.scenario import Scenario, read
from loadtests.harness.settings.run import RunSettings
from records.files import read_meta
from records.run import RunMeta
from records.slo import RunObjectives
from records.stage import SECOND
from settings.schema import UserMistake, from_environment, options_by_engine, settings_of

T = TypeVar("T")

POLL = 0.5  # seconds between two reads of the records
NO_SCENARIO = {"__init__", "cli"}


class RunFailed(Exception):
    """Locust ended without a run. A sentence."""


@dataclass(frozen=True, slots=True)
class Job:
    """One scenario with what was given for it. `given` are texts by the settings' names, `locust` options of Locust."""

    scenario: Path
    given: Mapping[str, str]
    settings: RunSettings
    processes: int = 1
    locust: tuple[str, ...] = ()

    @staticmethod
    def of(scenario: Path, given: Mapping[str, str], processes: int, locust: Sequence[str]) -> Job:
        """Raises `UserMistake` for a value that no scenario takes, or not this one."""
        asked = known(Scenario, given)
        read(Scenario(), from_environment(Scenario) | asked)
        settings = read(RunSettings(), from_environment(RunSettings) | known(RunSettings, given))
        checked = [*PYTHON, "-m", "loadtests.harness.command.check", str(scenario), json.dumps(asked)]
        done = subprocess.run(checked, capture_output=True, text=True)
        if done.returncode == 2:  # other errors are in the file, and Locust reports them
            raise UserMistake(done.stdout.strip())
        return Job(scenario, given, settings, processes, tuple(locust))

    @property
    def words(self) -> list[str]:
        """For Locust's command line. Secrets are not among them: others on this machine can read a command line."""
        declared = (*settings_of(Scenario), *settings_of(RunSettings))
        return [
            one.flag if one.is_switch else f"{one.flag}={self.given[one.name]}"
            for one in declared
            if one.name in self.given and not one.secret
        ]

    @property
    def secrets(self) -> dict[str, str]:
        """Environment variables of Locust's process."""
        return {
            one.variable: self.given[one.name]
            for one in settings_of(RunSettings)
            if one.secret and one.name in self.given
        }


def known(declared: type[Any], given: Mapping[str, str]) -> dict[str, str]:
    names = {one.name for one in settings_of(declared)}
    return {name: text for name, text in given.items() if name in names}


def find_scenario(name: str) -> Path:
    """`concurrent`, or the path of another locustfile. Raises `UserMistake`."""
    if name.endswith(".py"):
        if Path(name).is_file():
            return Path(name).absolute()
        raise UserMistake(f"the file {name} does not exist.")
    package = find_spec("loadtests")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(package.submodule_search_locations[0])
    choices = sorted(path.stem for path in folder.glob("*.py") if path.stem not in NO_SCENARIO)
    if name not in choices:
        raise UserMistake(f"no scenario called `{name}`; choose from {', '.join(choices)}, or give a file of your own.")
    return folder / f"{name}.py"


def engine_options(given: Sequence[str], engines: Sequence[str]) -> dict[str, list[str]]:
    """`["a=1", "fake.b=2"]` → what each engine gets. Raises `UserMistake`."""
    options = options_by_engine(given, engines)
    return {engine: [f"{name}={value}" for name, value in own.items()] for engine, own in options.items()}


@dataclass(frozen=True, slots=True)
class Measured:
    folder: Path
    complete: bool  # Locust ended by itself


@dataclass(frozen=True, slots=True)
class Repeat:
    """One round in which each engine is run once. All engines of a round get the same prompts."""

    index: int
    prompt_set: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What a run tests. `engine` is empty for a running server; `name` distinguishes models of one engine."""

    engine: str
    model: str | None = None
    name: str | None = None


def subjects(engines: Sequence[str], models: Sequence[str]) -> list[Subject]:
    """Each engine with each model. Raises `UserMistake` for a model named twice."""
    if len(set(models)) < len(models):
        raise UserMistake(f"each --model may be given only once, not as in {', '.join(models)}.")
    if len(models) < 2:
        return [Subject(engine, next(iter(models), None)) for engine in engines]
    return [Subject(engine, model, f"{engine} {model}".strip()) for engine in engines for model in models]


def rounds(tested: Sequence[T], repeats: int) -> Iterator[tuple[Repeat, list[T]]]:
    """The order of the runs: A B, B A, A B …, so that a drift of the machine favours neither."""
    series = secrets.token_hex(4)
    for index in range(repeats):
        order = list(tested) if index % 2 == 0 else list(reversed(tested))
        yield Repeat(index, f"{series}-{index}"), order


def measure_engine(job: Job, subject: Subject, options: Sequence[str], repeat: Repeat, console: Console) -> Measured:
    """Serve the engine, run the job against it, stop it. Raises `ServerFailed` and `RunFailed`."""
    label = subject.name or job.settings.label or subject.engine
    folder = _new_folder(job, label)
    with ServerProcess(subject.engine, options, subject.model, folder / "server.log") as server:
        with progress(console, label) as show:
            server.wait_until_ready(lambda seconds: show(None, f"loading, {seconds:.0f} s"))
        return _run(job, server.url, folder, label, repeat, console, server.variables)


def measure_url(job: Job, url: str, subject: Subject, repeat: Repeat, console: Console) -> Measured:
    """Run the job against a running server. Raises `RunFailed`."""
    label = subject.name or job.settings.label or url.partition("://")[2].rstrip("/")
    if subject.model is not None:
        job = replace(job, given={**job.given, "model": subject.model})
    return _run(job, url, _new_folder(job, label), label, repeat, console, {})


def _new_folder(job: Job, label: str) -> Path:
    """Raises `UserMistake`."""
    folder = (job.settings.runs / new_run_id(label, datetime.now(UTC))).absolute()
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        said = f"{job.settings.runs} cannot be written ({error.strerror}): name another folder with --runs."
        raise UserMistake(said) from None
    return folder


def _run(
    job: Job, url: str, folder: Path, label: str, repeat: Repeat, console: Console, variables: Mapping[str, str]
) -> Measured:
    """`variables` are added to those of this process for Locust."""
    command = [*PYTHON, "-m", "locust", "-f", str(job.scenario), "--host", url, "--headless", "--only-summary"]
    command += [*job.words, "--runs", str(folder.parent), "--run-id", folder.name, "--label", label]
    command += ["--repeat-index", str(repeat.index), "--prompt-set", repeat.prompt_set, "--exit-code-on-error", "0"]
    command += [*processes_options(job.processes), *job.locust]
    log = folder / "locust.log"
    tally = Tally(folder)
    with log.open("wb") as output, progress(console, label) as show:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, COMMAND: json.dumps(command_of_run()), **variables, **job.secrets},
            start_new_session=True,  # a Ctrl-C in the terminal goes to this process only
        )
        guard = Guard(process.pid)
        try:
            while process.poll() is None:
                time.sleep(POLL)
                meta = _meta(folder)
                if meta is None:
                    show(None, "starting")
                    continue
                tally.objectives = RunObjectives.of(meta.workload)
                tally.update()
                show(*where_it_stands(meta, _age(meta), tally))
        except BaseException:
            process.send_signal(signal.SIGTERM)  # the run completes its files
            _wait(process)
            if (meta := _meta(folder)) is not None and meta.search is not None:
                console.print(f"{label}: {meta.search.sentence}", soft_wrap=True)
            raise
        finally:
            guard.close()
    if _meta(folder) is None:
        raise RunFailed(_reason(log))
    tally.update()
    if tally.requests + tally.cut_off == 0:
        raise RunFailed(f"{label}: no request was sent: {_reason(log)}")
    console.print(f"{label}: {tally.total()}")
    meta = _meta(folder)
    searched = meta is not None and meta.search is not None
    complete = process.returncode == 0 or (searched and process.returncode == 1)  # 1: it is undecided
    if not complete:
        said = f"{label}: Locust {_ending(process.returncode)}; the records until then are kept. Its output: {log}"
        console.print(said, style="red", soft_wrap=True)
    return Measured(folder, complete)


def _ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


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
    """Locust's error messages, without their prefix."""
    lines = log.read_text(errors="replace").splitlines()
    errors = [line.partition(": ")[2] for line in lines if "/ERROR/" in line]
    errors = errors or [line.partition(": error: ")[2] for line in lines if ": error: " in line]  # of its command line
    said = errors or lines[-1:] or ["Locust gave no reason"]
    return f"{said[0]}\n(all output: {log})"


@contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """However the command is stopped, servers and Locust must not keep running."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before: Mapping[signal.Signals, object] = {s: signal.signal(s, interrupt) for s in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
