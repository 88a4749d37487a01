"""One measured run of a scenario against a contender, in a Locust process whose progress is shown.

Locust patches the process that imports it, so it runs in a separate one.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Literal

from enginebench.records.exit_codes import NOT_ENOUGH
from enginebench.records.files import LOCUST_LOG, SERVER_LOG, read_meta
from enginebench.records.formatting import format_share
from enginebench.records.run import RunMeta
from enginebench.records.stage import SECOND
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.contenders import MODEL_VARIABLE, Contender
from loadtests.harness.command.file_cache import MAX_LEFT, drop_from_cache
from loadtests.harness.command.guard import Guard, start_guarded
from loadtests.harness.command.job import Job
from loadtests.harness.command.loaded_servers import LoadedServers
from loadtests.harness.command.restarted_server import RestartedServer
from loadtests.harness.command.run_order import Repeat
from loadtests.harness.command.run_progress import progress, where_it_stands
from loadtests.harness.command.server_process import LOCUST, PORTS, ServerFailed, ServerProcess, StartedServer, listen
from loadtests.harness.live.live_json import read_live
from loadtests.harness.run.options import (
    COMMAND,
    ENGINE_PID,
    FILES_UNCACHED,
    PROMPT_SET,
    REPEAT,
    command_of_run,
    processes_options,
)
from loadtests.harness.run.results_folder import FOLDER, new_folder

POLL = 0.5  # seconds between two updates of the progress
STOP_LIMIT = 30.0  # seconds for Locust to end, in which open requests may be answered
LAST_FILES = 8.0  # seconds for an overdue Locust to end


class RunFailed(Exception):
    """Locust ended without a run. The text is a sentence."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """`complete`: Locust ended the run as planned. `overdue`: the run was ended at its time limit. `died` is the
    process that ended before the run, if one did: our server replaces an engine that has ended."""

    folder: Path
    complete: bool
    overdue: bool = False
    died: Literal["", "server", "engine"] = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits in seconds on a server's start and on a run, and the instant of the monotonic clock at which both end."""

    loading: float = math.inf
    run: float = math.inf
    ends: float = math.inf


def measure(
    job: Job,
    contender: Contender,
    repeat: Repeat,
    terminal: Terminal,
    kept: LoadedServers | None = None,
    limits: Limits = Limits(),
) -> MeasuredRun:
    """Run the job against a contender. Its engine is served for this run only, or stays loaded in `kept`.

    Raises `ServerFailed`, `RunFailed` and `UserMistake`.
    """
    name, began = contender.name, time.monotonic()
    folder = new_folder(job.settings, name, datetime.now(UTC))
    log = folder / SERVER_LOG
    uncached = drop_cache(contender, terminal)

    def run(tested: Contender, url: str, variables: Mapping[str, str]) -> MeasuredRun:
        ends = min(time.monotonic() + limits.run, limits.ends)
        return run_against(job, tested, url, folder, repeat, terminal, {**variables, **uncached}, name, ends)

    if contender.url and not contender.restart:
        return run(contender, contender.url, {})

    def new_server() -> StartedServer:
        if contender.restart:
            return RestartedServer(contender.restart, contender.url, log)
        listener = listener_for(name, terminal, kept is not None)
        return ServerProcess(contender.engine, contender.options, contender.model, log, listener)

    def in_time() -> None:
        if time.monotonic() >= min(began + limits.loading, limits.ends):
            raise ServerFailed(f"its server was not ready within {limits.loading:g} s.")

    # A server of ours has its own name for the loaded model.
    unnamed = replace(contender, model=None) if contender.engine else contender
    servers, fresh = kept or LoadedServers(terminal, keep=False), kept is None or bool(contender.restart)
    with servers.loaded(name, new_server, name, fresh, in_time) as (server, variables):
        written = server.log.stat().st_size
        try:
            measured = run(unnamed, server.url, variables)
        finally:
            if server.log != log:  # an earlier run loaded the server
                log.write_bytes(server.log.read_bytes()[written:])
        if not server.alive:
            terminal.say(f"{name}: its server ended during the run; its output: {log}", style="red")
            return replace(measured, complete=False, died="server")
        replaced = server.variables.get(ENGINE_PID) != variables.get(ENGINE_PID)
        return replace(measured, died="engine" if replaced else "")


def drop_cache(contender: Contender, terminal: Terminal) -> dict[str, str]:
    """Drop the contender's files from the file cache. Return a variable for Locust if that worked."""
    if not contender.uncached:
        return {}
    share_left = drop_from_cache(map(Path, contender.uncached))
    if share_left is not None and share_left <= MAX_LEFT:
        return {FILES_UNCACHED: str(time.monotonic_ns())}
    share = "an unknown share" if share_left is None else format_share(share_left)
    terminal.say(f"{contender.name}: {share} of the files stayed in the file cache; are they in use?", style="red")
    return {}


def listener_for(name: str, terminal: Terminal, kept: bool) -> socket.socket:
    """Listen on the first port that is free, and tell the user if it is not the usual one."""
    listener = listen([*PORTS, 0])
    port = listener.getsockname()[1]
    unscraped = "" if port in PORTS else ", which the shipped Prometheus does not scrape"
    if kept:
        terminal.say_once(f"{name} stays loaded, on port {port}{unscraped}.")
    elif port != PORTS[0]:
        terminal.say_once(f"Port {PORTS[0]} is taken: the engine is served on port {port}{unscraped}.")
    return listener


def run_against(
    job: Job,
    contender: Contender,
    url: str,
    folder: Path,
    repeat: Repeat,
    terminal: Terminal,
    variables: Mapping[str, str],
    title: str = "",
    ends: float = math.inf,
) -> MeasuredRun:
    """Run the job against the running server at `url`. A run that is not over when the monotonic clock reads `ends` is
    ended, and its records are kept.

    `variables` are added to Locust's environment; `title` is shown before the progress. Raises `RunFailed`.
    """
    label = contender.name
    log = folder / LOCUST_LOG
    overdue = False
    shown = title or label
    with log.open("wb") as output, log.open(errors="replace") as messages, progress(terminal.console, shown) as show:
        process, guard = start_locust(job, contender, url, folder, repeat, output, variables)
        try:
            while process.poll() is None:
                time.sleep(POLL)
                terminal.repeat(messages)
                if time.monotonic() >= ends:
                    overdue = True
                    end(process, LAST_FILES)
                    break
                meta = _meta(folder)
                if meta is None:
                    show(None, "starting")
                    continue
                live = read_live(folder)
                age = (datetime.now(UTC) - datetime.fromisoformat(meta.started_at)).total_seconds()
                show(*where_it_stands(meta, round(age * SECOND), live))
        except BaseException:
            end(process)
            if (meta := _meta(folder)) is not None and meta.search is not None:
                terminal.say(f"{label}: {meta.search.sentence}")
            raise
        finally:
            guard.close()
        terminal.repeat(messages)
    if _meta(folder) is None:
        raise RunFailed(f"{_error(log) or 'Locust gave no reason'}\n(all output: {log})")
    live = read_live(folder)
    if not live.ended:
        error = _error(log)
        raise RunFailed(f"{label}: no request was sent{f': {error}' if error else ''}\n(all output: {log})")
    terminal.say(f"{label}: {live.total}")
    meta = _meta(folder)
    searched = meta is not None and meta.search is not None
    complete = not overdue and (process.returncode == 0 or (searched and process.returncode == NOT_ENOUGH))
    if not complete and not overdue:
        code = process.returncode
        killed = f"Locust was killed by {signal.Signals(-code).name}" if code < 0 else None
        ending = killed or (_error(log) if code == 2 else None) or f"Locust ended with exit code {code}"
        sentence = f"{label}: {ending.rstrip('.')}; the records until then are kept. Its output: {log}"
        terminal.say(sentence, style="red")
    return MeasuredRun(folder, complete, overdue)


def start_locust(
    job: Job,
    contender: Contender,
    url: str,
    folder: Path,
    repeat: Repeat,
    output: IO[bytes],
    variables: Mapping[str, str],
) -> tuple[subprocess.Popen[bytes], Guard]:
    command = [*LOCUST, "-f", str(job.scenario), "--host", url, "--headless", "--only-summary"]
    command += [*job.words, "--runs", str(folder.parent), "--run-id", folder.name, "--label", contender.name]
    command += ["--model", contender.model] if contender.model else []
    command += ["--exit-code-on-error", "0", *processes_options(job.processes), *job.locust]
    environment = {
        **os.environ,
        COMMAND: json.dumps(command_of_run()),
        FOLDER: str(folder.absolute()),
        REPEAT: str(repeat.index),
        PROMPT_SET: repeat.prompt_set,
        **job.variables,
        **variables,
        **contender.secrets,
    }
    if not contender.url:
        environment.pop(MODEL_VARIABLE, None)  # the server has its own name for the loaded model
    return start_guarded(
        command,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # a Ctrl-C in the terminal goes to this process only
    )


def end(process: subprocess.Popen[bytes], limit: float = STOP_LIMIT) -> None:
    process.send_signal(signal.SIGTERM)  # the run completes its files
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        pass
    finally:  # after a second Ctrl-C, too
        if process.poll() is None:
            process.kill()
    process.wait()


def _meta(folder: Path) -> RunMeta | None:
    try:
        return read_meta(folder)
    except FileNotFoundError:
        return None


def _error(log: Path) -> str | None:
    """Return the first of Locust's error messages, without its prefix, or else the log's last line; `None` if that line
    is part of a table."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line.partition(": ")[2] for line in lines if "/ERROR/" in line]
    errors += [line.partition(": error: ")[2] for line in lines if ": error: " in line]  # in Locust's command line
    errors += [line for line in lines[-1:] if "|" not in line and "/INFO/" not in line]
    return next(filter(None, errors), None)
