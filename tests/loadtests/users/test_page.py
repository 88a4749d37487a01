"""Locust's page: the tab that opens first, whether its stages met the SLO, and its charts."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import httpx
import pytest

from enginebench.records.slo import RunObjectives
from enginebench.records.stage import SECOND
from enginebench.settings.system import free_port
from loadtests.harness.live.buckets import CountedMetrics
from loadtests.harness.live.counts import Counts, LiveCounts
from loadtests.harness.live.series import BACK, MAX_POINTS, LiveSeries
from tests.support.analysis.synthetic import meta_of, record, stages_of
from tests.support.loadtests.locust_process import start
from tests.support.servers.scripted import Script, ScriptedServer

STAGES = stages_of((4, 8), 10.0, warm_up=0.1, hold=0.1)
SLO = {"slo": "ttft_p95=0.3"}


class Live:
    """What a chart reads of a run that goes on."""

    def __init__(self) -> None:
        self.meta = meta_of(STAGES, workload=SLO)
        self.metrics = CountedMetrics(RunObjectives.from_workload(SLO))
        self.own = LiveCounts(self.metrics)

    def counts(self) -> Counts:
        return copy.deepcopy(self.own.run)

    def ended(self, at: float, ttft: float, outcome: str = "ok") -> None:
        since = round(at * SECOND)
        first = since + round(ttft * SECOND) if outcome == "ok" else None
        request = record(0, since, outcome=outcome, t_first=first, t_first_out=first, read_first=first)
        self.own.request_ended(request)
        self.own.settle_all()


def test_a_point_is_of_the_requests_that_ended_in_the_last_seconds() -> None:
    live = Live()
    series = LiveSeries(live)  # type: ignore[arg-type]
    series.sample(0.0)
    for second in range(1, 6):
        live.ended(second, 0.1)
    series.sample(10.0)
    at, p50, p99, tokens = series.points[0]
    assert (at, tokens) == (10.0, pytest.approx(5 * record(0, 0).output_tokens / 10))  # type: ignore[operator]
    assert p50 == pytest.approx(0.1, rel=0.02)
    assert p99 == pytest.approx(0.1, rel=0.02)
    for index in range(BACK):
        live.ended(11 + index, 0.4)
        series.sample(12.0 + 2 * index)
    assert series.points[-1][1] == pytest.approx(0.4, rel=0.02), "those of 100 ms ended earlier"


def test_a_percentile_among_failed_requests_and_a_time_without_answers_are_gaps() -> None:
    live = Live()
    series = LiveSeries(live)  # type: ignore[arg-type]
    series.sample(0.0)
    series.sample(2.0)
    assert series.points[-1] == (2.0, None, None, 0.0)
    for outcome in ("ok", "ok", "rejected"):
        live.ended(3.0, 0.1, outcome)
    series.sample(4.0)
    assert series.points[-1][1] == pytest.approx(0.1, rel=0.02)
    assert series.points[-1][2] is None


def test_the_charts_have_the_loads_and_the_limit_and_not_too_many_points() -> None:
    series = LiveSeries(Live())  # type: ignore[arg-type]
    for second in range(3 * MAX_POINTS):
        series.sample(float(second))
    document = json.loads(json.dumps(series.document()))
    assert document["stages"] == [[0.0, "4 users"], [10.0, "8 users"]]
    assert document["limit"] == 0.3
    assert MAX_POINTS / 2 <= len(document["points"]) <= MAX_POINTS


def test_the_page_opens_on_the_tab_with_the_answers_and_charts(tmp_path: Path) -> None:
    port = free_port()
    with ScriptedServer(Script(ttft=0.05, tpot=0.005, tokens=9)) as server:
        locust = start(
            server, tmp_path, "--stages", "4", "--stage-seconds", "6", "--warm-up", "1", "--slo", "ttft_p95=0.001",
            "--web-host", "127.0.0.1", "--web-port", str(port), "--autostart", "--autoquit", "60", headless=False,
        )  # fmt: skip
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=httpx.HTTPTransport(retries=50)) as page:

            def answer() -> str:
                (table,) = page.get("/stats/requests").json()["extended_stats"]
                return str(table["data"][0]["slo"]) if table["data"] else ""

            locust.wait_until(lambda: "enginebench/page.js" in page.get("/").text)
            script = page.get("/enginebench/page.js")
            locust.wait_until(lambda: answer() == "counting")
            locust.wait_until(lambda: answer() == "missed", timeout=120)
            series = page.get("/enginebench/series").json()
        locust.process.terminate()
        locust.wait()
    assert script.headers["content-type"].startswith("text/javascript")
    assert 'searchParams.set("tab"' in script.text
    assert len(series["points"]) >= 2
    assert series["limit"] == 0.001
    assert series["stages"][0][1] == "4 users"
    assert any(point[1] is not None and point[3] > 0 for point in series["points"])
