"""A worker process that ends before its run is reported within seconds, with the arrivals that were not sent."""

from __future__ import annotations

import re
import signal
import time
from itertools import count, takewhile
from pathlib import Path

import psutil
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.load import Load, Rate, Users
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from loadtests.harness.live.live_json import read_live
from loadtests.harness.schedule.rates import arrival_times, missing_arrivals, share_of
from tests.support.loadtests.locust_process import CONCURRENT, Locust, start
from tests.support.servers.scripted import Script, ScriptedServer

RATE = CONCURRENT.with_name("rate.py")
OPEN = ("--rate", "30", "--stage-seconds", "12", "--warm-up", "1", "--seed", "3")


def missing(locust: Locust, worker: int) -> int:
    """How many arrivals of a worker's share have no record, and were due before the run's end."""
    (only,) = locust.meta.stages
    load, end = only.load, only.end
    assert isinstance(load, Rate)
    assert end is not None
    times = arrival_times(load, 1.0, 11.0, 3, 0)
    share = (only.start + round(seconds * SECOND) for _, seconds in share_of(times, worker, 3))
    due = takewhile(lambda at: at < end, share)
    sent = (locust.run / f"requests-{worker}.jsonl").read_bytes()
    return sum(f'"t_sched":{at},'.encode() not in sent for at in due)


def kinds(locust: Locust) -> set[str]:
    return {finding.kind for view in read_live(locust.run).stages for finding in view.findings}


def test_the_arrivals_of_lost_workers_are_counted(tmp_path: Path) -> None:
    """One worker is killed, another asked to end."""
    with ScriptedServer(Script(ttft=0.02)) as server:
        locust = start(server, tmp_path, *OPEN, processes=3, scenario=RATE)
        locust.wait_until(lambda: locust.stage is not None and locust.stage.steady_start is not None)
        time.sleep(1.5)
        killed, asked = psutil.Process(locust.process.pid).children()[1:3]
        killed.send_signal(signal.SIGKILL)
        asked.send_signal(signal.SIGTERM)
        locust.wait_until(lambda: "load_missing" in kinds(locust))
        assert locust.process.poll() is None, "while the run goes on"
        output = locust.wait(60)
    assert locust.process.returncode == 2, output
    at_once = r"Worker process \d was lost .* after the start .*: its share of the arrivals is not sent"
    assert len(re.findall(at_once, output)) == len(locust.meta.lost) == 2
    evidence = "; ".join(finding.evidence for finding in summarise(load_run(locust.run)).findings)
    for lost in locust.meta.lost:
        assert lost.arrivals == missing(locust, int(lost.worker)) > 30
        told = f"{lost.arrivals} arrivals of its share were not sent"
        assert told in output.partition("ERROR/")[2]
        assert told in evidence


def stage(index: int, start: float, end: float | None, load: Load, steady_end: float | None = None) -> Stage:
    at = [None if seconds is None else round(seconds * SECOND) for seconds in (steady_end, end)]
    plan = StagePlan(load, Extent(0), Extent(4), drains=steady_end is not None)
    return Stage(index, plan, round(start * SECOND), steady_end=at[0], end=at[1])


TEN = Rate(10)  # of which each of two processes sends five a second
NOW = 20 * SECOND


@pytest.mark.parametrize(
    ("stages", "last", "arrivals"),
    [
        pytest.param([stage(0, 10, None, TEN)], 15.0, 25, id="the stage goes on"),
        pytest.param([stage(0, 10, 18, TEN)], 15.0, 15, id="it is over"),
        pytest.param([stage(0, 10, 18, TEN), stage(1, 18, None, TEN)], 15.0, 25, id="another has begun"),
        pytest.param([stage(0, 10, 18, TEN), stage(1, 25, None, TEN)], 15.0, 25, id="another has been announced"),
        pytest.param([stage(0, 10, None, TEN, steady_end=17)], 15.0, 10, id="nothing is sent after its window"),
        pytest.param([stage(0, 10, None, Users(3))], 15.0, 0, id="a closed loop"),
    ],
)
def test_missing_arrivals_are_those_due_since_the_last_one(stages: list[Stage], last: float, arrivals: int) -> None:
    after = round(last * SECOND)
    assert missing_arrivals(after, (1, 2), stages, lambda _: (n / 10 + 0.05 for n in count()), NOW) == arrivals


def test_a_process_without_a_share_leaves_no_arrivals() -> None:
    assert missing_arrivals(0, None, [stage(0, 0, None, TEN)], lambda _: (n / 10 for n in count()), NOW) == 0
