"""Run the remaining cells of a study, one after the other, and record how each ended.

A cell is measured in `running/`, moved to its place when it has ended, and then gets its line. So a cell whose process
is killed either has its line or is run again.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from enginebench.analysis.data.tokens import write_counts
from enginebench.records.files import LOCUST_LOG, read_meta, read_requests
from enginebench.settings.schema import UserMistake
from enginebench.studies.study.bench_cell import BenchFailed, OutOfTime, bench_cell
from enginebench.studies.study.disturbed import disturbed_cells
from enginebench.studies.study.folder import (
    BENCH,
    CELLS,
    DISTURBED,
    INTERRUPTED,
    LOCK,
    LOGS,
    RUNNING,
    RUNS,
    CellOutcome,
    CellRecord,
    CellState,
    StudyFolder,
    append_line,
    load_study,
)
from enginebench.studies.study.grid import Cell, Grid, StudyPart, texts_of
from enginebench.studies.study.lacking import Lacking
from enginebench.studies.study.terminal import cell_title
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.job import Job
from loadtests.harness.command.loaded_servers import LoadedServers
from loadtests.harness.command.measured_run import MeasuredRun, RunFailed, run_against
from loadtests.harness.command.run_order import Repeat
from loadtests.harness.command.scenarios import find_scenario
from loadtests.harness.command.server_process import ServerFailed, ServerProcess


@contextmanager
def only_here(folder: Path) -> Iterator[None]:
    """Lock the study. Raises `UserMistake` if another process works on it, or if a link in it leads elsewhere."""
    if (link := next((path for path in folder.rglob("*") if path.is_symlink()), None)) is not None:
        raise UserMistake(f"{link} is a link, and a study writes into its own folder: put there what it leads to.")
    with (folder / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserMistake(f"another process is at work on {folder}: wait until it ends.") from None
        yield


def jobs_of(grid: Grid) -> dict[str, Job]:
    """Check the scenario and settings of each part under load. Raises `UserMistake`."""
    jobs = {}
    for part in grid.parts:
        if part.kind == "load":
            typed = part.setting_texts | ({"slo": "\n".join(grid.slo)} if grid.slo else {})
            try:
                jobs[part.name] = Job.of(find_scenario(part.scenario), typed, 1, ())
            except UserMistake as mistake:
                raise UserMistake(f"part {part.name}: {mistake}") from None
    return jobs


@dataclass(frozen=True, slots=True)
class CellEnd:
    """The end of a cell that was tried."""

    outcome: CellOutcome
    reason: str | None = None


class Runner:
    """`deadline` is the instant of the monotonic clock by which everything must have ended."""

    def __init__(self, study: StudyFolder, lacking: Lacking, terminal: Terminal, deadline: float = math.inf) -> None:
        self._folder, self._grid = study.path, study.grid
        self._lacking, self._terminal, self._deadline = lacking, terminal, deadline
        self._jobs = jobs_of(study.grid)
        self._servers = LoadedServers(terminal, study.grid.keep_loaded)
        self._unloadable: dict[tuple[str, str], str] = {}

    def run(self) -> bool:
        """Run the remaining cells, and retry once those that were skipped, failed or were disturbed. Return whether
        none remains: the budget or Ctrl-C may end the work early."""
        self._put_aside_what_was_interrupted()
        tried: set[str] = set()
        try:
            with self._servers:
                for state in self._not_done():  # so that the estimated time excludes cells that cannot run here
                    if self._lacking.is_missing(self._grid.engine(state.cell.engine)):
                        tried.add(state.cell.id)
                        self._run(state)
                self._put_aside_what_was_disturbed()
                while (following := self._next(tried)) is not None:
                    tried.add(following.cell.id)
                    self._run(following)
                    tried -= self._put_aside_what_was_disturbed()
        except OutOfTime:
            self._terminal.say("The budget is over: the cell that was running is run again when the study goes on.")
        finally:
            self._put_aside_what_was_interrupted()
        return not load_study(self._folder).with_outcome("left")

    def _not_done(self) -> list[CellState]:
        return [state for state in load_study(self._folder).cells if state.outcome != "done"]

    def _next(self, tried: set[str]) -> CellState | None:
        """Return the first cell that was not tried and fits into the remaining time."""
        remaining = self._deadline - time.monotonic()
        fitting = (state for state in self._not_done() if state.expected <= remaining)
        return next((state for state in fitting if state.cell.id not in tried), None)

    def _run(self, state: CellState) -> None:
        cell, began = state.cell, time.monotonic()
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        reason = self._unloadable.get((cell.engine, cell.model)) or self._lacking.why_not(
            self._grid.engine(cell.engine), self._grid.model(cell.model)
        )
        if reason is not None:
            if (state.outcome, state.reason) != ("skipped", reason):
                if not self._lacking.is_missing(self._grid.engine(cell.engine)):  # a line at the start names it
                    self._terminal.say_once(f"skipped: {cell.engine} with {cell.model}: {reason}")
                self._write(
                    CellRecord(cell=cell.id, outcome="skipped", started_at=started_at, seconds=0, reason=reason)
                )
            return
        place = self._place(cell)
        if place.exists():  # the cell failed, or was killed before it got its line
            self._put_aside(place)
        shutil.rmtree(self._folder / RUNNING, ignore_errors=True)
        ended = self._measured(cell, self._running(cell))
        path = None
        if self._running(cell).exists():
            place.parent.mkdir(exist_ok=True)
            _sync(self._running(cell))
            self._running(cell).rename(place)
            path = str(place.relative_to(self._folder))
        if ended.outcome == "failed":
            self._terminal.say(f"failed: {cell.id}: {ended.reason}", style="red")
        seconds = round(time.monotonic() - began, 1)
        self._write(
            CellRecord(
                cell=cell.id,
                outcome=ended.outcome,
                started_at=started_at,
                seconds=seconds,
                reason=ended.reason,
                path=path,
            )
        )

    def _measured(self, cell: Cell, running: Path) -> CellEnd:
        """Measure a cell in `running`. Raises `OutOfTime`."""
        part = self._grid.part(cell.part)
        (self._folder / LOGS).mkdir(exist_ok=True)
        title = cell_title(load_study(self._folder), cell, self._deadline)
        try:
            if part.kind == "load":
                return self._judged(self._under_load(cell, running, title), part)
            self._servers.stop()
            running.parent.mkdir(parents=True)
            engine, model = self._grid.engine(cell.engine), self._grid.model(cell.model)
            log = self._folder / LOGS / f"{cell.id}.log"
            bench_cell(engine, model, part, running, log, self._terminal, title, self._deadline)
            return CellEnd("done")
        except ServerFailed as failure:
            reason = str(failure).partition("\n")[0]
            self._unloadable[cell.engine, cell.model] = f"it could not be loaded: {reason}"
            return CellEnd("failed", f"it could not be loaded: {failure}")
        except (RunFailed, BenchFailed, UserMistake) as failure:
            if time.monotonic() >= self._deadline:
                raise OutOfTime from None
            return CellEnd("failed", str(failure))

    def _under_load(self, cell: Cell, running: Path, title: str) -> MeasuredRun:
        """Run a load, after loading the engine if necessary. Raises `OutOfTime`, `ServerFailed`, and `RunFailed`, also
        if the server ended during the run."""
        part, engine = self._grid.part(cell.part), self._grid.engine(cell.engine)
        loading = 0 if self._grid.keep_loaded else cell.repeat

        def server() -> ServerProcess:
            log = self._folder / LOGS / f"{cell.engine}.{cell.model}.{loading + 1}.log"
            model = self._grid.model(cell.model).name
            return ServerProcess(engine.engine, texts_of(engine.options), model, log, own_server=engine.own_server)

        def in_time() -> None:
            if time.monotonic() >= self._deadline:
                raise OutOfTime

        key = (cell.engine, cell.model, loading)
        with self._servers.loaded(key, server, title, part.fresh, in_time) as (loaded, variables):
            limit = math.inf if part.limit is None else part.limit  # seconds for the run, without loading
            ends = min(self._deadline, time.monotonic() + limit)
            running.mkdir(parents=True)
            job = self._jobs[part.name]
            job = replace(job, settings=replace(job.settings, runs=running.parent, run_id=running.name))
            contender = Contender(cell.engine, engine=engine.engine)
            repeat = Repeat(cell.repeat, cell.prompt_set(self._grid.seed))
            run = run_against(job, contender, loaded.url, running, repeat, self._terminal, variables, title, ends)
            if not loaded.alive:  # the engine's own server: ours replaces an engine that has ended
                raise RunFailed(f"its server ended during the run; its output: {loaded.log}")
            write_counts(run.folder)  # an archive may be reported where the model's tokenizer is missing
            return run

    def _judged(self, run: MeasuredRun, part: StudyPart) -> CellEnd:
        if run.complete:
            return CellEnd("done")
        if not run.overdue:
            return CellEnd("failed", f"the run did not come to its end; its output: {run.folder.name}/{LOCUST_LOG}")
        if time.monotonic() >= self._deadline:
            raise OutOfTime
        limit = f"{part.limit:g} s, the limit of this part"
        if not any(request.outcome == "ok" for request in read_requests(run.folder)):
            return CellEnd("failed", f"no request was answered within {limit}.")
        if all(stage.steady_start is None for stage in read_meta(run.folder).stages):
            return CellEnd("failed", f"its warm-up was not over within {limit}.")
        return CellEnd("done", f"ended after {limit}: what it had not reached is missing.")

    def _place(self, cell: Cell) -> Path:
        if self._grid.part(cell.part).kind == "bench":
            return self._folder / BENCH / f"{cell.id}.json"
        return self._folder / RUNS / cell.id

    def _running(self, cell: Cell) -> Path:
        return self._folder / RUNNING / f"{os.getpid()}" / self._place(cell).name

    def _write(self, record: CellRecord) -> None:
        append_line(self._folder / CELLS, record)

    def _put_aside_what_was_disturbed(self) -> set[str]:
        """Have each disturbed run repeated once, if there is time for all. Return the ids of their cells."""
        study = load_study(self._folder)
        disturbed = disturbed_cells(study)
        expected = sum(state.expected for state in study.cells if state.cell in disturbed or state.outcome == "left")
        if expected > self._deadline - time.monotonic():
            return set()
        for state in study.cells:
            if state.cell in disturbed and state.record is not None:
                self._terminal.say(f"disturbed, and run again: {state.cell.id}: {disturbed[state.cell]}")
                path = f"{DISTURBED}/{state.cell.id}"
                record = structs.replace(state.record, outcome="disturbed", reason=disturbed[state.cell], path=path)
                self._write(record)
                (self._folder / DISTURBED).mkdir(exist_ok=True)
                self._place(state.cell).rename(self._folder / path)
        return {cell.id for cell in disturbed}

    def _put_aside_what_was_interrupted(self) -> None:
        """Move away cells without a line. Processes of a killed study may still write to a moved folder."""
        known = {state.record.path for state in load_study(self._folder).cells if state.record is not None}
        inside = [
            *(self._folder / RUNNING).glob("*/*"),
            *(self._folder / RUNS).glob("*"),
            *(self._folder / BENCH).glob("*"),
        ]
        for path in inside:
            if str(path.relative_to(self._folder)) not in known:
                self._put_aside(path)
        shutil.rmtree(self._folder / RUNNING, ignore_errors=True)

    def _put_aside(self, path: Path) -> None:
        aside = self._folder / INTERRUPTED
        aside.mkdir(exist_ok=True)
        count = 1 + len(list(aside.glob(f"{path.name}~*")))
        path.rename(aside / f"{path.name}~{count}")


def _sync(path: Path) -> None:
    """Put files on disk before the cell's line says that it is done."""
    for file in [path] if path.is_file() else [inside for inside in path.rglob("*") if inside.is_file()]:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
