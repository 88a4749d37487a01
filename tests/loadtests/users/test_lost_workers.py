"""A worker process that ends before its run is said at once, with the arrivals that nobody sends for it."""

from __future__ import annotations

import re
import signal
import time
from itertools import takewhile
from pathlib import Path

import psutil
import pytest

from enginebench.analysis.data.load import load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.load import Rate
from enginebench.records.stage import SECOND
from loadtests.harness.live.document import read_live
from loadtests.harness.schedule.rates import arrival_times, share_of
from tests.support.loadtests.locust_process import CONCURRENT, Locust, start
from tests.support.servers.scripted import Script, ScriptedServer

RATE = CONCURRENT.with_name("rate.py")
OPEN = ("--rate", "30", "--stage-seconds", "9", "--warm-up", "1", "--seed", "3")


def missing(locust: Locust, worker: int) -> int:
    """How many arrivals of a worker's share have no record, and were due before the run's end."""
    (stage,) = locust.meta.stages
    load = stage.load
    assert isinstance(load, Rate)
    assert stage.end is not None
    times = arrival_times(load, 1.0, 8.0, 3, 0)
    share = (stage.start + round(seconds * SECOND) for _, seconds in share_of(times, worker, 2))
    due = takewhile(lambda at: at < (stage.end or 0), share)
    sent = (locust.run / f"requests-{worker}.jsonl").read_bytes()
    return sum(f'"t_sched":{at},'.encode() not in sent for at in due)


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "asked to end"])
def test_the_arrivals_of_a_lost_worker_are_counted(tmp_path: Path, kill: signal.Signals) -> None:
    with ScriptedServer(Script(ttft=0.02)) as server:
        locust = start(server, tmp_path, *OPEN, processes=2, scenario=RATE)
        locust.wait_until(lambda: locust.stage is not None and locust.stage.steady_start is not None)
        time.sleep(1.5)
        psutil.Process(locust.process.pid).children()[1].send_signal(kill)
        lost_at = time.monotonic()
        locust.wait_until(lambda: any(view.counts.get("processes_lost") for view in read_live(locust.run).stages))
        assert time.monotonic() - lost_at < 6, "while the run goes on"
        (view,) = read_live(locust.run).stages
        assert "process_lost" in {finding.kind for finding in view.findings}
        output = locust.wait(60)
    assert locust.process.returncode == 2, output
    assert re.search(r"Worker process \d was lost .* after the start of the run: nobody sends its share", output)
    (lost,) = locust.meta.lost
    assert lost.arrivals == missing(locust, int(lost.worker)) > 30
    told = f"Worker process {lost.worker} was lost"
    assert f"and {lost.arrivals} arrivals of its share were not sent." in output.partition("ERROR/")[2]
    assert output.count(told) == 2, "at once and at the end"
    findings = {finding.kind: finding.evidence for finding in summarise(load_run(locust.run)).findings}
    assert findings["process_lost"].endswith(f"; {lost.arrivals} arrivals of its share were sent by nobody")
