"""Real servers, real load, the scripted engine: what a study does with its cells, however it is stopped."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import structs
from rich.console import Console
from typer.testing import CliRunner

from enginebench.analysis.data.tokens import TokenCounter
from enginebench.cli import app
from enginebench.records.files import read_meta, read_requests
from enginebench.settings.schema import UserMistake
from enginebench.studies.study.archive import check_replaces, pack, unpack
from enginebench.studies.study.folder import StudyFacts, StudyFolder, load_study, write_facts
from enginebench.studies.study.grid import Grid, StudyEngine, StudyModel, StudyPart, Value
from enginebench.studies.study.lacking import Lacking
from enginebench.studies.study.runner import Runner
from loadtests.harness.command.command_terminal import Terminal
from tests.support.loadtests.locust_process import listens
from tests.support.loadtests.run_command import processes_forked

PATIENCE = 180.0  # seconds that a busy machine may take for anything here
DAY = "2026-11-02T10:00:00+00:00"
USERS = StudyPart(
    "users", "load", "concurrent", settings={"stages": "2", "stage_seconds": 1, "output_tokens": "4"}, seconds=1
)
BENCH = StudyPart("kernels", "bench", settings={"prefill": "8", "generate": "4", "batch": "1", "samples": 2}, seconds=1)
FAST = StudyEngine("fast", "fake", {"tpot": 0.002})
SLOW = StudyEngine("slow", "fake", {"tpot": 0.005})
IDLE = StudyEngine("fast", "fake", {"tpot": 0.02})  # of which a minute costs little
MODEL = StudyModel("random:llama-3.2-tiny", "none")


class Here(Lacking):
    """What runs here, without asking the engines."""

    def __init__(self, **reasons: str) -> None:
        self._reasons = reasons

    def is_missing(self, engine: StudyEngine) -> bool:
        return False

    def why_not(self, engine: StudyEngine, model: StudyModel) -> str | None:
        return self._reasons.get(engine.label)


def study(folder: Path, *parts: StudyPart, engines: tuple[StudyEngine, ...] = (FAST,), **more: Any) -> StudyFolder:
    """One repeat, unless `more` of the grid says otherwise."""
    given: dict[str, Any] = {"baseline": engines[0].label, "repeats": 1} | more
    grid = Grid(title="Small", models=(MODEL,), engines=engines, parts=parts, **given)
    facts = StudyFacts(name="small", variants=(), grid=grid, command=(), commit=None, started_at=DAY, host={})
    folder.mkdir(exist_ok=True)
    write_facts(folder, facts)
    return load_study(folder)


def silent() -> Terminal:
    return Terminal(Console(file=open(os.devnull, "w"), force_terminal=False))


def run_with_processes(
    found: StudyFolder, lacking: Lacking | None = None, seconds: float = PATIENCE
) -> tuple[StudyFolder, bool]:
    complete = Runner(found, lacking or Here(), silent(), time.monotonic() + seconds).run()
    return load_study(found.path), complete


def run(found: StudyFolder, lacking: Lacking | None = None, seconds: float = PATIENCE) -> tuple[StudyFolder, bool]:
    with processes_forked():
        return run_with_processes(found, lacking, seconds)


def contents(path: Path) -> dict[str, str]:
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def of_done(found: StudyFolder) -> dict[str, str]:
    """Every byte that the cells that are done have left."""
    paths = [path for state in found.with_outcome("done") if (path := found.result(state)) is not None]
    return {name: digest for path in paths for name, digest in contents(path).items()}


def test_cells_become_runs_and_documents(tmp_path: Path) -> None:
    """The engine stays loaded from one part to the next, but for a part that asks for a fresh one."""
    again = StudyPart("again", "load", "concurrent", settings=USERS.settings, seconds=1)
    fresh = StudyPart("fresh", "load", "concurrent", settings=USERS.settings, seconds=1, fresh=True)
    after, complete = run(study(tmp_path, USERS, again, fresh, BENCH))
    assert complete
    assert [state.outcome for state in after.cells] == ["done"] * 4
    places = [after.result(state) for state in after.cells]
    assert places == [tmp_path / f"runs/{name}.none.fast.1" for name in ("users", "again", "fresh")] + [
        tmp_path / "bench/kernels.none.fast.1.json"
    ]
    assert all(place is not None and place.exists() for place in places)
    metas = [(tmp_path / f"runs/{name}.none.fast.1/meta.json").read_text() for name in ("users", "again", "fresh")]
    assert [meta.count("server ready") for meta in metas] == [1, 0, 1]
    assert not (tmp_path / "running").exists()


def test_a_grid_may_keep_all_engines_loaded_and_one_that_does_not_load_fails_once(tmp_path: Path) -> None:
    broken = StudyEngine("broken", "fake", {"no_such_option": 1})
    after, complete = run(study(tmp_path, USERS, engines=(FAST, SLOW, broken), repeats=2, keep_loaded=True))
    assert complete
    ended = {f"{state.cell.engine}.{state.cell.repeat}": state for state in after.cells}
    metas = {name: tmp_path / f"runs/{state.cell.id}/meta.json" for name, state in ended.items()}
    loads = {name: path.read_text().count("server ready") for name, path in metas.items() if path.exists()}
    assert loads == {"fast.0": 1, "slow.0": 1, "fast.1": 0, "slow.1": 0}
    assert [ended[name].outcome for name in ("broken.0", "broken.1")] == ["failed", "skipped"]
    assert "could not be loaded" in str(ended["broken.0"].reason)
    assert not any(listens(int(read_meta(metas[name].parent).url.rpartition(":")[2])) for name in loads)


def test_what_cannot_run_is_skipped_and_tried_again_where_the_archive_is_unpacked(tmp_path: Path) -> None:
    found = study(tmp_path / "here", USERS, engines=(FAST, SLOW))
    first, _ = run(found, Here(slow="it needs a GPU."))
    assert [(state.outcome, state.reason) for state in first.cells] == [("done", None), ("skipped", "it needs a GPU.")]
    pack(first.path, tmp_path / "small.tar.gz")
    unpack(tmp_path / "small.tar.gz", tmp_path / "there")
    there = load_study(tmp_path / "there")
    assert there.cells == first.cells
    second, _ = run(there)
    assert [state.outcome for state in second.cells] == ["done", "done"]
    carried = {name.replace("/there/", "/here/"): digest for name, digest in of_done(second).items()}
    assert of_done(first).items() <= carried.items()


def test_an_engine_that_is_missing_is_skipped_however_little_time_there_is(tmp_path: Path) -> None:
    class Missing(Here):
        def is_missing(self, engine: StudyEngine) -> bool:
            return engine.label in self._reasons

    part = StudyPart("users", "load", "concurrent", settings=USERS.settings, seconds=1000)
    found = study(tmp_path, part, engines=(FAST, SLOW), repeats=2)
    after, complete = run(found, Missing(slow="it is not installed."), seconds=5)
    assert not complete
    assert {state.cell.engine: state.outcome for state in after.cells} == {"fast": "left", "slow": "skipped"}


def test_a_load_whose_server_has_ended_has_failed(tmp_path: Path) -> None:
    """Our server replaces an engine that has ended; an engine's own server is itself gone."""
    found = study(tmp_path, StudyPart("users", "load", "concurrent", settings={"stages": "2", "stage_seconds": 6}))

    def kill() -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            served = [one for one in psutil.Process().children() if "serve" in one.cmdline()]
            if served and any((tmp_path / "running").glob("*/*/requests*.jsonl")):
                served[0].kill()
                break
            time.sleep(0.1)

    killer = threading.Thread(target=kill)
    killer.start()
    after, _ = run_with_processes(found)
    killer.join()
    assert after.cells[0].outcome == "failed"
    assert "its server ended during the run" in str(after.cells[0].reason)


def test_a_load_that_runs_over_its_limit_keeps_what_it_measured_if_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TokenCounter, "__call__", lambda _, texts: [1_000_007] * len(texts))
    slow: dict[str, Value] = {"stages": "1,2", "stage_seconds": 60, "warm_up": 1}
    long = StudyPart("long", "load", "concurrent", settings={**slow, "output_tokens": "1000"}, limit=20.0)
    warm = StudyPart("warm", "load", "concurrent", settings={**slow, "warm_up": 50}, limit=20.0)
    after, _ = run(study(tmp_path, long, warm))
    assert [(state.outcome, state.reason) for state in after.cells] == [
        ("done", "ended after 20 s, the limit of this part: what it had not reached is missing."),
        ("failed", "its warm-up was not over within 20 s, the limit of this part."),
    ]
    cut_off = [request for request in read_requests(tmp_path / "runs/long.none.fast.1") if request.text]
    assert [(request.output_tokens, request.token_source) for request in cut_off] == [(1_000_007, "tokenizer")]


def test_a_load_of_which_nothing_was_answered_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtests.harness.command.server_process.STOP_LIMIT", 1.0)  # it would answer for minutes
    stuck = StudyEngine("stuck", "fake", {"ttft_per_prompt_token": 0.2})
    settings: dict[str, Value] = {"stages": "1", "stage_seconds": 2, "prompt_tokens": "400"}
    part = StudyPart("users", "load", "concurrent", settings=settings, seconds=1, limit=12.0)
    after, _ = run(study(tmp_path, part, engines=(stuck,)))
    assert after.cells[0].outcome == "failed"
    assert after.cells[0].reason == "no request was answered within 12 s, the limit of this part."


def test_an_archive_is_replaced_by_the_same_study_only(tmp_path: Path) -> None:
    path = tmp_path / "study.tar.gz"
    one = study(tmp_path / "one", USERS)
    pack(one.path, path)
    check_replaces(path, one.path)
    other = study(tmp_path / "other", USERS)
    write_facts(other.path, structs.replace(other.facts, started_at="another day"))
    with pytest.raises(UserMistake, match="is not of this study"):
        check_replaces(path, other.path)
    path.write_text("no archive")
    with pytest.raises(UserMistake, match="is not of this study"):
        check_replaces(path, one.path)


def test_a_budget_ends_the_cell_that_runs_and_starts_none_that_does_not_fit(tmp_path: Path) -> None:
    endless = StudyPart("users", "load", "concurrent", settings={"stages": "1", "stage_seconds": 300}, seconds=1)
    unfit = StudyPart("unfit", "load", "concurrent", settings=USERS.settings, seconds=100)
    after, complete = run(study(tmp_path, endless, unfit, engines=(IDLE,)), seconds=8)
    assert not complete
    assert [state.outcome for state in after.cells] == ["left", "left"]
    assert not (tmp_path / "cells.jsonl").exists()


LOADING, MEASURING, BENCHING = (
    lambda folder: (
        any((folder / "logs").glob("slow.none.1.log")) and not any((folder / "running").glob("*/*/meta.json"))
    ),
    lambda folder: any(
        path.stat().st_size for path in (folder / "running").glob("*/users.none.slow.1/requests*.jsonl")
    ),
    lambda folder: any((folder / "logs").glob("kernels.none.slow.1.log")),
)


def test_kill_9_in_each_phase_costs_the_running_cell_alone(tmp_path: Path) -> None:
    """While it loads, while it measures, and in a bench; what was done before is the same to the last byte."""
    slow = StudyEngine("slow", "fake", {"tpot": 0.005, "load_time": 2})
    users = StudyPart("users", "load", "concurrent", settings={**USERS.settings, "stage_seconds": 2}, seconds=1)
    found = study(tmp_path, users, BENCH, engines=(FAST, slow))
    before: dict[str, str] = {}
    for reached in (LOADING, MEASURING, BENCHING):
        _kill_once(found.path, reached)
        now = of_done(load_study(found.path))
        assert before.items() <= now.items()
        before = now
    assert [state.outcome for state in load_study(found.path).cells] == ["done", "done", "done", "left"]
    after, complete = run(found)
    assert complete
    assert [state.outcome for state in after.cells] == ["done"] * 4
    assert before.items() <= of_done(after).items()
    assert list((tmp_path / "interrupted").glob("users.none.slow.1~1"))


def _kill_once(folder: Path, reached: Callable[[Path], bool]) -> None:
    """Start the study in a process of its own, and kill that as soon as the phase is reached."""
    code = (
        "import sys; from pathlib import Path; from tests.studies.study import test_runner; "
        "test_runner.run_with_processes(test_runner.load_study(Path(sys.argv[1])))"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(folder)], cwd=Path(__file__).parents[3])
    try:
        until = time.monotonic() + PATIENCE
        while not reached(folder):
            assert process.poll() is None, "it ended before the phase was reached"
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGSTOP)  # so that it starts nothing that is not in this list
        started = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert psutil.wait_procs(started, timeout=PATIENCE)[1] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "no study called `nothing`, and no such file; choose from baseline, kernels, ladder, scaling"),
        (["baseline", "--budget", "soon"], "it is a time such as 500ms, 5s, 2m or 1h, not `soon`"),
        (["baseline", "--budget", "10s"], "it is 60 s or more, not 10s"),
        (["report", "gone.tar.gz"], "the file gone.tar.gz does not exist"),
        (["report", "gone", "--folder", "x"], "--folder is where an archive is unpacked"),
        (["baseline", "--archive", "x.zip"], "an archive's name ends in .tar.gz"),
        (["status", "/nowhere"], "is not the folder of a study"),
        (["baseline", "ladder"], "name one study, not 2"),
        (["gone.tar.gz", "--part", "users"], "leave out --model, --engine and --part"),
        (["gone.tar.gz"], "the file gone.tar.gz does not exist"),
    ],
)
def test_mistakes_get_a_sentence_and_exit_code_2(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["study", *words])
    assert done.exit_code == 2
    assert said in done.stderr
