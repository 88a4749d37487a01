"""An engine that stays loaded from one cell to the next, as long as the cells are of one engine, model and repeat; or
all of them to the end, where the grid keeps them loaded."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.drive import MeasuredRun, run_against
from loadtests.harness.command.job import Job
from loadtests.harness.command.progress import progress
from loadtests.harness.command.rounds import Repeat
from loadtests.harness.command.server_process import ServerProcess
from loadtests.harness.command.terminal import Terminal
from loadtests.harness.run.options import SERVER_READY, SERVER_STARTED
from studies.study.grid import StudyEngine, StudyModel

Key = tuple[str, str, int]  # engine, model, repeat


class OutOfTime(Exception):
    """The budget ends before the engine is loaded."""


class LoadedEngines:
    """One server at a time, or with `keep` each that was started."""

    def __init__(self, logs: Path, terminal: Terminal, keep: bool) -> None:
        self._logs, self._terminal, self._keep = logs, terminal, keep
        self._servers: dict[Key, tuple[ServerProcess, ExitStack]] = {}

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
        """Run the job against the engine, which is loaded where it is not. Raises `OutOfTime`,
        `ServerFailed` and `RunFailed`.

        `limit` are seconds of the run alone, `deadline` an instant of the monotonic clock.
        """
        key = (engine.label, model.label, 0 if self._keep else repeat.index)
        loaded_for_this = fresh or not (key in self._servers and self._servers[key][0].alive)
        if loaded_for_this:
            self._load(key, engine, model, title, deadline)
        server, _ = self._servers[key]
        variables = server.variables
        if not loaded_for_this:  # its loading time is that of the cell for which it was loaded
            variables = {name: text for name, text in variables.items() if name not in {SERVER_STARTED, SERVER_READY}}
        ends = min(deadline, time.monotonic() + limit) if limit is not None else deadline
        contender = Contender(engine.label, engine=engine.engine)
        folder.mkdir(parents=True)
        job = replace(job, settings=replace(job.settings, runs=folder.parent, run_id=folder.name))
        try:
            return run_against(job, contender, server.url, folder, repeat, self._terminal, variables, title, ends)
        finally:
            if fresh:
                self._stop(key)

    def _load(self, key: Key, engine: StudyEngine, model: StudyModel, title: str, deadline: float) -> None:
        if self._keep:
            self._stop(key)
        else:
            self.stop()
        self._logs.mkdir(exist_ok=True)
        log = self._logs / f"{engine.label}.{model.label}.{key[2] + 1}.log"
        server = ServerProcess(engine.engine, engine.option_texts, model.name, log, own_server=engine.own_server)
        with progress(self._terminal.console, title) as show, ExitStack() as stack:
            stack.enter_context(server)

            def loading(seconds: float) -> None:
                show(None, f"loading, {seconds:.0f} s")
                if time.monotonic() >= deadline:
                    raise OutOfTime

            server.wait_until_ready(loading)
            self._servers[key] = server, stack.pop_all()

    def stop(self) -> None:
        for key in list(self._servers):
            self._stop(key)

    def _stop(self, key: Key) -> None:
        _, stack = self._servers.pop(key, (None, ExitStack()))
        stack.close()
