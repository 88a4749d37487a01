"""Run a scenario against one contender after the other, each in a Locust process, and follow it.

Locust patches the process that imports it, so it runs in a separate process.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, TextIO

from rich.console import Console

from loadtests.harness.client.access import KEY_VARIABLE, Access, access_to, parse_headers
from loadtests.harness.client.dialects.registry import DIALECTS, Endpoint
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.job import Job
from loadtests.harness.command.progress import Tally, progress, where_it_stands
from loadtests.harness.command.server_process import PORTS, PYTHON, Guard, ServerProcess, listen
from loadtests.harness.run.options import COMMAND, command_of_run, processes_options
from loadtests.harness.run.run_id import new_run_id
from loadtests.harness.run.target import Target, label_of
from loadtests.harness.settings.run import RunSettings
from records.files import read_meta
from records.run import RunMeta
from records.slo import RunObjectives
from records.stage import SECOND
from settings.schema import UserMistake, settings_of

POLL = 0.5  # seconds between two reads of the records
MODEL_VARIABLE, HEADER_VARIABLE = (
    next(one.variable for one in settings_of(RunSettings) if one.name == name) for name in ("model", "header")
)
# Of Locust's log: what our own modules say to the person who watches.
SAID = re.compile(
    r"\[[^]]*\] \S+/(?:WARNING/loadtests\.(?!harness\.users\.failures)|INFO/loadtests\.harness\.run\.)\S+: (.+)"
)


class RunFailed(Exception):
    """Locust ended without a run. A sentence."""


@dataclass(frozen=True, slots=True)
class Measured:
    folder: Path
    complete: bool  # Locust ended by itself


@dataclass(frozen=True, slots=True)
class Repeat:
    """One round in which each contender is run once. All contenders of a round get the same prompts."""

    index: int
    prompt_set: str


@dataclass
class Terminal:
    """Where a command says what happens; each sentence of Locust's log once, however many runs have it."""

    console: Console
    _said: set[str] = field(default_factory=set)

    def say(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, soft_wrap=True)

    def say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self.say(text)


def model_of_environment() -> list[str]:
    """What --model is, where it is not given."""
    return [os.environ[MODEL_VARIABLE]] if os.environ.get(MODEL_VARIABLE) else []


def rounds(tested: Sequence[Contender], repeats: int) -> Iterator[tuple[Repeat, list[Contender]]]:
    """The order of the runs: A B, B A, A B …, so that a drift of the machine favours neither."""
    series = secrets.token_hex(4)
    for index in range(repeats):
        order = list(tested) if index % 2 == 0 else list(reversed(tested))
        yield Repeat(index, f"{series}-{index}"), order


def prepared(job: Job, contenders: Sequence[Contender], repeats: int) -> list[Contender]:
    """The contenders with their labels, once each server was asked for its models and its engine.

    Raises `UserMistake` where one cannot be tested, or where a setting names a single run and there are several.
    """
    if (job.settings.label or job.settings.run_id) and len(contenders) > 1:
        raise UserMistake(
            "--label and --run-id name one run: name the contenders instead, such as --engine few=vllm, --url old=…"
        )
    if job.settings.run_id and repeats > 1:
        raise UserMistake("--run-id names one run: leave it out, or --repeat.")
    if job.settings.run_id and (job.settings.runs / job.settings.run_id / "meta.json").exists():
        raise UserMistake(f"{job.settings.runs / job.settings.run_id} is a run already: choose another --run-id.")
    found = []
    for one in contenders:
        name = job.settings.label or one.name
        if one.url:
            with Target(one.url, _access(job, one)) as target:
                target.model(one.model, DIALECTS[_endpoint(job)])
                name = name or label_of(None, target.engine(), one.url)
        found.append(replace(one, name=name))
    return found


def _endpoint(job: Job) -> Endpoint:
    return job.planned.endpoint if job.planned is not None else "chat"


def _access(job: Job, one: Contender) -> Access:
    settings = job.settings
    headers = parse_headers(one.headers) or settings.header
    environment = {**os.environ, **_key(one)}
    return access_to(one.url, _endpoint(job), headers, settings.insecure, environment, settings.insecure_key)


def _key(one: Contender) -> dict[str, str]:
    return {KEY_VARIABLE: one.key} if one.key else {}


def measure(job: Job, one: Contender, repeat: Repeat, port: int | None, terminal: Terminal) -> Measured:
    """Run the job against a contender, whose engine is served for as long, at `port`.

    Raises `ServerFailed`, `RunFailed` and `UserMistake`.
    """
    if one.url:
        return _run(job, one, one.url, _new_folder(job, one.name), repeat, terminal, {})
    listener = listen([port] if port is not None else [*PORTS, 0])
    if port is None and (taken := listener.getsockname()[1]) != PORTS[0]:
        known = "" if taken in PORTS else ", where the shipped Prometheus does not look for it"
        terminal.say_once(f"Port {PORTS[0]} is taken: the engine is served on port {taken}{known}. --port chooses one.")
    with listener:
        folder = _new_folder(job, one.name)
        with ServerProcess(one.engine, one.options, one.model, folder / "server.log", listener) as server:
            with progress(terminal.console, one.name) as show:
                server.wait_until_ready(lambda seconds: show(None, f"loading, {seconds:.0f} s"))
            return _run(job, replace(one, model=None), server.url, folder, repeat, terminal, server.variables)


def _new_folder(job: Job, label: str) -> Path:
    """Raises `UserMistake`."""
    folder = (job.settings.runs / (job.settings.run_id or new_run_id(label, datetime.now(UTC)))).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=bool(job.settings.run_id))
    except OSError as error:
        said = f"{job.settings.runs} cannot be written ({error.strerror}): name another folder with --runs."
        raise UserMistake(said) from None
    return folder


def _run(
    job: Job, one: Contender, url: str, folder: Path, repeat: Repeat, terminal: Terminal, variables: Mapping[str, str]
) -> Measured:
    """`variables` are added to those of this process for Locust."""
    label = one.name
    command = [*PYTHON, "-m", "locust", "-f", str(job.scenario), "--host", url, "--headless", "--only-summary"]
    command += [*job.words, "--runs", str(folder.parent), "--run-id", folder.name, "--label", label]
    command += ["--model", one.model] if one.model else []
    command += ["--repeat-index", str(repeat.index), "--prompt-set", repeat.prompt_set, "--exit-code-on-error", "0"]
    command += [*processes_options(job.processes), *job.locust]
    environment = {**os.environ, COMMAND: json.dumps(command_of_run()), **variables, **_secrets(one)}
    if not one.url:
        environment.pop(MODEL_VARIABLE, None)  # the served engine has loaded it, under a name of its own
    log = folder / "locust.log"
    tally = Tally(folder)
    with log.open("wb") as output, log.open(errors="replace") as said, progress(terminal.console, label) as show:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a Ctrl-C in the terminal goes to this process only
        )
        guard = Guard(process.pid)
        try:
            while process.poll() is None:
                time.sleep(POLL)
                _repeat_what_is_said(said, terminal)
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
            raise
        finally:
            guard.close()
        _repeat_what_is_said(said, terminal)
    if _meta(folder) is None:
        raise RunFailed(_reason(log))
    tally.update()
    if tally.requests + tally.cut_off == 0:
        raise RunFailed(f"{label}: no request was sent: {_reason(log)}")
    terminal.say(f"{label}: {tally.total()}")
    meta = _meta(folder)
    searched = meta is not None and meta.search is not None
    complete = process.returncode == 0 or (searched and process.returncode == 1)  # 1: no capacity was found
    if not complete:
        sentence = f"{label}: Locust {_ending(process.returncode)}; the records until then are kept. Its output: {log}"
        terminal.say(sentence, style="red")
    return Measured(folder, complete)


def _secrets(one: Contender) -> dict[str, str]:
    """Environment variables of Locust's process: a command line could be read by others on this machine."""
    return {**_key(one), **({HEADER_VARIABLE: one.headers} if one.headers else {})}


def _repeat_what_is_said(log: TextIO, terminal: Terminal) -> None:
    """The lines that were added to Locust's log and are for the person who watches."""
    begins = log.tell()
    while (line := log.readline()).endswith("\n"):
        begins = log.tell()
        if (match := SAID.match(line)) is not None:
            terminal.say_once(match[1])
    log.seek(begins)  # a line that is not complete yet


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
