"""Run a race: each variant on its own server, with a record line as it ends."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from enginebench.records.files import LOCUST_LOG, SERVER_LOG
from enginebench.settings.schema import UserMistake
from enginebench.studies.study.folder import append_line
from enginebench.studies.tune.course import Course
from enginebench.studies.tune.folder import RUN_LINES, RUNS, Question, RunRecord, read_runs
from enginebench.studies.tune.proposals import Values, are_too_many, propose
from enginebench.studies.tune.score import NoScore, score_of, summary_of
from enginebench.studies.tune.variants import Entrant, Variant
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.job import Job
from loadtests.harness.command.measured_run import Limits, RunFailed, measure
from loadtests.harness.command.run_order import Repeat
from loadtests.harness.command.server_process import ServerFailed

PATIENCE, EXTRA = 3.0, 60.0  # a run's limit: a multiple of its planned duration, plus at most these seconds
SCALED = ("tensor_parallel", "replicas")  # options that multiply the price of an engine's GPUs


class OutOfTime(Exception):
    """The budget is over."""


class TuneRunner:
    """`deadline` is an instant of the monotonic clock, `loading` the seconds allowed for a server to become ready."""

    def __init__(
        self,
        folder: Path,
        question: Question,
        entrants: Sequence[Entrant],
        job: Job,
        terminal: Terminal,
        deadline: float = math.inf,
        loading: float = math.inf,
    ) -> None:
        self.folder, self.question = folder, question
        self._entrants, self._terminal = entrants, terminal
        self._proposes = are_too_many(entrants)
        tried = [entrants[0].default] if self._proposes else [v for entrant in entrants for v in entrant.variants]
        self.variants = {variant.name: variant for variant in tried}
        self.records = {(record.round, record.variant): record for record in read_runs(folder)}
        self._job = replace(job, settings=replace(job.settings, runs=folder / RUNS, run_id=None))
        planned = math.inf if job.planned is None else job.planned.duration.seconds or math.inf
        self._limits = Limits(loading, PATIENCE * planned + min(EXTRA, loading), deadline)
        self.course = Course(tried[0].name, question.name, self._score)

    def run(self, ended: Callable[[Course], None]) -> None:
        """Run the remaining rounds, and call `ended` after each round that has a run. Raises `OutOfTime`, and
        `UserMistake` if the default fails."""
        before = len(self.records)

        def show(course: Course) -> None:
            if len(self.records) > before:
                ended(course)

        course = self.course
        course.ended = show
        if self._proposes:
            seed = int(self.question.name.rpartition("-")[2], 16)
            propose(self._entrants[0].axes, seed, self._enter)
        else:
            course.enter([name for name in self.variants if name != course.default])
        course.run()

    @property
    def reasons(self) -> Mapping[str, str]:
        """Return the reasons of failed variants, by name."""
        return {record.variant: record.reason for record in self.records.values() if record.score is None}

    def _enter(self, batch: list[Values]) -> list[float | None]:
        entrant = self._entrants[0]
        proposed = [entrant.variant(values) for values in batch]
        self.variants |= {variant.name: variant for variant in proposed}
        return self.course.enter([variant.name for variant in proposed])

    def _score(self, number: int, name: str) -> float | None:
        """Return the score of a run, recorded or run now; `None` for a failure. A variant that ran before gets a second
        try. Raises `OutOfTime`, and `UserMistake` if the default fails."""
        if (number, name) not in self.records:
            ran = any(record.variant == name for record in self.records.values())
            record = self._run(number, self.variants[name])
            if record.score is None and ran:
                self._terminal.say(f"{name} runs again: {record.reason}", style="red")
                record = self._run(number, self.variants[name])
            if record.score is None and name == self.course.default:  # not kept: the same command tries again
                raise UserMistake(f"{name} failed, so that nothing can be compared with it: {record.reason}")
            if record.score is None:
                self._terminal.say(f"{name} is dropped: {record.reason}", style="red")
            append_line(self.folder / RUN_LINES, record)
            self.records[number, name] = record
        return self.records[number, name].score

    def _run(self, number: int, variant: Variant) -> RunRecord:
        began, run, reason = time.monotonic(), "", ""
        score: float | None = None
        try:
            repeat = Repeat(number, f"{self.question.name}-{number}")
            measured = measure(self._job, variant.contender, repeat, self._terminal, limits=self._limits)
            run = measured.folder.name
            if measured.overdue:
                raise NoScore(
                    f"it was not over within {self._limits.run:g} s; its output: {measured.folder / LOCUST_LOG}"
                )
            if measured.died:
                raise NoScore(f"its {measured.died} ended during the run; its output: {measured.folder / SERVER_LOG}")
            if not measured.complete:
                raise NoScore(f"it did not come to its end; its output: {measured.folder / LOCUST_LOG}")
            score = score_of(summary_of(measured.folder), self.question.goal, self._price(variant))
        except (ServerFailed, RunFailed, NoScore) as failure:
            if time.monotonic() >= self._limits.ends:
                raise OutOfTime from None
            reason = str(failure).partition("\n")[0]
        return RunRecord(
            round=number,
            variant=variant.name,
            score=score,
            seconds=round(time.monotonic() - began, 1),
            run=run,
            fresh=bool(self.course.winner),
            reason=reason,
        )

    def _price(self, variant: Variant) -> float | None:
        """Return the price of the variant's server; for an engine, the total of its GPUs."""
        prices = dict(self.question.prices)
        price = prices.get(variant.entrant, prices.get(""))
        options = dict(option.split("=", 1) for option in variant.contender.options)
        return None if price is None else price * math.prod(int(options.get(name, 1)) for name in SCALED)
