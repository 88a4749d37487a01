"""The share card: one SVG with the answer, a chart, and where the numbers came from."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from enginebench.analysis.data.load import load_run
from enginebench.analysis.report.card import HEIGHT, WIDTH, card, records_hash, rivals_picture
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.slo import parse_objectives
from tests.support.analysis.printed import reported
from tests.support.analysis.synthetic import Engine, simulate

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunSummary]:
    folder = tmp_path_factory.mktemp("card")
    engines = (Engine("slow", slots=2), Engine("quick", slots=4))
    folders = [simulate(folder / engine.label, engine, (1, 4, 8), 20.0) for engine in engines]
    return [summarise(load_run(run), parse_objectives(["ttft_p95=0.3"])) for run in folders]


def test_it_has_the_answer_the_chart_and_the_provenance(runs: list[RunSummary]) -> None:
    report = reported(runs)
    root = ElementTree.fromstring(card(report))
    lines = [text.text or "" for text in root.iter(f"{SVG}text")]
    whole = " ".join(lines)
    answer = report.screen.answer
    assert " ".join(whole.split()).startswith(answer)
    assert sum(1 for _ in root.iter(f"{SVG}path")) > 5, "a chart"
    assert "TTFT p95, in milliseconds" in lines, "the percentile that the SLO limits, whose limit is drawn"
    assert "Test CPU, 2 cores" in whole
    assert "smollm2-135m" in whole
    assert any(line.startswith("enginebench run concurrent") for line in lines)
    assert f"records sha256 {records_hash([run.folder for run in runs])[:16]}" in whole


def test_a_long_answer_ends_with_a_sentence(runs: list[RunSummary]) -> None:
    report = reported(runs)
    first = "slow holds 1 user within TTFT p95 ≤ 300 ms, the fewest that were measured"
    answer = f"{first}. " + " ".join(["It goes on"] * 60) + "."
    long = replace(report, screen=replace(report.screen, answer=answer))
    lines = [text.text or "" for text in ElementTree.fromstring(card(long)).iter(f"{SVG}text")]
    assert " ".join(lines).startswith(f"{first}.")
    assert "It goes on" not in " ".join(lines)


def test_it_needs_no_other_file_and_no_style_sheet(runs: list[RunSummary]) -> None:
    drawing = card(reported(runs))
    assert "var(" not in drawing
    assert not re.search(r"href=|url\(http|@import", drawing)
    assert f'viewBox="0 0 {WIDTH} {HEIGHT}"' in drawing


def test_the_hash_is_that_of_the_records(runs: list[RunSummary], tmp_path: Path) -> None:
    folders = sorted((run.folder for run in runs), key=lambda path: path.name)
    files = " ".join(f"{folder}/requests*.jsonl" for folder in folders)
    done = subprocess.run(f"cat {files} | sha256sum", shell=True, capture_output=True, text=True, check=True)
    assert records_hash([run.folder for run in runs]) == done.stdout.split()[0]


def test_the_picture_of_two_rivals_has_the_limit_and_what_both_hold(runs: list[RunSummary]) -> None:
    drawing = rivals_picture(reported(runs))
    assert drawing is not None
    whole = " ".join(text.text or "" for text in ElementTree.fromstring(drawing).iter(f"{SVG}text"))
    assert "TTFT p99" in whole
    assert "TTFT p95 ≤ 300 ms" in whole
    assert re.search(r"Bands: 95 % intervals\. Dotted lines: quick holds \d+ users within the SLO, slow \d+\.", whole)
    assert rivals_picture(reported(runs[:1])) is None, "one engine has no rival"
