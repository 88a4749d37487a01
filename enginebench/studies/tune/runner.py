"""Run what the course of a race says, one variant after the other, each on a server of its own."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from enginebench.settings.schema import UserMistake
from enginebench.studies.study.folder import append_line
from enginebench.studies.tune.course import Course, course_of
from enginebench.studies.tune.folder import (
    PROPOSED,
    RUN_LINES,
    RUNS,
    Batch,
    RunRecord,
    TuneFacts,
    read_batches,
    read_runs,
)
from enginebench.studies.tune.proposals import BATCHES, check_installed, propose
from enginebench.studies.tune.score import NoScore, score_of, summary_of
from enginebench.studies.tune.variants import MAX_VARIANTS, Entrant, Variant, variants_of
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.drive import MeasuredRun, RunFailed, run_against
from loadtests.harness.command.job import Job
from loadtests.harness.command.loaded import LoadedServers, Server
from loadtests.harness.command.restarted_server import RestartedServer
from loadtests.harness.command.run_order import Repeat
from loadtests.harness.command.server_process import ServerFailed, ServerProcess
from loadtests.harness.run.options import ENGINE_PID

PATIENCE, EXTRA = 3.0, 60.0  # a run may take that many times its planned duration, and at most these seconds
SCALED = ("tensor_parallel", "replicas")  # options that multiply the price of an engine's GPUs


class OutOfTime(Exception):
    """The budget is over."""


class TuneRunner:
    """`deadline` is an instant of the monotonic clock, `loading` the seconds that a server may take to be ready."""

    def __init__(
        self,
        folder: Path,
        facts: TuneFacts,
        entrants: Sequence[Entrant],
        job: Job,
        terminal: Terminal,
        deadline: float = math.inf,
        loading: float = math.inf,
    ) -> None:
        self.folder, self.facts = folder, facts
        self._entrants, self._job, self._terminal = entrants, job, terminal
        self._deadline, self._loading = deadline, loading
        size = sum(entrant.size for entrant in entrants)
        self._proposes = size > MAX_VARIANTS
        self._batches: list[int] = []
        if self._proposes:
            check_installed(size, len(entrants))
            self.variants = [entrants[0].default]
            for batch in read_batches(folder):
                self._enter(batch)
        else:
            self.variants = [variant for entrant in entrants for variant in variants_of(entrant)]

    @property
    def course(self) -> Course:
        names = [variant.name for variant in self.variants]
        return course_of(read_runs(self.folder), names, self._batches, self.facts.seed, self.facts.pairs)

    def variant(self, name: str) -> Variant:
        return next(variant for variant in self.variants if variant.name == name)

    def place(self, number: int, name: str) -> Path:
        """Return the folder of a variant's run in a round."""
        index = next(k for k, variant in enumerate(self.variants) if variant.name == name)
        return self.folder / RUNS / f"{number}-{index}"

    def run(self, show: Callable[[Course], None]) -> None:
        """Run to the end, calling `show` after each round. Raises `OutOfTime`, and `UserMistake` if the default
        fails: nothing can be compared with it."""
        shown = 0
        while True:
            course = self.course
            if self._proposes and course.round >= len(self._batches) < BATCHES:
                self._propose(course)
                continue
            if course.round > shown:
                shown = course.round
                show(course)
            if not course.following:
                break
            self._run(course, self.variant(course.following[0]))
        default = self.variants[0].name
        if default in course.failed:
            raise UserMistake(f"{default} failed, so that nothing can be compared with it: {course.failed[default]}")

    def _propose(self, course: Course) -> None:
        default, *proposed = (variant.name for variant in self.variants)
        scores = {name: run[name] - run[default] for run in course.race for name in run}
        values = [values for batch in read_batches(self.folder) for values in batch.values]
        tried = [(own, scores.get(name)) for own, name in zip(values, proposed, strict=True)]
        entrant = self._entrants[0]
        batch = Batch(tuple(propose(entrant.axes, tried, self.facts.seed)))
        append_line(self.folder / PROPOSED, batch)
        self._enter(batch)

    def _enter(self, batch: Batch) -> None:
        self.variants += [self._entrants[0].variant(values) for values in batch.values]
        self._batches.append(len(batch.values))

    def _run(self, course: Course, variant: Variant) -> None:
        """Run a variant and write its record. One that ran before has a second try after a failure."""
        began, number = time.monotonic(), course.round
        path = self.place(number, variant.name)
        ran = any(record.variant == variant.name and record.score for record in read_runs(self.folder))
        for last in (False, True) if ran else (True,):
            shutil.rmtree(path, ignore_errors=True)  # of a run that was interrupted or has failed
            path.mkdir(parents=True)
            starting, score, reason = 0.0, None, None
            try:
                measured, starting = self._measured(number, variant, path)
                score = score_of(summary_of(measured.folder), self.facts.goal, self._price(variant))
                break
            except (ServerFailed, RunFailed, NoScore) as failure:
                if time.monotonic() >= self._deadline:
                    raise OutOfTime from None
                reason = str(failure).partition("\n")[0]
                ending = "is dropped" if last else "runs again"
                self._terminal.say(f"{variant.name} {ending}: {failure}", style="red")
        record = RunRecord(
            round=number,
            variant=variant.name,
            score=score,
            fresh=not course.in_race,
            reason=reason,
            seconds=round(time.monotonic() - began, 1),
            starting=round(starting, 1),
        )
        append_line(self.folder / RUN_LINES, record)

    def _measured(self, number: int, variant: Variant, path: Path) -> tuple[MeasuredRun, float]:
        """Return the run, and the seconds until its server was ready. Raises `OutOfTime`, `ServerFailed`, `RunFailed`,
        and `NoScore` for a run that did not come to its end."""
        began = time.monotonic()
        contender = variant.contender
        title = f"round {number + 1}, {variant.name}"

        def server() -> Server:
            log = path / "server.log"
            if variant.command:
                return RestartedServer(variant.command, contender.url, log)
            return ServerProcess(contender.engine, contender.options, contender.model, log)

        def in_time() -> None:
            if time.monotonic() >= self._deadline:
                raise OutOfTime
            if time.monotonic() - began >= self._loading:
                raise ServerFailed(f"its server was not ready within {self._loading:g} s.")

        if contender.url and not variant.command:
            return self._under_load(number, contender.url, variant, path, title, {}), 0.0
        with (
            LoadedServers(self._terminal, keep=False) as servers,
            servers.loaded(variant.name, server, title, True, in_time) as (loaded, variables),
        ):
            starting = time.monotonic() - began
            measured = self._under_load(number, loaded.url, variant, path, title, variables)
            if not loaded.alive:
                raise RunFailed(f"its server ended during the run; its output: {loaded.log}")
            if loaded.variables.get(ENGINE_PID) != variables.get(ENGINE_PID):  # our server replaced it
                raise RunFailed(f"its engine ended during the run; its output: {loaded.log}")
            return measured, starting

    def _under_load(
        self, number: int, url: str, variant: Variant, path: Path, title: str, variables: Mapping[str, str]
    ) -> MeasuredRun:
        planned = None if self._job.planned is None else self._job.planned.duration.seconds
        limit = math.inf if planned is None else PATIENCE * planned + min(EXTRA, self._loading)
        ends = min(time.monotonic() + limit, self._deadline)
        job = replace(self._job, settings=replace(self._job.settings, runs=path.parent, run_id=path.name))
        contender = variant.contender
        contender = replace(contender, model=contender.model if contender.url else None)  # ours names its model itself
        repeat = Repeat(number, f"{self.facts.name}-{number}")
        measured = run_against(job, contender, url, path, repeat, self._terminal, variables, title, ends)
        if not measured.complete:
            if time.monotonic() >= self._deadline:
                raise OutOfTime
            reason = f"it was not over within {limit:g} s" if measured.overdue else "it did not come to its end"
            raise NoScore(f"its run failed: {reason}; its output: {path}/locust.log")
        return measured

    def _price(self, variant: Variant) -> float | None:
        """Return the price of the variant's server: of an engine that of its GPUs together."""
        prices = dict(self.facts.prices)
        price = prices.get(variant.entrant, prices.get(""))
        options = dict(option.split("=", 1) for option in variant.contender.options)
        return None if price is None else price * math.prod(int(options.get(name, 1)) for name in SCALED)
