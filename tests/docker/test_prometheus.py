"""Prometheus' own tool accepts the configuration and the rules, and every rule does what its tests say."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from enginebench.records.metrics import MOMENTARY, QUANTITIES, TOTALS
from loadtests.harness.command.server_process import PORTS
from loadtests.harness.live.metric_families import EXPORTED, PREFIX, name_of
from loadtests.harness.settings.run_settings import EXPORTER_PORTS, RunSettings

FOLDER = Path(__file__).parents[2] / "docker" / "prometheus"
RULES = sorted(FOLDER.glob("rules/**/*.yml"))
TESTS = sorted(FOLDER.glob("tests/**/*.yml"))
ALERTS = [alert for file in RULES for alert in re.findall(r"- alert: (\w+)", file.read_text())]
RECORDS = {record for file in RULES for record in re.findall(r"- record: ([\w:]+)", file.read_text())}

PORT = re.compile(r"- 127\.0\.0\.1:(\d+)")
Program = Callable[[str], str]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["check", "config", "prometheus.yml"], id="the configuration is valid"),
        pytest.param(["check", "rules", "--lint=all", *map(str, RULES)], id="rules are valid and without duplicates"),
        pytest.param(["test", "rules", *map(str, TESTS)], id="alerts fire when they should, and records are right"),
    ],
)
def test_promtool_agrees(program: Program, arguments: list[str]) -> None:
    done = subprocess.run([program("promtool"), *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_is_tested_both_ways(alert: str) -> None:
    tests = "".join(file.read_text() for file in TESTS)
    expected = re.findall(rf"- alertname: {alert}\n.*\n +exp_alerts:(.*)", tests)
    assert "" in expected, "one test in which it fires"
    assert " []" in expected, "and one in which it does not"


def test_every_record_is_tested() -> None:
    tests = "".join(file.read_text() for file in TESTS)
    asked = "".join(re.findall(r"- expr: (.*)", tests))
    histograms = {f"{name}_{part}" for name in re.findall(r"(\w+)_bucket", asked) for part in ("sum", "count")}
    assert [record for record in sorted(RECORDS - histograms) if record not in asked] == []


def test_the_guide_explains_every_alert() -> None:
    guide = (FOLDER.parents[1] / "docs" / "observability.md").read_text()
    assert [alert for alert in ALERTS if f"`{alert}`" not in guide] == []


def test_the_targets_are_the_ports_that_runs_take() -> None:
    servers, load = (
        [int(port) for port in PORT.findall((FOLDER / f"targets/{name}.yml").read_text())]
        for name in ("servers", "load")
    )
    assert servers == list(PORTS)
    exporter = RunSettings().exporter
    assert exporter is not None
    assert load == list(range(exporter[1], exporter[1] + EXPORTER_PORTS))


def test_only_what_a_load_test_exports_is_asked_for() -> None:
    """By rules and dashboards, under the names that its exporter writes."""
    known = {"run_info", "run_start_seconds", "objective_seconds", "finding"}
    known |= {"stage_load", "stage_start_seconds", "stage_end_seconds"}
    known |= {f"stage_{name_of(one)}" for one in EXPORTED}
    known |= {f"stage_{name_of(one)}" for one in QUANTITIES if one.shown.exported}
    known |= {name_of(one) for one in (*MOMENTARY, *TOTALS)}
    known |= {f"{name_of(one)}{part}" for one in EXPORTED for part in ("_bucket", "_sum", "_count")}
    files = [*RULES, *(FOLDER.parents[1] / "grafana" / "dashboards").glob("*.json")]
    asked = {name for file in files for name in re.findall(rf"(?<![:\w]){PREFIX}(\w+)", file.read_text())}
    assert asked <= known
    assert len(asked) > 10
