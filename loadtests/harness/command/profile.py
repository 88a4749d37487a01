"""`enginebench run --profile KIND`: each engine once more, after all measurements, with a profiler.

The engine is served again in a process of its own, under the heaviest load that was measured. None of these requests is
kept, so that they cannot appear in a table, a verdict, a plan or a comparison; only what the profiler saw goes into the
run's folder (`enginebench/records/profile.py`).
"""

from __future__ import annotations

import secrets
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx

from enginebench.records.files import read_meta
from enginebench.records.load import Load, Users
from enginebench.records.profile import FOLDER, Profile, write_profiles
from enginebench.settings.profile import ProfileSettings
from enginebench.settings.schema import UserMistake
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.drive import end, start_locust
from loadtests.harness.command.job import Job
from loadtests.harness.command.progress import progress
from loadtests.harness.command.rounds import Repeat
from loadtests.harness.command.server_process import ServerFailed, ServerProcess
from loadtests.harness.command.terminal import Terminal
from loadtests.harness.live.document import read_live
from loadtests.harness.profiling.profilers import Profiler
from loadtests.harness.profiling.profilers import profiler as find_profiler
from loadtests.harness.profiling.recording import Recording

POLL = 0.2  # seconds
FIRST_ANSWER = 300.0  # seconds that the load gets to have its first answer
STOP_PROFILE = 360.0  # seconds that an engine gets to write what it recorded
HELD = 24 * 3600  # seconds of the stage: it ends when the profile does
OF_THE_LOAD = (
    *(
        "stages",
        "rate",
        "arrivals",
        "stage_seconds",
        "stage_requests",
        "warm_up",
        "grow_seconds",
        "command",
        "at",
        "slo",
        "quality",
    ),
    *("by", "search_range", "search_precision", "search_seconds"),
)
"""Settings of a scenario that say what load is applied when: the profile has its own."""


def profiler_for(settings: ProfileSettings, tested: Sequence[Contender]) -> Profiler | None:
    """The chosen one, with which each contender's engine can be served. Raises `UserMistake`."""
    if settings.profile is None:
        return None
    found = find_profiler(settings.profile)
    if not any(one.engine for one in tested):
        raise UserMistake("--profile is for engines that --engine serves: it needs their processes.")
    if any(one.own_server for one in tested):
        raise UserMistake("--profile is for engines behind our server: leave out the engine's own.")
    if any(option.startswith("replicas=") and option != "replicas=1" for one in tested for option in one.options):
        raise UserMistake("--profile is for one process of an engine: leave out -o replicas=….")
    return found


def profile(job: Job, one: Contender, folder: Path, chosen: Profiler, seconds: float, terminal: Terminal) -> bool:
    """Write what the profiler sees of the engine under the heaviest load of the run in `folder`. Whether it could."""
    load = _heaviest(folder)
    seconds = min(seconds, chosen.longest)
    of_engine = Recording(chosen, folder, one.name, "engine", load.label, seconds)
    recordings = [of_engine, *([replace(of_engine, of="server")] if chosen.of_server else [])]
    (folder / FOLDER).mkdir(exist_ok=True)
    settings = {"ENGINEBENCH_ENGINE_PREFIX": shlex.join(of_engine.prefix)} if of_engine.prefix else {}
    if chosen.inside:
        settings["ENGINEBENCH_ENGINE_PROFILE"] = f"{chosen.name}={of_engine.stem}"
    log = folder / FOLDER / "server.log"
    terminal.say(f"{one.name}: profiling with {chosen.name} for {seconds:g} s at {load.label}, in no number")
    try:
        with (
            progress(terminal.console, one.name) as show,
            ServerProcess(one.engine, one.options, one.model, log, settings=settings) as server,
        ):
            server.wait_until_ready(lambda passed: show(None, f"loading under {chosen.name}, {passed:.0f} s"))
            show(None, f"profiling with {chosen.name}")
            _under_load(job, one, server, folder, load, lambda: _record(recordings, server))
    except (ServerFailed, _NoLoad) as failure:
        for recording in recordings:
            recording.why = str(failure)
    profiles = [recording.read() for recording in recordings]
    write_profiles(folder, profiles)
    for found in profiles:
        terminal.say(_sentence(found, folder), style="red" if found.failure else None)
    return all(found.failure is None for found in profiles)


class _NoLoad(Exception):
    """One sentence."""


def _heaviest(folder: Path) -> Load:
    """Of the loads in the unit of the last stage."""
    loads = [stage.load for stage in read_meta(folder).stages]
    return max((load for load in loads if load.unit == loads[-1].unit), key=lambda load: load.value)


def _under_load(
    job: Job, one: Contender, server: ServerProcess, folder: Path, load: Load, record: Callable[[], None]
) -> None:
    """Raises `_NoLoad`."""
    inner = folder / FOLDER / "load"
    inner.mkdir(exist_ok=True)
    log = folder / FOLDER / "load.log"
    try:
        with log.open("wb") as output:
            repeat = Repeat(0, f"profile-{secrets.token_hex(4)}")
            loaded = _loaded(job, load)
            process, guard = start_locust(loaded, one, server.url, inner, repeat, output, server.variables)
            try:
                _wait_for_answers(process, inner, log)
                record()
            finally:
                end(process)
                guard.close()
    finally:
        shutil.rmtree(inner, ignore_errors=True)  # these requests belong to no run


def _loaded(job: Job, load: Load) -> Job:
    """The same scenario under one load that lasts."""
    given = {name: text for name, text in job.given.items() if name not in OF_THE_LOAD}
    given |= {"stage_seconds": str(HELD), "stage_requests": "none", "warm_up": "0", "exporter": "none"}
    given |= {"grow_seconds": "none", "by": "stages", "command": "none"}
    if isinstance(load, Users):
        given["stages"] = str(load.count)
    else:
        given |= {"rate": f"{load.per_second:g}"}
    return replace(job, given=given, locust=(), processes=1)


def _wait_for_answers(process: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
    deadline = time.monotonic() + FIRST_ANSWER
    while time.monotonic() < deadline and process.poll() is None:
        if read_live(folder).ended:
            return
        time.sleep(POLL)
    raise _NoLoad(f"no request was answered under the profiler; its output: {log}.")


def _record(recordings: Sequence[Recording], server: ServerProcess) -> None:
    first, chosen = recordings[0], recordings[0].profiler
    if chosen.inside:
        _ask(server, "start_profile", first)
        time.sleep(first.seconds)
        _ask(server, "stop_profile", first)
    elif chosen.attach is None:  # it began with the process
        time.sleep(first.seconds)
    else:
        own, engine = server.processes
        pids = {"server": own, "engine": engine}
        with ThreadPoolExecutor(len(recordings)) as pool:
            for recording in recordings:
                pid = pids[recording.of]
                if pid is None:
                    recording.why = "the engine has no process of its own."
                else:
                    pool.submit(recording.attach, pid)


def _ask(server: ServerProcess, path: str, recording: Recording) -> None:
    if recording.why is not None:
        return
    try:
        answer = httpx.post(f"{server.url}/{path}", timeout=STOP_PROFILE, trust_env=False)
        if answer.status_code != 200:
            recording.why = str(answer.json()["error"]["message"])
    except (httpx.HTTPError, ValueError, KeyError) as error:
        recording.why = f"the server did not answer /{path}: {error}"


def _sentence(found: Profile, folder: Path) -> str:
    who = f"{found.label}, {found.of}"
    if found.failure is not None:
        return f"{who}: no profile: {found.failure}"
    hottest = found.hot[0]
    kept = folder / FOLDER / (found.picture or found.files[0])
    return f"{who}: {100 * hottest.share:.0f} % of {found.shows.partition(',')[0]} in {hottest.name}; {kept}"
