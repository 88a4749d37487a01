"""Documents in files and as JSON, and a gate's as JUnit XML."""

import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest

from enginebench.analysis.answer import GateAnswer
from enginebench.analysis.frame import SCHEMA
from enginebench.analysis.write.export import WRITERS, as_json, write
from enginebench.analysis.write.junit import junit
from enginebench.settings.schema import UserMistake
from tests.support.analysis import documents

ROW = {"engine": "=cmd()", "stage": "8 users", "load": 8.0, "metric": "ttft", "statistic": "p95", "value": 0.5}
FRAME = pl.DataFrame([ROW, ROW | {"engine": "a", "value": -1.0}], schema=SCHEMA)


def test_a_file_has_the_format_of_its_suffix(tmp_path: Path) -> None:
    document = replace(documents.quick(), frame=FRAME)
    for suffix in WRITERS:
        write(document, tmp_path / f"report{suffix}")
    starts = {
        ".html": b"<!doctype html>", ".md": b"# Load test", ".json": b'{"title":"Load test"', ".parquet": b"PAR1",
        ".csv": b"study,part,model,engine", ".svg": b"<svg", ".xml": b"<?xml",
    }  # fmt: skip
    assert set(starts) == set(WRITERS)
    for suffix, start in starts.items():
        assert (tmp_path / f"report{suffix}").read_bytes().startswith(start), suffix
    assert pl.read_parquet(tmp_path / "report.parquet").equals(FRAME)
    assert "](report-charts/ttft.svg)" in (tmp_path / "report.md").read_text()
    ElementTree.fromstring((tmp_path / "report-charts/ttft.svg").read_text())


def test_a_missing_chart_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="there is no chart: too few loads were measured"):
        write(replace(documents.quick(), figure=None), tmp_path / "report.svg")
    assert list(tmp_path.iterdir()) == []


def test_json_has_values_and_no_sentences() -> None:
    told = json.loads(as_json(replace(documents.contenders(), frame=FRAME)))
    assert list(told) == [
        "title", "tested", "objectives", "answer", "candidates", "warnings", "next", "exit_code", "sections", "rows",
    ]  # fmt: skip
    assert told["tested"]["dates"] == ["2026-11-28T10:00:00+00:00"] * 2
    assert told["objectives"] == ["ttft_p95=0.6", "tpot_p95=0.06"]
    assert told["answer"]["kind"] == "BestAnswer"
    first, second = told["candidates"]
    assert (first["engine"], told["rows"][0]["engine"]) == ("b", "=cmd()")
    assert first["users within the SLO"]["verdicts"][1] == {
        "stage": "24 users", "load": 24.0, "status": "met", "confirmed": True, "share": 1.0, "n": 403, "runs": 1,
        "agreeing": 1, "missing": None,
    }  # fmt: skip
    assert first["compared with the next row"] == {
        "value": 1.46, "low": 1.45, "high": 1.47, "n": 3, "unit": "", "style": "ratio", "over": "a",
        "significant": True,
    }  # fmt: skip
    assert second["compared with the next row"] is None
    assert second["a month"]["confirmed"] is False


def test_json_has_no_infinite_numbers() -> None:
    document = documents.quick()
    told = json.loads(as_json(replace(document, answer=replace(document.answer, beyond=(math.inf, 0.03)))))  # type: ignore[type-var]
    assert told["answer"]["beyond"] == [None, 0.03]


def test_a_gate_as_junit_xml() -> None:
    root = ElementTree.fromstring(junit(documents.gate()))
    assert root.get("name", "").startswith("FAILED: TTFT p95 at 8 users is 21 % [15, 28] higher than the baseline")
    cases = root.iter("testcase")
    assert [(part.tag, part.get("message") or part.text) for case in cases for part in case] == [
        ("failure", "TTFT p95: baseline 100 ms, now 121 ms, change 21 % higher [15, 28]"),
        ("skipped", "TTFT p99: baseline 100 ms, now 121 ms, change 30 % higher [−10, +70]"),
        ("system-out", "TPOT p50: baseline 100 ms, now 121 ms, change 2.0 % lower [1.0, 3.0]"),
    ]


def test_a_gate_without_checks_is_an_error() -> None:
    document = replace(documents.gate(), sections=(), answer=GateAnswer(False, 0.1, (), 0, 0), exit_code=2)
    root = ElementTree.fromstring(junit(document))
    assert [element.tag for element in root.iter()] == ["testsuites", "testsuite", "testcase", "error"]
    assert len(ElementTree.fromstring(junit(replace(document, exit_code=0)))) == 0
