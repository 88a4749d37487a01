"""An engine that stays loaded from one cell to the next, as long as the cells are of one engine, model and repeat; or
all of them to the end, where the grid keeps them loaded."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.drive import MeasuredRun, RunFailed, run_against
from loadtests.harness.command.job import Job
from loadtests.harness.command.loaded import LoadedServers
from loadtests.harness.command.rounds import Repeat
from loadtests.harness.command.server_process import ServerProcess
from loadtests.harness.command.terminal import Terminal
from studies.study.grid import StudyEngine, StudyModel


class OutOfTime(Exception):
    """The budget ends before the engine is loaded."""


class LoadedEngines:
    """One at a time, or with `keep` each that was started."""

    def __init__(self, logs: Path, terminal: Terminal, keep: bool) -> None:
        self._logs, self._terminal, self._keep = logs, terminal, keep
        self._servers = LoadedServers(terminal, keep)

    def measure(
        self,
        job: Job,
        engine: StudyEngine,
        model: StudyModel,
        repeat: Repeat,
        folder: Path,
        title: str,
        limit: float | None,
        deadline: float,
        fresh: bool,
    ) -> MeasuredRun:
        """Run the job against the engine, which is loaded where it is not. Raises `OutOfTime`, `ServerFailed`, and
        `RunFailed` too where the server has ended before the run.

        `limit` are seconds of the run alone, `deadline` an instant of the monotonic clock.
        """
        key = (engine.label, model.label, 0 if self._keep else repeat.index)

        def server() -> ServerProcess:
            self._logs.mkdir(exist_ok=True)
            log = self._logs / f"{engine.label}.{model.label}.{key[2] + 1}.log"
            return ServerProcess(engine.engine, engine.option_texts, model.name, log, own_server=engine.own_server)

        def in_time() -> None:
            if time.monotonic() >= deadline:
                raise OutOfTime

        with self._servers.loaded(key, server, title, fresh, in_time) as (loaded, variables):
            ends = min(deadline, time.monotonic() + limit) if limit is not None else deadline
            folder.mkdir(parents=True)
            job = replace(job, settings=replace(job.settings, runs=folder.parent, run_id=folder.name))
            contender = Contender(engine.label, engine=engine.engine)
            run = run_against(job, contender, loaded.url, folder, repeat, self._terminal, variables, title, ends)
            if not loaded.alive:  # the engine's own server: ours replaces an engine that has ended
                raise RunFailed(f"its server ended during the run; its output: {loaded.log}")
            return run

    def __enter__(self) -> LoadedEngines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._servers.__exit__(kind, error, trace)

    def stop(self) -> None:
        self._servers.stop()
