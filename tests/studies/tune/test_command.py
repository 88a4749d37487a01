"""Races of the scripted engine, whose best variant is known."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import pytest

from enginebench.studies.tune.folder import RunRecord, read_runs
from loadtests.harness.command.server_process import listen
from tests.support.loadtests.run_command import run_here

ASKED = ("--output-tokens", "4", "--slo", "ttft_p90=2s,tpot_p90=50ms")
LOAD = ("--stages", "4", "--stage-seconds", "1", *ASKED)
LIMIT = ("--load-timeout", "20")
PLAIN: dict[str, tuple[str, ...]] = {"plain": ("ttft=0.02", "tpot=0.04")}
FAST: dict[str, tuple[str, ...]] = {"fast": ("ttft=0.02", "tpot=0.01")}
FAILING: dict[str, tuple[str, ...]] = {
    "hangs": ("hang_after=3",),
    "dies": ("crash_after=6",),
    "refuses": ("fail_rate=1",),
    "never": ("load_time=100",),
}


def words(contenders: Mapping[str, Sequence[str]]) -> list[str]:
    engines = [word for name in contenders for word in ("--engine", f"{name}=fake")]
    return engines + [word for name, own in contenders.items() for option in own for word in ("-o", f"{name}.{option}")]


RACE = words(PLAIN | FAST)


def tune(asked: Sequence[str], folder: Path, load: Sequence[str] = LOAD) -> subprocess.CompletedProcess[str]:
    done = run_here("tune", *asked, *load, "--folder", folder, environment={"COLUMNS": "200"})
    return subprocess.CompletedProcess(asked, done.exit_code, done.stdout, done.stderr)


def short_race(folder: Path, *asked: str) -> subprocess.CompletedProcess[str]:
    """One round, and then the confirmation. How many rounds it takes to win: tests/studies/tune/test_race.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("enginebench.studies.tune.race.MIN_RUNS", 1)
        return tune([*RACE, *asked], folder)


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("tune") / "race"
    return folder, short_race(folder)


def test_the_best_variant_is_confirmed(race: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = race
    assert done.returncode == 0, done.stderr
    assert re.search(r"fast has .+ the goodput of plain, confirmed in \d+ fresh pairs of runs\.", done.stdout)
    assert "enginebench serve fake -o ttft=0.02 -o tpot=0.01" in done.stdout
    assert (folder / "report.html").stat().st_size > 10_000


def test_variants_that_hang_die_refuse_or_never_start_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadtests.harness.command.server_process.STOP_LIMIT", 5.0)  # a hung one would drain for longer
    folder = tmp_path / "race"
    done = tune([*words(PLAIN | FAILING), *LIMIT], folder)
    assert done.returncode == 0, done.stderr
    failed = {record.variant: record.reason for record in read_runs(folder) if record.score is None}
    died = r"its engine ended during the run; its output: .*/runs/[\w-]+-{}-\w+/server\.log"
    sentences = {
        # By whether our server replaces the engine before the run is over, or before its window begins.
        "hangs": r"no request ended in its window: it hung, or its warm-up was not over\."
        r"|it hung: \d+ requests had no answer at the end, \d+ were answered\."
        rf"|{died.format('hangs')}|it was not over within 23 s; its output: .*/locust\.log",
        "dies": died.format("dies"),
        "refuses": r"no request was answered \(.*",
        "never": r"its server was not ready within 20 s\.",
    }
    assert failed.keys() == sentences.keys()
    assert [name for name, reason in failed.items() if not re.fullmatch(sentences[name], reason)] == []
    for name, reason in failed.items():
        assert f"{name} is dropped: {reason}" in done.stderr


def test_confirmation_runs_are_fresh_and_paired(race: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    fresh = [record for record in read_runs(race[0]) if record.fresh]
    by_round: dict[int, list[RunRecord]] = {}
    for record in fresh:
        by_round.setdefault(record.round, []).append(record)
    assert all(sorted(record.variant for record in pair) == ["fast", "plain"] for pair in by_round.values())
    assert len(by_round) >= 7
    folders = [race[0] / "runs" / record.run for record in fresh]
    metas = [json.loads((folder / "meta.json").read_text()) for folder in folders]
    assert len({meta["workload"]["prompt_set"] for meta in metas}) == len(by_round), "the same prompts within a round"


def test_a_finished_race_is_reported_again_without_runs(race: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    before = read_runs(race[0])
    shown = json.loads(short_race(race[0], "--json").stdout)
    assert read_runs(race[0]) == before
    confirmed = [row for row in shown["rows"] if row["statistic"] == "confirmed ratio"]
    assert [row["engine"] for row in confirmed] == ["fast"]
    assert confirmed[0]["value"] > 1.5


def test_a_race_with_other_settings_is_refused(race: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    done = tune([*RACE, "-o", "plain.seed=2"], race[0])
    assert done.returncode == 2
    assert done.stderr == f"{race[0]} has a race with other settings: name another --folder.\n"


def test_a_server_by_its_url_is_restarted_and_a_budget_ends_in_time(tmp_path: Path) -> None:
    with listen([0]) as listener:
        port = listener.getsockname()[1]
    serve = f"{sys.executable} -m enginebench serve fake -o ttft=0.01 -o tpot={{tpot}} --port {port}"
    asked = ["--url", f"http://127.0.0.1:{port}", "--restart", serve, "-o", "tpot=0.04,0.02", "--budget", "60"]
    done = tune(asked, tmp_path / "race", ("--stages", "1", "--stage-seconds", "6", *ASKED))
    records = read_runs(tmp_path / "race")
    assert done.returncode in {0, 3}, done.stderr
    assert records
    assert all(record.score and record.seconds > 0 for record in records)
    assert {record.variant for record in records} == {"default", "tpot=0.02"}


def test_the_highest_load_within_the_slo(tmp_path: Path) -> None:
    """`none` needs 80 ms a token, so that not even one user is served within 50."""
    contenders = ["--engine", "some=fake", "--engine", "none=fake", "-o", "some.tpot=0.01", "-o", "none.tpot=0.08"]
    folder = tmp_path / "race"
    done = tune([*contenders, "--for", "capacity", "--search-seconds", "10"], folder, ASKED)
    assert done.returncode == 0, done.stderr
    assert "No variant beats some, which led 2 variants in the race." in done.stdout
    assert "capacity" in (folder / "report.html").read_text()
    some, none = ([r.score or 0 for r in read_runs(folder) if r.variant == name] for name in ("some", "none"))
    assert len(some) == len(none) >= 2
    assert min(some) >= 1
    assert set(none) == {0.5}


def test_a_second_replica_costs_as_much_again(tmp_path: Path) -> None:
    """Four users get no more from it, so that a dollar serves half of their requests."""
    folder = tmp_path / "race"
    options = ["-o", "ttft=0.02", "-o", "tpot=0.01", "-o", "replicas=1,2"]
    done = tune(["--engine", "fake", *options, "--for", "cost", "--price", "2"], folder)
    assert done.returncode == 0, done.stderr
    assert "No variant beats default, which led 2 variants in the race." in done.stdout
    one, two = ([r.score or 0 for r in read_runs(folder) if r.variant == name] for name in ("default", "replicas=2"))
    assert 1.4 < median(one) / median(two) < 2.8
    goodput = median(one) * 2 / 3600  # for $2 an hour
    assert 4 < goodput <= 4 / (0.02 + 3 * 0.01)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (["--engine", "fake", "--for", "cost"], "--for cost needs --price, in US dollars per hour."),
        (
            ["--engine", "a=fake", "--engine", "b=fake", "-o", "tpot=1,2", "--for", "cost", "--price", "a=2"],
            "--for cost needs a price above 0 of b: --price b=2.20.",
        ),
        (["--engine", "fake", "--restart", "x"], "--restart starts the server of one --url, and of no --engine."),
        (
            ["--engine", "fake", "-o", "concurrency=1,2,3,4,5,6,7", "-o", "tpot=1,2,3,4,5,6", "--engine", "b=fake"],
            "84 variants of several contenders are too many: name values for 40.",
        ),
    ],
)
def test_mistakes(asked: list[str], sentence: str, tmp_path: Path) -> None:
    done = tune(asked, tmp_path / "race")
    assert (done.returncode, done.stderr) == (2, f"{sentence}\n")
