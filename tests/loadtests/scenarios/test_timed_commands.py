"""Bursts, and servers that are killed or replaced, as people run them: what happened is on record, and told."""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from pathlib import Path

import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.recovery import Disruption
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.files import read_meta, read_requests
from enginebench.records.load import Rate
from enginebench.records.stage import SECOND
from loadtests.harness.schedule.rates import arrival_times
from tests.support.loadtests.locust_process import ROOT, start
from tests.support.loadtests.run_command import run_here
from tests.support.servers.served import served

PROFILE = "20x5+80x2+20x9"


def disruption_of(run: Path) -> Disruption:
    (disruption,) = summarise(load_run(run)).disruptions
    return disruption


def test_a_killed_engine_is_felt_and_got_over(tmp_path: Path) -> None:
    """The program serves the engine itself, and so knows which process to kill. The failure of the command is told."""
    words = ["--engine", "fake", "-o", "ttft=0.05", "--rate", "20", "--stage-seconds", "16", "--warm-up", "1"]
    words += ["--output-tokens", "4", "--command", "5s echo said; kill -KILL {engine}; exit 3", "--allow-invalid"]
    done = run_here("run", "failover", *words, "--runs", tmp_path)
    assert done.exit_code == 0, done.stderr
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    meta = read_meta(folder)
    assert [event.what for event in meta.events[:2]] == ["server started", "server ready"]
    assert meta.events[0].t < meta.events[1].t < 0
    assert meta.events[2].what.startswith("echo said; kill -KILL ")
    assert meta.events[2].t - meta.stages[0].start == pytest.approx(5 * SECOND, abs=0.2 * SECOND)
    assert "ended with exit code 3" in (folder / "locust.log").read_text()
    assert (folder / "command.log").read_text() == "said\n"
    outcomes = Counter(one.outcome for one in read_requests(folder))
    assert outcomes["ok"] > 100
    outage = disruption_of(folder)
    assert outage.recovered is not None


@pytest.mark.alone  # the server must really serve 40 a second
def test_a_spike_is_felt_and_got_over(tmp_path: Path) -> None:
    """Four places for 0.1 s serve 40 a second: a burst of 80 for 2 s leaves 80 behind, which take 4 s. Arrivals are
    those of the profile all the while."""
    with served("ttft=0.1", "concurrency=4") as server:
        locust = start(
            server, tmp_path, "--rate", PROFILE, "--stage-seconds", "16", "--warm-up", "1",
            "--output-tokens", "4", scenario=ROOT / "loadtests/spike.py", processes=2,
        ).finish()  # fmt: skip
    (stage,) = locust.meta.stages
    assert (stage.label, stage.load.value) == (f"{PROFILE} req/s", 27.5)
    assert stage.steady_start is not None
    assert isinstance(stage.load, Rate)
    drawn = takewhile(lambda at: at < 16, arrival_times(stage.load, 1, 15, 0, 0))
    due = [at for one in locust.records if (at := (one.t_sched - stage.start) / SECOND) < 16]
    assert sorted(due) == pytest.approx(list(drawn), abs=1e-6)
    findings = summarise(load_run(locust.run)).findings
    burst = disruption_of(locust.run)
    assert burst.command == ""
    assert burst.peak is not None
    assert burst.recovered is not None
    assert not [finding for finding in findings if finding.kind == "unsteady"], "it was not meant to be"
