"""A capacity meeting, acted out: two servers, an SLO of two objectives, a peak and a price. Every command gives one
answer to "how many users within the SLO?", and it is a bracket of loads that were measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from enginebench import app
from tests.support.analysis.synthetic import Engine, simulate

SLO = ("--slo", "ttft_p95=0.3", "--slo", "tpot_p95=0.05")
PEAK = ("--peak", "12users", "--price", "2")
LOADS = (2, 4, 8, 12)
ENGINES = (
    Engine("quick", slots=4, prefill=0.03, tpot=0.01, tokens=30, noise=0.2),
    Engine("wide", slots=8, prefill=0.05, tpot=0.015, tokens=30, noise=0.2),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for engine in ENGINES:
        for repeat in range(3):
            name = f"{engine.label}-{repeat}"
            simulate(folder / name, engine, LOADS, 40.0, repeat, run_id=name, repeat=repeat)
    return folder


def said(*words: str | Path) -> str:
    done = CliRunner().invoke(app, list(map(str, words)), env={"COLUMNS": "200"})
    assert done.exit_code in {0, 1}, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def report(runs: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(said("report", runs, *SLO, *PEAK, "--json"))
    return document


@pytest.fixture(scope="module")
def plan(runs: Path) -> dict[str, Any]:
    """Of one of the engines."""
    quick = [runs / f"quick-{repeat}" for repeat in range(3)]
    document: dict[str, Any] = json.loads(said("plan", *quick, *SLO, *PEAK, "--json"))
    return document


def brackets(capacities: list[dict[str, Any]]) -> dict[str, tuple[float | None, float | None]]:
    return {capacity["engine"]: (capacity["met"], capacity["missed"]) for capacity in capacities}


def test_every_command_has_one_capacity(runs: Path, report: dict[str, Any], plan: dict[str, Any]) -> None:
    compared = json.loads(said("compare", runs, *SLO, "--json"))
    answer = brackets(report["capacities"])
    assert answer == {"quick": (4, 8), "wide": (8, 12)}, "each serves as many as it has slots"
    assert brackets(report["comparison"]["capacities"]) == answer
    assert brackets(compared["capacities"]) == answer
    assert brackets([plan["capacity"]["measured"]]) == {"quick": answer["quick"]}
    assert {end for bracket in answer.values() for end in bracket} <= set(LOADS), "measured loads, none in between"


def test_the_headline_is_the_comparison_of_capacities(runs: Path, report: dict[str, Any]) -> None:
    assert report["headline"].startswith("wide holds 8 users within TTFT p95 ≤ 300 ms and TPOT p95 ≤ 50.0 ms; quick 4")
    assert report["comparison"]["winner"] == "wide"
    page = (runs / "report.html").read_text()
    assert "wide holds 8 users within the SLO, quick 4" in page, "the chart's title"
    printed = said("report", runs, *SLO)
    assert "wide holds 8 users within TTFT p95 ≤ 300 ms and TPOT p95 ≤ 50.0 ms" in printed


def test_cost_and_replicas_agree(report: dict[str, Any], plan: dict[str, Any]) -> None:
    replicas = {each["engine"]: each for each in report["decision"]["replicas"]}["quick"]
    assert (replicas["count"], replicas["month"]) == (plan["replicas"]["count"], plan["bill"]["per_month"])
    assert plan["bill"]["per_month"] == pytest.approx(plan["replicas"]["count"] * 2 * 730, rel=0.01)


def test_the_first_screen_answers_the_meeting(runs: Path) -> None:
    first = said("report", runs, *SLO, *PEAK).split("\n\n")[:4]
    text = "\n".join(first)
    for word in ("8 (12 missed)", "4 (8 missed)", "replicas", "a month"):
        assert word in text, text
