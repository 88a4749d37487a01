"""Races of the scripted engine whose runs are scripted too."""

import io
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from enginebench.studies.tune import runner
from enginebench.studies.tune.folder import Question, open_folder
from enginebench.studies.tune.goals import Goal
from enginebench.studies.tune.runner import TuneRunner
from enginebench.studies.tune.variants import entrants
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.contenders import Contender, contenders
from loadtests.harness.command.job import Job
from loadtests.harness.command.measured_run import MeasuredRun
from loadtests.harness.command.run_order import Repeat
from loadtests.harness.command.scenarios import find_scenario

SLO = {"slo": "ttft_p90=0.5,tpot_p90=0.05"}
Measured = Callable[[Contender, int], MeasuredRun]


@cache
def job() -> Job:
    return Job.of(find_scenario("concurrent"), SLO, 1, ())


def scripted_race(
    folder: Path,
    options: Sequence[str],
    measured: Measured,
    monkeypatch: pytest.MonkeyPatch,
    goal: Goal = "goodput",
    prices: tuple[tuple[str, float], ...] = (),
) -> TuneRunner:
    """Return a runner. `measured` returns the run of a variant in a round, or raises."""

    def measure(job: Job, contender: Contender, repeat: Repeat, *_: Any, **__: Any) -> MeasuredRun:
        return measured(contender, repeat.index)

    monkeypatch.setattr(runner, "measure", measure)
    question = Question(engines=("fake",), options=tuple(options), goal=goal, texts=SLO, prices=prices)
    open_folder(folder, question)
    entered = entrants(contenders(["fake"], [], options), {})
    return TuneRunner(folder, question, entered, job(), Terminal(Console(file=io.StringIO())))
