"""The runner of a race: proposals in batches, second tries, and prices. Runs are scripted."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from enginebench.analysis.answer import TuneOutcome
from enginebench.settings.schema import UserMistake
from enginebench.studies.tune import runner as module
from enginebench.studies.tune.folder import read_runs
from enginebench.studies.tune.proposals import BATCH, BATCHES
from enginebench.studies.tune.runner import TuneRunner
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.measured_run import MeasuredRun, RunFailed
from tests.support.tuning import scripted_race

Score = Callable[[Contender, int], float]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str], Score], TuneRunner]:
    scores: dict[Path, float] = {}

    def make(options: Sequence[str], score: Score) -> TuneRunner:
        def measured(contender: Contender, number: int) -> MeasuredRun:
            path = tmp_path / f"{number} {contender.name}"
            scores[path] = score(contender, number)
            return MeasuredRun(path, complete=True)

        return scripted_race(tmp_path, options, measured, monkeypatch, goal="cost", prices=(("", 2.0),))

    monkeypatch.setattr(module, "summary_of", lambda path: path)
    monkeypatch.setattr(module, "score_of", lambda path, goal, price: scores[path] / (price or 1.0))
    return make


def test_large_ranges_are_proposed_in_batches_next_to_the_default(
    start: Callable[[Sequence[str], Score], TuneRunner],
) -> None:
    pytest.importorskip("optuna")

    def score(contender: Contender, number: int) -> float:
        """Best near 60 requests at a time; the default of 256 is half as good."""
        options = dict(option.split("=") for option in contender.options)
        distance = abs(math.log(int(options.get("concurrency", 256)) / 60))
        return 10 * math.exp(-0.5 * distance) * (1 + 0.01 * ((number * 3) % 4))

    options = ("concurrency=1..1024", "tokens_per_chunk=1..8")
    runner = start(options, score)
    runner.run(lambda course: None)
    first = [record for record in read_runs(runner.folder) if record.round < BATCHES]
    together = [sum(record.round == number for record in first) for number in range(BATCHES)]
    assert all(BATCH <= number <= BATCH + 1 for number in together), "two proposals of a batch may be equal"
    course = runner.course
    assert course.confirmation.outcome is TuneOutcome.CONFIRMED
    winner = dict(option.split("=") for option in runner.variants[course.winner].contender.options)
    assert 20 <= int(winner["concurrency"]) <= 180
    again = start(options, score)
    again.run(lambda course: pytest.fail("nothing is run again"))
    assert list(again.variants) == list(runner.variants)
    assert again.course.confirmation == course.confirmation


def test_a_variant_that_ran_before_has_a_second_try(start: Callable[[Sequence[str], Score], TuneRunner]) -> None:
    tries: list[tuple[str, int]] = []

    def score(contender: Contender, number: int) -> float:
        name = contender.name
        tries.append((name, number))
        if (name, number) == ("default", 2) and tries.count(("default", 2)) == 1:
            raise RunFailed("its server ended during the run.")
        if name == "concurrency=4":
            raise RunFailed("out of memory\n(all output: server.log)")
        return 10.0 if name == "default" else 9.5 - 0.1 * (number % 2)

    runner = start(["concurrency=2,4"], score)
    runner.run(lambda course: None)
    assert runner.reasons == {"concurrency=4": "out of memory"}
    assert tries.count(("concurrency=4", 0)) == 1
    assert tries.count(("default", 2)) == 2
    assert {record.score for record in read_runs(runner.folder)} == {None, 5.0, 4.75, 4.7}


def test_a_default_that_fails_is_named(start: Callable[[Sequence[str], Score], TuneRunner]) -> None:
    def score(contender: Contender, number: int) -> float:
        raise RunFailed("out of memory")

    with pytest.raises(UserMistake) as mistake:
        start(["concurrency=2,4"], score).run(lambda course: None)
    assert str(mistake.value) == "default failed, so that nothing can be compared with it: out of memory"
