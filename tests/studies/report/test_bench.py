"""A study without load: documents of real benches of the scripted engine, as its cells leave them."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from enginebench.studies.report.contents import StudyReport
from enginebench.studies.report.document import write_report
from enginebench.studies.report.lengths import kernels
from enginebench.studies.study.cells import cells_of
from enginebench.studies.study.folder import BENCH, CELLS, CellRecord, StudyFacts, append_line, write_facts
from enginebench.studies.study.grid import Grid, StudyEngine, StudyModel, StudyPart, Value
from engines.bench.document import read_result
from engines.bench.settings import LeftOut
from engines.bench.tables import middle_of, notes_of, sentence_of

ROUNDS = 2
SETTINGS: dict[str, Value] = {"prefill": "8", "generate": "4", "batch": "1", "samples": 2, "warm_up": 0}
GRID = Grid(
    title="How fast are the kernels?",
    baseline="slow",
    models=(StudyModel("random:llama-3.2-tiny", "tiny"),),
    engines=(StudyEngine("slow", "fake", {"tpot": 0.02}), StudyEngine("fast", "fake", {"tpot": 0.002})),
    parts=(StudyPart("kernels", "bench", title="Prefill and decode", settings=SETTINGS),),
    repeats=ROUNDS,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("studies") / "kernels"
    (folder / BENCH).mkdir(parents=True)
    facts = StudyFacts(name="kernels", variants=(), grid=GRID, command=(), commit=None, started_at="", host={})
    write_facts(folder, facts)
    for cell in cells_of(GRID):
        engine, path = GRID.engine(cell.engine), f"{BENCH}/{cell.id}.json"
        options = [word for text in engine.option_texts for word in ("-o", text)]
        settings = [f"--{name.replace('_', '-')}={text}" for name, text in GRID.parts[0].setting_texts.items()]
        words = ["bench", "fake", "--model", GRID.models[0].name, "--rounds", "1", *options, *settings]
        done = CliRunner().invoke(app, [*words, "--output", str(folder / path)])
        assert done.exit_code == 0, done.output
        append_line(folder / CELLS, CellRecord(cell=cell.id, outcome="done", started_at="", seconds=1.0, path=path))
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> StudyReport:
    made, _ = write_report(folder)
    return made


def test_each_repeat_is_a_round_of_its_engine(folder: Path, report: StudyReport) -> None:
    (bench,) = report.benches
    assert [result.label for result in bench.result.results] == ["slow", "fast"]
    for result in bench.result.results:
        paths = [folder / BENCH / f"kernels.tiny.{result.label}.{repeat}.json" for repeat in (1, 2)]
        for series in result.series:
            own = [read_result(path).results[0].of(series.measure.name) for path in paths]
            assert series.rounds == tuple(one.rounds[0] for one in own if one is not None)
            assert len(series.rounds) == ROUNDS


def test_the_numbers_of_the_benches_are_those_of_the_report(folder: Path, report: StudyReport) -> None:
    (bench,) = report.benches
    frame = pl.read_parquet(folder / "frame.parquet")
    for result in bench.result.results:
        for series in result.series:
            row = frame.filter(label=result.label, metric=series.measure.name, statistic="median")
            middle = middle_of(series)
            assert middle is not None
            assert (row["value"].item(), row["n"].item()) == (middle.median, middle.n)
    slow = frame.filter(label="slow", metric="generate 4", statistic="median")["value"].item()
    assert slow >= 3 * 0.02 * 0.999  # no token comes before it is due


def test_the_report_shows_them_and_why_there_is_no_quality(folder: Path, report: StudyReport) -> None:
    section = kernels(report)
    assert any({row[0] for row in table.rows} == {"slow", "fast"} for table in section.tables)
    text = (folder / "report.md").read_text()
    assert text.startswith("# How fast are the kernels?")
    assert "## Engines without HTTP" in text
    missing = text.partition("## What was not measured")[2]
    assert "| Quality | no engine gave log-probabilities of the fixed text (" in missing
    page = (folder / "report.html").read_text()
    assert "Engines without HTTP</h2>" in page
    assert "Made by enginebench from what its benches wrote." in page
    assert "| Every comparison | no part of this study was under load |" in missing
    repeat = text.partition("## To repeat it")[2]
    assert re.search(r"\| engines \| slow [\d.]+; fast [\d.]+ \|", repeat), repeat
    assert "| order | repeats interleaved: slow, fast; then fast, slow |" in repeat
    assert re.search(r"\| records \| sha256 [0-9a-f]{16} \|", repeat)
    assert text.count(sentence_of(report.benches[0].result)) == 1


def test_a_bench_that_cannot_be_read_is_named_and_the_others_are_shown(folder: Path, tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    shutil.copytree(folder, torn)
    (torn / BENCH / "kernels.tiny.slow.2.json").write_text("{")
    report, _ = write_report(torn)
    (bench,) = report.benches
    assert [len(one.series[0].rounds) for one in bench.result.results] == [1, 2]
    assert any(one.what == "kernels.tiny.slow.2" for one in report.source.missing)


def test_a_case_that_was_measured_in_another_round_is_said_so(report: StudyReport) -> None:
    result = report.benches[0].result
    first, other = result.results
    left_out = (LeftOut("prefill 8", "it would take 9 s"), LeftOut("prefill 512", "it would take 9 s"))
    found = replace(result, results=(replace(first, left_out=left_out), other))
    assert "slow without prefill 8 in some rounds and prefill 512: it would take 9 s." in list(notes_of(found))
