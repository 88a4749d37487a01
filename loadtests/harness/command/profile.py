"""`enginebench run --profile`: after all measurements, each engine is served and loaded once more, with a profiler.

These requests are not kept, so they appear in no table, verdict or plan. The profiler's files go into the folder of the
engine's last run.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from enginebench.records.files import LOCUST_LOG, PROFILE, SERVER_LOG, profile_files, read_meta
from enginebench.records.load import Users
from enginebench.records.stage import StagePlan
from enginebench.settings.schema import ENGINE_PREFIX
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.job import Job
from loadtests.harness.command.measured_run import end, start_locust
from loadtests.harness.command.run_order import Repeat
from loadtests.harness.command.run_progress import progress
from loadtests.harness.command.server_process import ServerFailed, ServerProcess
from loadtests.harness.live.live_json import read_live
from loadtests.harness.profiler import SECONDS, ProfileFailed, Profiler

POLL = 0.2  # seconds
FIRST_ANSWER = 300.0  # seconds until the first request must be answered
HELD = 24 * 3600  # seconds of the stage, which ends with the profiler
KEPT_OUT = {"stages", "rate", "arrivals", "slo", "quality", "search_range", "search_seconds"}
HOLD = {"by": "stages", "stage_seconds": str(HELD), "stage_requests": "none", "warm_up": "0"}


def profile(job: Job, contender: Contender, folder: Path, profiler: Profiler, terminal: Terminal) -> bool:
    """Profile the engine under the highest load of its run in `folder`, with the requests of the last stage of that
    load. Return whether that worked."""
    stages = read_meta(folder).stages
    comparable = [stage for stage in reversed(stages) if stage.load.unit == stages[-1].load.unit]
    stage = max(comparable, key=lambda stage: stage.load.value).plan
    output = profiler.output(folder / PROFILE)
    prefix = profiler.prefix(output)
    terminal.say(f"{contender.name}: {profiler.name} at {stage.label}; these requests are not counted")
    try:
        with (
            progress(terminal.console, contender.name) as show,
            ServerProcess(
                contender.engine,
                contender.options,
                contender.model,
                folder / SERVER_LOG,
                settings={ENGINE_PREFIX: shlex.join(prefix)} if prefix else {},
            ) as server,
        ):
            server.wait_until_ready(lambda passed: show(None, f"loading, {passed:.0f} s"))
            with _loaded(job, contender, server, folder, stage):
                show(None, f"profiling with {profiler.name}")
                if prefix:
                    time.sleep(SECONDS)
                else:
                    own, engine = server.processes
                    profiler.attach(own if engine is None else engine, output)
        if not profile_files(folder):
            raise ProfileFailed(f"{profiler.name} wrote no file.")
    except (ServerFailed, ProfileFailed) as failure:
        terminal.say(f"{contender.name} is not profiled: {failure}", style="red")
        return False
    terminal.say(f"{contender.name}: " + ", ".join(str(folder / PROFILE / name) for name in profile_files(folder)))
    return True


@contextmanager
def _loaded(job: Job, contender: Contender, server: ServerProcess, folder: Path, stage: StagePlan) -> Iterator[None]:
    """Hold the stage's load on the server within the block. Raises `ProfileFailed` if no request is answered."""
    load = stage.load
    texts = {name: text for name, text in job.texts.items() if name not in KEPT_OUT}
    applied = {"stages": str(load.count)} if isinstance(load, Users) else {"rate": f"{load.per_second:g}"}
    texts |= HOLD | applied | dict(stage.asks) | {"exporter": "none", "command": "none"}
    held, log = replace(job, texts=texts, locust=(), processes=1), folder / LOCUST_LOG
    unnamed = replace(contender, model=None)  # the server has its own name for the loaded model
    with TemporaryDirectory(prefix="enginebench-profile-") as scratch, log.open("ab") as written:
        run = Path(scratch)
        process, guard = start_locust(held, unnamed, server.url, run, Repeat(0, run.name), written, server.variables)
        try:
            deadline = time.monotonic() + FIRST_ANSWER
            while not read_live(run).ended:
                if time.monotonic() > deadline or process.poll() is not None:
                    raise ProfileFailed(f"no request was answered (all output: {log}).")
                time.sleep(POLL)
            yield
        finally:
            end(process)
            guard.close()
