from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
from msgspec import structs
from typer.testing import CliRunner

from enginebench.analysis.cli import app
from enginebench.studies.report.contents import StudyReport
from enginebench.studies.report.document import FILES, write_report
from enginebench.studies.report.page import screen_of
from enginebench.studies.study.folder import SITTINGS, NotAStudy, append_line, load_study
from tests.support.studies import BASELINE, BROKEN, NO_ROOM, SLO_TEXTS

pytestmark = pytest.mark.usefixtures("report")  # whose files are in the study's folder
ENGINES = (BASELINE, "candle", "vllm")  # the first is the baseline of `enginebench report`


@pytest.fixture(scope="module")
def printed(folder: Path, report: StudyReport) -> dict:  # type: ignore[type-arg]
    """What `enginebench report --json` says of the runs of the part that decides."""
    runs = [str(folder / "runs" / f"users.smollm2-135m.{name}.{k}") for name in ENGINES for k in (1, 2, 3)]
    slo = [word for text in SLO_TEXTS for word in ("--slo", text)]
    price = ["--price", "0.1"]
    done = CliRunner().invoke(app, ["report", *runs, *slo, *price, "--json"])
    assert done.exit_code in (0, 1), done.output
    document: dict = json.loads(done.stdout)  # type: ignore[type-arg]
    return document


def test_the_numbers_are_those_of_the_report_command(folder: Path, printed: dict) -> None:  # type: ignore[type-arg]
    frame = pl.read_parquet(folder / "frame.parquet").filter(part="users")
    for run in printed["runs"]:
        for stage in run["stages"]:
            here = frame.filter(run=run["run_id"], stage=stage["label"])
            for name, quantity in stage["quantities"].items():
                if quantity["value"] is not None:
                    assert here.filter(metric=name, statistic="value")["value"].item() == quantity["value"]
            p99 = stage["metrics"]["ttft"]["percentiles"]["p99"]["value"]
            assert here.filter(metric="ttft", statistic="p99")["value"].item() == p99


def test_the_comparisons_are_those_of_the_report_command(folder: Path, printed: dict) -> None:  # type: ignore[type-arg]
    frame = pl.read_parquet(folder / "frame.parquet").filter(part="users", metric="throughput")
    ratios = 0
    for each in printed["comparison"]["comparisons"]:
        if each["column"]["key"] == "throughput" and each["over"] == BASELINE:
            row = frame.filter(label=each["engine"], stage=each["stage"], statistic=f"ratio over {BASELINE}")
            assert row["value"].item() == pytest.approx(each["ratio"]["value"])
            assert (row["low"].item(), row["high"].item()) == pytest.approx(
                (each["ratio"]["low"], each["ratio"]["high"])
            )
            ratios += 1
    assert ratios == 6  # two engines at three loads


def test_the_page_and_the_markdown_say_what_the_report_command_says(folder: Path, printed: dict) -> None:  # type: ignore[type-arg]
    page, text = ((folder / name).read_text() for name in ("report.html", "report.md"))
    assert printed["headline"].startswith("vllm and candle hold 16 users")
    answer, *further = re.split(r"(?<=\.) ", printed["headline"])
    assert f"**{answer}**" in text
    plain = re.sub(r"</?span[^>]*>", "", page)
    assert f"{answer}</h1>" in plain
    assert all(sentence in text and sentence in plain for sentence in further)
    served = {load["engine"]: load["tokens"]["value"] for load in printed["comparison"]["loads"] if load["load"] == 16}
    (row,) = re.findall(r"\| 16 users \| pytorch-baseline \| missed \| ([\d.]+) \[", text)
    assert float(row) == pytest.approx(served[BASELINE], rel=0.005)


def test_the_page_is_one_file_and_has_what_the_markdown_has(folder: Path) -> None:
    page, text = ((folder / name).read_text() for name in ("report.html", "report.md"))
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', page.partition("<script>")[0])
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings == re.findall(r"<h2 id[^>]*>([^<]*)</h2>", page.replace("&#39;", "'"))
    assert headings[0] == "TTFT and TPOT against the load"
    assert {"Scaling", "Memory", "What the identical server costs", "The brief's criteria"} < set(headings)


def test_what_was_skipped_and_what_failed_is_said_with_its_reason(folder: Path) -> None:
    """All of the second model was skipped, and one engine failed with long prompts."""
    text = (folder / "report.md").read_text()
    missing = text.partition("## What was not measured")[2].partition("\n## ")[0]
    assert f"| candle with llama-3.2-1b: users, lengths (6 cells, skipped) | {NO_ROOM} |" in missing
    assert f"| vllm with smollm2-135m: lengths (3 cells, failed) | {BROKEN} |" in missing
    assert "| GPU engines | this machine has no GPU |" in missing
    assert "Engines without HTTP" in missing
    frame = pl.read_parquet(folder / "frame.parquet")
    assert NO_ROOM in frame.filter(metric="not measured")["why"].to_list()


def test_a_study_of_which_nothing_ran_has_a_report_too(tmp_path: Path, folder: Path) -> None:
    from enginebench.studies.report.document import write_report

    (tmp_path / "study.json").write_bytes((folder / "study.json").read_bytes())
    study, written = write_report(tmp_path)
    assert {path.name for path in written} == set(FILES)
    assert screen_of(study).answer.startswith("Nothing was measured")
    assert "not reached" in (tmp_path / "report.md").read_text()


def test_a_folder_without_a_study_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotAStudy, match=re.escape("study.json")):
        load_study(tmp_path)


def test_a_folder_without_its_records_keeps_the_report_that_it_has(tmp_path: Path, folder: Path) -> None:
    for name in ("study.json", "cells.jsonl", "report.md"):
        shutil.copy(folder / name, tmp_path)
    before = (tmp_path / "report.md").read_text()
    with pytest.raises(NotAStudy, match=r"enginebench study report .*records\.tar\.xz"):
        write_report(tmp_path)
    assert (tmp_path / "report.md").read_text() == before


def test_runs_beside_other_gpus_are_not_compared(tmp_path: Path, folder: Path) -> None:
    """A study that went on where there is another GPU, behind the same processor."""
    moved = tmp_path / "moved"
    shutil.copytree(folder, moved)
    (sitting,) = load_study(moved).sittings
    (moved / SITTINGS).unlink()
    for day, gpu in (("2026-11-21", "NVIDIA H100"), ("2026-11-22", "NVIDIA H200")):
        begun = structs.replace(sitting, started_at=f"{day}T10:00:00+00:00", gpus=({"name": gpu},))
        append_line(moved / SITTINGS, begun)
    for run in (moved / "runs").glob("users.*.candle.*"):
        (run / "summary.json").unlink(missing_ok=True)
        meta = (run / "meta.json").read_text()
        (run / "meta.json").write_text(meta.replace("2026-11-21T10:00:00", "2026-11-22T11:00:00"))
    report, _ = write_report(moved)
    differing = [finding for each in report.measured for finding in each.comparison.findings]
    assert any("different GPUs: NVIDIA H100 and NVIDIA H200" in finding.evidence for finding in differing)


def test_an_own_server_that_has_nothing_beside_it_is_named(tmp_path: Path, folder: Path) -> None:
    alone = tmp_path / "alone"
    shutil.copytree(folder, alone)
    for run in (alone / "runs").glob("users.*.vllm.*"):
        shutil.rmtree(run)
    report, _ = write_report(alone)
    reasons = {one.what: one.why for one in report.source.missing}
    assert "nothing to be compared with" in reasons["vllm-own-server with smollm2-135m: users"]
