"""The runner of a race: proposals in batches, second tries, and prices. Runs are scripted."""

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from enginebench.analysis.answer import TuneOutcome
from enginebench.settings.schema import UserMistake
from enginebench.studies.tune import runner as module
from enginebench.studies.tune.folder import TuneFacts, open_folder, read_batches, read_runs
from enginebench.studies.tune.proposals import BATCH, BATCHES
from enginebench.studies.tune.runner import TuneRunner
from enginebench.studies.tune.variants import Variant, entrants
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.command.contenders import contenders
from loadtests.harness.command.drive import MeasuredRun, RunFailed
from loadtests.harness.command.job import Job
from loadtests.harness.command.scenarios import find_scenario

SLO = {"slo": "ttft_p90=0.5"}
Score = Callable[[Variant, int], float]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str], Score], TuneRunner]:
    job = Job.of(find_scenario("concurrent"), SLO, 1, ())
    scores: dict[Path, float] = {}

    def make(options: Sequence[str], score: Score) -> TuneRunner:
        def measured(self: TuneRunner, number: int, variant: Variant, path: Path) -> tuple[MeasuredRun, float]:
            scores[path] = score(variant, number)
            return MeasuredRun(path, True), 0.5

        monkeypatch.setattr(TuneRunner, "_measured", measured)
        monkeypatch.setattr(module, "summary_of", lambda path: path)
        monkeypatch.setattr(module, "score_of", lambda path, goal, price: scores[path] / (price or 1.0))
        facts = TuneFacts(
            engines=("fake",),
            urls=(),
            options=tuple(options),
            models=(),
            restart="",
            goal="cost",
            scenario="concurrent",
            texts=SLO,
            prices=(("", 2.0),),
        )
        open_folder(tmp_path, facts)
        entered = entrants(contenders(["fake"], [], options), "", {})
        return TuneRunner(tmp_path, facts, entered, job, Terminal(Console(file=io.StringIO())))

    return make


def test_large_ranges_are_proposed_in_batches_next_to_the_default(
    start: Callable[[Sequence[str], Score], TuneRunner],
) -> None:
    pytest.importorskip("optuna")

    def score(variant: Variant, number: int) -> float:
        """Best near 60 requests at a time; the default of 256 is half as good."""
        options = dict(option.split("=") for option in variant.contender.options)
        distance = abs(math.log(int(options.get("concurrency", 256)) / 60))
        return 10 * math.exp(-0.5 * distance) * (1 + 0.01 * ((number * 3) % 4))

    options = ("concurrency=1..1024", "tokens_per_chunk=1..8")
    runner = start(options, score)
    runner.run(lambda course: None)
    batches = read_batches(runner.folder)
    assert [len(batch.values) for batch in batches] == [BATCH] * BATCHES
    first = [record for record in read_runs(runner.folder) if record.round < BATCHES]
    assert [sum(record.round == number for record in first) for number in range(BATCHES)] == [BATCH + 1] * BATCHES
    course = runner.course
    assert course.confirmation.outcome is TuneOutcome.CONFIRMED
    winner = dict(option.split("=") for option in runner.variant(course.left[0]).contender.options)
    assert 20 <= int(winner["concurrency"]) <= 180
    again = start(options, score)
    assert [variant.name for variant in again.variants] == [variant.name for variant in runner.variants]
    assert again.course == course


def test_a_variant_that_ran_before_has_a_second_try(start: Callable[[Sequence[str], Score], TuneRunner]) -> None:
    tries: list[tuple[str, int]] = []

    def score(variant: Variant, number: int) -> float:
        tries.append((variant.name, number))
        if (variant.name, number) == ("default", 2) and tries.count(("default", 2)) == 1:
            raise RunFailed("its server ended during the run.")
        if variant.name == "concurrency=4":
            raise RunFailed("out of memory\n(all output: server.log)")
        return 10.0 if variant.name == "default" else 8.0

    runner = start(["concurrency=2,4"], score)
    runner.run(lambda course: None)
    assert runner.course.failed == {"concurrency=4": "out of memory"}
    assert tries.count(("concurrency=4", 0)) == 1
    assert {record.score for record in read_runs(runner.folder)} == {None, 5.0, 4.0}


def test_a_default_that_fails_is_named(start: Callable[[Sequence[str], Score], TuneRunner]) -> None:
    def score(variant: Variant, number: int) -> float:
        raise RunFailed("out of memory")

    with pytest.raises(UserMistake) as mistake:
        start(["concurrency=2,4"], score).run(lambda course: None)
    assert str(mistake.value) == "default failed, so that nothing can be compared with it: out of memory"
