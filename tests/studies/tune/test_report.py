"""The report of a race whose runs were simulated: what it says, shows and recommends."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest

from enginebench.analysis.answer import TuneOutcome
from enginebench.analysis.document import Document
from enginebench.analysis.write.phrases import next_command, next_line
from enginebench.analysis.write.sentence import sentence
from enginebench.records.view import Estimate
from enginebench.settings.schema import UserMistake
from enginebench.studies.tune import course
from enginebench.studies.tune.confirmation import Confirmation
from enginebench.studies.tune.folder import RUN_LINES, RUNS
from enginebench.studies.tune.goals import GOALS, Goal
from enginebench.studies.tune.report import tune_document
from enginebench.studies.tune.runner import OutOfTime
from enginebench.studies.tune.score import score_of, summary_of
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.measured_run import MeasuredRun, RunFailed
from tests.support.analysis.synthetic import Engine, meta_of, simulate, stages_of
from tests.support.present import present
from tests.support.tuning import SLO, scripted_race

RATIO = Estimate(1.03, 0.98, 1.08, 30)
COMMAND = ("enginebench", "tune", "--engine", "fake")
WORKLOAD = {**meta_of(stages_of((1,), 1.0)).workload, **SLO}
TPOTS = {"default": 0.03, "concurrency=2": 0.02, "concurrency=4": 0.04}


def run(folder: Path, tpot: float, repeat: int = 0, loads: tuple[int, ...] = (2, 4), name: str = "") -> Path:
    engine = Engine(name, tpot=tpot, noise=0.02)
    return simulate(folder, engine, loads, 6.0, seed=repeat, repeat=repeat, workload=WORKLOAD)


def race(folder: Path, tpots: dict[str, float | None], monkeypatch: pytest.MonkeyPatch, most: int = 1000) -> Document:
    """Report on a race with simulated runs, of which at most so many end; `None` fails."""
    ended = 0

    def measured(contender: Contender, number: int) -> MeasuredRun:
        nonlocal ended
        if ended == most:
            raise OutOfTime
        ended += 1
        tpot = tpots[contender.name]
        if tpot is None:
            raise RunFailed("out of memory.")
        place = folder / RUNS / f"{number}-{contender.name}"
        return MeasuredRun(run(place, tpot, number, loads=(4,), name=contender.name), complete=True)

    runner = scripted_race(folder, ["concurrency=2,4"], measured, monkeypatch)
    with suppress(OutOfTime):
        runner.run(lambda course: None)
    return tune_document(runner, COMMAND)


def test_a_confirmed_variant_is_served_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = race(tmp_path, {**TPOTS, "concurrency=4": None}, monkeypatch)
    assert document.exit_code == 0
    assert document.answer.outcome is TuneOutcome.CONFIRMED  # type: ignore[union-attr]
    text = sentence(document.answer)
    assert text.startswith(("concurrency=2 has 1.3", "concurrency=2 has 1.4"))
    assert text.endswith(" the goodput of default, confirmed in 7 fresh pairs of runs.")
    assert next_line(present(document.next)) == "Serve with concurrency=2"
    assert next_command(present(document.next)) == "enginebench serve fake -o concurrency=2"
    states = [row[-1].text for row in present(document.candidates).rows]  # type: ignore[union-attr]
    assert states == ["confirmed", "compared with", "failed"]
    (failed,) = (section for section in document.sections if section.key == "failed")
    assert "out of memory." in str(failed.blocks)
    assert present(document.figure).kind == "pareto"
    assert len(present(document.figure).series) == 2
    confirmed = document.frame.filter(document.frame["statistic"] == "confirmed ratio")
    assert confirmed["engine"].to_list() == ["concurrency=2"]
    assert 1.3 < confirmed["low"][0] < confirmed["value"][0] < 1.6


def test_a_default_that_serves_nothing_within_the_slo_has_no_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = race(tmp_path, {**TPOTS, "default": 0.2, "concurrency=4": 0.2}, monkeypatch)
    assert sentence(document.answer) == (
        "concurrency=2 serves requests within the SLO and default none, confirmed in 7 fresh pairs of runs."
    )


def test_a_race_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = race(tmp_path, dict(TPOTS), monkeypatch, most=4)
    assert sentence(document.answer) == "The race is not over: 3 of 3 variants are left."
    assert document.exit_code == 3
    assert present(document.next).command == COMMAND
    lines = (tmp_path / RUN_LINES).read_text()
    assert race(tmp_path, dict(TPOTS), monkeypatch).exit_code == 0
    assert (tmp_path / RUN_LINES).read_text().startswith(lines)


def test_without_the_records_of_the_default_there_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    race(tmp_path, dict(TPOTS), monkeypatch)
    shutil.rmtree(tmp_path / RUNS)
    with pytest.raises(UserMistake, match="lacks the records of default"):
        race(tmp_path, dict(TPOTS), monkeypatch)


def test_an_unconfirmed_leader_is_tuned_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "confirm", lambda *_: Confirmation(TuneOutcome.NOT_CONFIRMED, RATIO, 61))
    document = race(tmp_path, {**TPOTS, "concurrency=4": None}, monkeypatch)
    assert sentence(document.answer) == (
        "concurrency=2 has 1.03× [0.980, 1.08] the goodput of default in 30 fresh pairs of runs: not confirmed; "
        "about 61 more rounds are needed."
    )
    assert next_line(present(document.next)) == "Tune concurrency=2 alone in longer runs, which vary less"
    assert document.exit_code == 3


@pytest.mark.parametrize(("goal", "low", "high"), [("goodput", 6.5, 8.5), ("capacity", 4, 4), ("cost", 11_700, 15_300)])
def test_scores(goal: Goal, low: float, high: float, tmp_path: Path) -> None:
    """Four slots answer four users every 0.05 + 15 × 0.03 s."""
    score = score_of(summary_of(run(tmp_path / "run", 0.03)), goal, 2.0)
    assert low <= score <= high


def test_each_goal_has_its_scoring() -> None:
    assert tuple(GOALS) == get_args(Goal)


def test_a_run_within_nothing_has_less_than_the_least_score(tmp_path: Path) -> None:
    summary = summary_of(run(tmp_path / "run", 0.2))
    assert score_of(summary, "goodput", None) == pytest.approx(0.5 / 4.2, rel=0.02)
    assert score_of(summary, "capacity", None) == 1.0
