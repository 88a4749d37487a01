"""At the end of a real run, what was shown live and what the report computes from the records are the same.

The same window, the same requests, every declared metric and every outcome: percentiles within a bucket's width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from enginebench.analysis.data.load import load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.metrics import PERCENTILES
from enginebench.records.view import Missing, StageView
from loadtests.harness.live.document import LiveDocument, read_live
from loadtests.harness.live.scales import GAP_GROWTH, GROWTH, METRICS
from loadtests.harness.live.view import LIVE_QUANTITIES
from tests.support.loadtests.locust_process import start
from tests.support.servers.scripted import Script, ScriptedServer

WORKLOAD = ["--classes", "chat: weight=1 output=6 slo=ttft_p95=0.5; batch: weight=1 output=12"]


@dataclass(frozen=True)
class Run:
    live: LiveDocument
    report: tuple[StageView, ...]


@pytest.fixture(scope="module", params=[1, 2], ids=["one process", "two workers"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("agreement")
    script = Script(ttft=0.03, tpot=0.01, tokens=6, statuses=[200] * 60 + [503, 200] * 4)
    with ScriptedServer(script) as server:
        options = ["--stages", "4,8", "--stage-seconds", "4", "--warm-up", "1", "--slo", "e2e_p90=0.2"]
        locust = start(
            server,
            folder,
            *options,
            *WORKLOAD,
            "--exporter",
            "none",
            "--exit-code-on-error",
            "0",
            processes=request.param,
        )
        output = locust.wait()
    assert locust.process.returncode == 0, output
    return Run(read_live(locust.run), summarise(load_run(locust.run)).stages)


def pairs(run: Run) -> Iterator[tuple[StageView, StageView]]:
    assert [view.key for view in run.live.stages] == [view.key for view in run.report]
    yield from zip(run.live.stages, run.report, strict=True)


def test_outcomes_and_failures_are_the_same(run: Run) -> None:
    for live, final in pairs(run):
        assert live.outcomes == final.outcomes
        assert live.failures == final.failures
        assert (live.start, live.end) == (final.start, final.end)
    assert sum(live.failed for live in run.live.stages) > 0


@pytest.mark.parametrize("name", [metric.name for metric in METRICS])
def test_every_metric_is_within_a_bucket(run: Run, name: str) -> None:
    for live, final in pairs(run):
        mine, theirs = live.metrics[name], final.metrics[name]
        assert (mine.n, mine.failed) == (theirs.n, theirs.failed)
        assert mine.mean == (None if theirs.mean is None else pytest.approx(theirs.mean))
        for percentile in PERCENTILES if mine.n else ():
            shown, exact = mine.percentile(percentile), theirs.percentile(percentile)
            if exact.value is not None and math.isinf(exact.value):
                assert shown.missing is Missing.FAILED
            else:
                width = (GAP_GROWTH if name == "icl" else GROWTH) - 1
                assert shown.value == pytest.approx(exact.value, rel=width, abs=1e-6), percentile


@pytest.mark.parametrize("name", LIVE_QUANTITIES)
def test_every_quantity_is_the_same(run: Run, name: str) -> None:
    for live, final in pairs(run):
        exact = final.value(name)
        close = GROWTH - 1 if name == "user_throughput" else 1e-9
        assert live.value(name) == (None if exact is None else pytest.approx(exact, rel=close, abs=1e-12))


def test_what_findings_count_is_the_same(run: Run) -> None:
    for live, final in pairs(run):
        known = {name: count for name, count in final.counts.items() if name in live.counts}
        assert live.counts == known
        assert live.counts.keys() >= final.counts.keys() - {"server_tokens", "client_tokens"}
