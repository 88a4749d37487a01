from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest

from enginebench.records.formatting import format_seconds
from enginebench.settings.schema import UserMistake
from enginebench.studies.report.contents import StudyReport
from enginebench.studies.report.document import PICTURE
from enginebench.studies.report.publish import publish
from enginebench.studies.report.readme import BETWEEN, FRAME, section, write_readme

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, folder: Path, report: StudyReport) -> Path:
    return publish(folder, tmp_path_factory.mktemp("results"))


def test_the_table_has_the_numbers_of_the_report(published: Path, report: StudyReport) -> None:
    text, page = section(published), (published / "report.md").read_text()
    rows = re.findall(r"^\| (\S+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", text, re.MULTILINE)
    engines = {row[0]: row[1:] for row in rows if row[0] not in {"engine", ":---"}}
    assert list(engines) == ["vllm", "candle", "pytorch-baseline"]
    assert engines["pytorch-baseline"][0] == "< 4"
    for engine, (_, tokens, ratio, ttft) in engines.items():
        assert re.search(rf"\| {engine} \| \w+ \| {re.escape(tokens)} \| {re.escape(ratio)} \|", page), engine
        (runs,) = (each for each in report.measured[0].engines if each.label == engine)
        p99 = runs.estimate("16 users", "ttft", "p99")
        assert ttft == "{} [{}, {}]".format(*(format_seconds(at) for at in (p99.value, p99.low, p99.high)))
    answer = re.search(r"^\*\*(.*)\*\* ?(.*)$", text, re.MULTILINE)
    assert answer is not None
    assert f"**{answer[1]}**" in page
    assert answer[2] in page
    (said,) = pl.read_parquet(published / FRAME).filter(metric="answer")["why"]
    assert all(f"{sentence.rstrip('.')}." in text for sentence in said.split(". ")), (
        "and what limits it, below the table"
    )
    assert (published / PICTURE).exists()
    assert f"({published}/{PICTURE})" in text


def test_the_readme_is_written_by_one_command(tmp_path: Path, published: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n\n<!-- results: -->\nold\n<!-- /results -->\n\nafter\n")
    write_readme(published, readme)
    text = readme.read_text()
    assert text == f"before\n\n{section(published)}\n\nafter\n"
    write_readme(published, readme)
    assert readme.read_text() == text


def test_a_readme_without_a_place_is_refused(tmp_path: Path, published: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing\n")
    with pytest.raises(UserMistake, match="results"):
        write_readme(published, readme)


@pytest.mark.skipif(not RESULTS.exists(), reason="no study is committed")
def test_the_readme_shows_a_committed_study() -> None:
    found = BETWEEN.search((ROOT / "README.md").read_text())
    assert found is not None
    folder = found["folder"]
    assert (ROOT / folder).is_relative_to(RESULTS)
    assert found[0] == section(ROOT / folder, folder), (
        f"python -m enginebench.studies.report.readme {folder} writes it again"
    )
