"""Bursts, and servers that are killed or replaced, as people run them: what happened is on record, and told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from analysis.run.load import load_run
from analysis.verdict.finding import Finding
from analysis.verdict.summary import summarise
from records.files import read_meta, read_requests
from records.stage import SECOND
from tests.support.locust_process import ROOT, start
from tests.support.scripted import Script, ScriptedServer

pytestmark = pytest.mark.alone


def recoveries(run: Path) -> list[Finding]:
    return [finding for finding in summarise(load_run(run)).findings if finding.kind == "recovery"]


def test_a_command_is_run_at_its_time_and_recorded(tmp_path: Path) -> None:
    with ScriptedServer(Script(ttft=0.02)) as server:
        locust = start(
            server, tmp_path, "--rate", "20", "--stage-seconds", "6", "--warm-up", "1", "--at", "3",
            "--command", f"echo said; touch {tmp_path}/done", scenario=ROOT / "loadtests/failover.py",
        )  # fmt: skip
        output = locust.wait()
    assert locust.process.returncode == 0, output
    assert (tmp_path / "done").exists()
    assert (locust.run / "command.log").read_text() == "said\n"
    (event,) = locust.meta.events
    assert event.what.startswith("echo said")
    assert event.t - locust.meta.stages[0].start == pytest.approx(3 * SECOND, abs=0.2 * SECOND)
    (finding,) = recoveries(locust.run)
    assert "0 requests failed" in finding.evidence


def test_a_command_that_fails_is_told_in_the_log(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        locust = start(
            server, tmp_path, "--rate", "5", "--stage-seconds", "3", "--warm-up", "1", "--at", "1",
            "--command", "exit 3",
            scenario=ROOT / "loadtests/failover.py",
        )  # fmt: skip
        assert "ended with exit code 3" in locust.wait()


def test_without_an_engine_of_its_own_failover_asks_for_a_command(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        locust = start(server, tmp_path, scenario=ROOT / "loadtests/failover.py")
        output = locust.wait()
    assert "give a --command of your own" in output
    assert "Traceback" not in output
    assert locust.process.returncode == 2


def run_against_the_fake(tmp_path: Path, scenario: str, *options: str) -> tuple[Path, dict[str, Any]]:
    """A whole run with a server of its own; its folder, and the report's document."""
    command = [sys.executable, "-m", "enginebench", "run", scenario, "--engine", "fake", "--runs", str(tmp_path)]
    command += ["--output-tokens", "4", "--allow-invalid", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    (folder,) = tmp_path.iterdir()
    return folder, run


def test_a_killed_engine_is_felt_and_got_over(tmp_path: Path) -> None:
    folder, _ = run_against_the_fake(
        tmp_path, "failover", "-o", "ttft=0.05", "--rate", "20", "--stage-seconds", "16", "--warm-up", "1", "--at", "5"
    )
    meta = read_meta(folder)
    assert [event.what for event in meta.events[:2]] == ["server started", "server ready"]
    assert meta.events[0].t < meta.events[1].t < 0
    assert meta.events[2].what.startswith("kill -KILL ")
    outcomes = Counter(one.outcome for one in read_requests(folder))
    assert outcomes["ok"] > 100
    (finding,) = recoveries(folder)
    assert "the server's first start had taken" in finding.evidence
    assert " after it TTFT was back within " in finding.evidence


def test_a_spike_is_felt_and_got_over(tmp_path: Path) -> None:
    """Four places for 0.1 s serve 40 a second: a burst of 80 for 2 s leaves 80 behind, which take 4 s."""
    _, run = run_against_the_fake(
        tmp_path, "spike", "-o", "ttft=0.1", "-o", "concurrency=4", "--rate", "20x6+80x2+20x12",
        "--stage-seconds", "20", "--warm-up", "1",
    )  # fmt: skip
    (finding,) = [finding for finding in run["findings"] if finding["kind"] == "recovery"]
    assert finding["evidence"].startswith("after the burst to 80 req/s: TTFT was ")
    assert "after its end TTFT was back within" in finding["evidence"]
    assert not [finding for finding in run["findings"] if finding["kind"] == "never_steady"], "it was not meant to be"


def test_soak_holds_its_users_for_as_long_as_told(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        locust = start(
            server,
            tmp_path,
            "--stages",
            "2",
            "--stage-seconds",
            "4",
            "--warm-up",
            "1",
            scenario=ROOT / "loadtests/soak.py",
        )
        output = locust.wait()
    assert locust.process.returncode == 0, output
    (stage,) = locust.meta.stages
    assert (stage.steady_end or 0) - (stage.steady_start or 0) == 3 * SECOND
    assert {one.user for one in locust.records} == {0, 1}


@pytest.mark.parametrize("scenario", [("rate", "--rate", "10,20"), ("soak", "--stages", "2")])
def test_a_real_server_under_each_kind_of_load(tmp_path: Path, scenario: tuple[str, str, str]) -> None:
    name, *load = scenario
    folder, run = run_against_the_fake(
        tmp_path, name, "-o", "ttft=0.05", *load, "--stage-seconds", "4", "--warm-up", "1"
    )
    assert {one.outcome for one in read_requests(folder)} == {"ok"}
    for stage in run["stages"]:
        assert stage["ok"] == stage["requests"] > 10
        assert 0.05 <= stage["latencies"]["ttft"]["p50"]["value"] < 0.2
