"""At the end of a real run, every live surface says what the frame of the same run says, and gives the same verdict.

`live.json` and the gauges `stage_…` of the exporter are over the window of a stage: counts and rates are equal, and a
percentile is the middle of a bucket whose ends are `GROWTH` apart. Prometheus' histograms and recording rules are over
the whole run: counts and shares are equal to those of its records, and a percentile is in the exported bucket that has
the exact one.
"""

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from enginebench.analysis.frame import Frame, frame_of
from enginebench.analysis.summary.loading import summaries_of
from enginebench.analysis.verdict.slo_verdict import Status
from enginebench.records.metrics import ATTAINMENT, BY_NAME, FAILURE_SHARE, GOODPUT, PERCENTILES, THROUGHPUT, Metric
from enginebench.records.request import UNJUDGED, RequestRecord
from enginebench.records.rules import is_failure, nearest_rank
from enginebench.records.slo import RunObjectives
from enginebench.records.view import Missing, StageView
from enginebench.settings.system import free_port
from grafana import load_promql
from loadtests.harness.live.buckets import GROWTH, edges_around
from loadtests.harness.live.live_json import LiveDocument, read_live
from loadtests.harness.live.live_text import slo_text
from loadtests.harness.live.metric_families import EXPORTED, PREFIX, name_of
from tests.support.dashboards import asked, filled_in
from tests.support.loadtests.locust_process import start
from tests.support.present import present
from tests.support.prometheus import prometheus, until
from tests.support.servers.scripted import Script, ScriptedServer

STAGES = ("4 users", "8 users")
CLASSES = "chat: weight=1 output=6 slo=ttft_p95=0.5; batch: weight=1 output=12"  # answers take 80 ms
CASES = {"met, one process": (1, 0.9), "missed, two workers": (2, 0.04)}  # processes, and seconds within which p90 is
BAD = "instance_engine:enginebench_load_bad_requests:ratio_rate5m"


@dataclass(frozen=True)
class Run:
    """A run that is over: its frame, its records, `live.json`, and a Prometheus that saw it."""

    frame: Frame
    records: list[RequestRecord]
    live: LiveDocument
    limit: float
    run_id: str
    workload: dict[str, Any]
    api: httpx.Client

    def number(self, stage: str, metric: str, statistic: str = "value") -> float | None:
        """In the frame; infinite if the percentile falls among failures."""
        table = self.frame.table.filter(stage=stage, metric=metric, statistic=statistic)
        row = table.filter(table["repeat"].is_not_null()).row(0, named=True)
        return math.inf if row["missing"] == Missing.FAILED.value else row["value"]

    def ask(self, expr: str, label: str = "stage") -> dict[str, float]:
        """Values by a label."""
        return {one["metric"].get(label, ""): float(one["value"][1]) for one in asked(self.api, None, expr)}

    def board(self, expr: str) -> str:
        """A query of the dashboards as Grafana sends it, over the whole run."""
        return filled_in(expr, shown_runs=self.run_id, engine=".+", model=".+", __rate_interval="2m")

    @property
    def views(self) -> Iterator[tuple[StageView, StageView]]:
        """Of each stage the live view and the frame's."""
        return zip(self.live.stages, self.frame.stages, strict=True)


@pytest.fixture(scope="module", params=CASES)
def run(
    request: pytest.FixtureRequest, program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    folder, port = tmp_path_factory.mktemp("agreement"), free_port()
    processes, limit = CASES[request.param]
    script = Script(ttft=0.03, tpot=0.01, tokens=6, statuses=[200] * 60 + [503, 200, 500, 200] * 2)
    options = ["--stages", "4,8", "--stage-seconds", "3", "--warm-up", "1", "--slo", f"e2e_p90={limit}"]
    options += ["--classes", CLASSES, "--exporter", f"127.0.0.1:{port}", "--exit-code-on-error", "0"]
    with prometheus(program("prometheus"), folder, load=[f"127.0.0.1:{port}"]) as api:
        until(lambda: asked(api, None, "up"), "Prometheus tries to scrape it")
        with ScriptedServer(script) as server:
            locust = start(server, folder, *options, processes=processes)  # it ends after one more scrape
            output, over = locust.wait(), time.time()
        assert locust.process.returncode == 0, output
        until(lambda: asked(api, None, f"timestamp({BAD}) > {over}"), "rules know it")
        frame = frame_of(summaries_of([str(locust.run)], folder))
        meta = locust.meta
        yield Run(frame, locust.records, read_live(locust.run), limit, meta.run_id, dict(meta.workload), api)


def test_counts_are_the_frames(run: Run) -> None:
    for live, final in run.views:
        assert live.outcomes == final.outcomes
        assert (live.key, live.load, live.start, live.end) == (final.key, final.load, final.start, final.end)
    assert sum(live.failed for live, _ in run.views) == 4


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("metric", EXPORTED, ids=lambda metric: metric.name)
def test_percentiles_are_the_frames_within_a_bucket(run: Run, metric: Any, stage: str) -> None:
    live = next(view for view in run.live.stages if view.label == stage)
    final = next(view for view in run.frame.stages if view.label == stage)
    assert (live.metrics[metric.name].n, live.metrics[metric.name].failed) == (
        final.metrics[metric.name].n,
        final.metrics[metric.name].failed,
    )
    name = f"{PREFIX}stage_{name_of(metric)}"
    gauges = run.ask(f'last_over_time({name}{{stage="{stage}"}}[5m])', "quantile")
    for statistic, q in PERCENTILES.items() if live.metrics[metric.name].n else ():
        exact, shown = run.number(stage, metric.name, statistic), live.estimate(metric.name, statistic)
        assert exact is not None
        if math.isinf(exact):
            assert (shown.missing, gauges[str(q)]) == (Missing.FAILED, math.inf)
        else:
            assert shown.value == pytest.approx(exact, rel=GROWTH - 1, abs=1e-6), statistic
            assert gauges[str(q)] == pytest.approx(exact, rel=GROWTH - 1, abs=1e-6), statistic


def test_quantities_are_the_frames(run: Run) -> None:
    for live, _ in run.views:
        for name in (THROUGHPUT, GOODPUT, ATTAINMENT, FAILURE_SHARE):
            assert live.value(name) == pytest.approx(run.number(live.label, name), rel=1e-9, abs=1e-12), name
    output = run.ask(run.board(load_promql.by_stage(load_promql.STAGE_OUTPUT, "stage")))
    assert output == {stage: pytest.approx(run.number(stage, THROUGHPUT)) for stage in STAGES}


def test_prometheus_counts_the_records(run: Run) -> None:
    """Over the whole run: what a recording rule says is exact, because all counters are scraped together from 0 on."""
    objectives = RunObjectives.from_workload(run.workload)
    judged = [record for record in run.records if record.outcome not in UNJUDGED]
    bad = sum(objectives.met_by(record) is not True for record in judged)
    failed = sum(is_failure(record.outcome) for record in judged)
    (ratio,) = run.ask(f"last_over_time({BAD}[1m])").values()
    assert ratio == pytest.approx(bad / len(judged), rel=1e-6)
    assert run.ask(run.board(load_promql.attainment())) == {"": pytest.approx(1 - bad / len(judged), rel=1e-6)}
    counted = run.ask(f"last_over_time({PREFIX}requests_total[5m])", "outcome")
    assert {outcome: count for outcome, count in counted.items() if count} == Counter(r.outcome for r in run.records)
    assert counted["http_error"] == counted["rejected"] == 2
    assert failed == 4
    good = sum(objectives.met_by(record) is True for record in run.records)
    tokens = sum(record.output_tokens or 0 for record in run.records)
    for name, total in (("good_requests_total", good), ("output_tokens_total", tokens)):
        assert run.ask(f"last_over_time({PREFIX}{name}[5m])") == {"": total}


@pytest.mark.parametrize("metric", EXPORTED, ids=lambda metric: metric.name)
def test_every_bucket_of_prometheus_has_the_records_in_it(run: Run, metric: Metric) -> None:
    """A failure is beyond every edge of what is judged over attempted requests."""
    buckets = run.ask(f"last_over_time({PREFIX}{name_of(metric)}_bucket[5m])", "le")
    expected = Counter[float]()
    edges = sorted(map(float, buckets))
    for record in run.records:
        value = metric.read(record)
        if is_failure(record.outcome) and metric.population == "attempted":
            value = math.inf
        if value is not None:
            expected.update(edges[bisect_left(edges, value) :])
    assert {float(edge): count for edge, count in buckets.items() if count} == expected
    assert metric.name != "e2e_user" or run.limit in edges, "so that the share within the objective is exact"


def test_the_last_scrape_sees_the_end(run: Run) -> None:
    (series,) = asked(run.api, None, f"last_over_time({PREFIX}run_info[5m])")
    told = [series["metric"][name] for name in ("run", "scenario", "engine")]
    assert told == [run.run_id, "concurrent", "scripted"]
    for name in ("in_flight", "users"):
        assert run.ask(f"last_over_time({PREFIX}{name}[5m])")[STAGES[-1]] == 0
    index = run.ask(f"last_over_time({PREFIX}stage_index[5m])")
    assert index.pop(STAGES[-1]) == 1
    assert index in ({STAGES[0]: 0}, {}), "nothing was scraped of a stage that a slow machine hurried through"


@pytest.mark.parametrize("q", [0.5, 0.9])
@pytest.mark.parametrize("name", ["ttft_user", "tpot", "e2e_user"])
def test_a_percentile_of_prometheus_is_in_the_exported_bucket_of_the_exact_one(run: Run, name: str, q: float) -> None:
    values = [math.inf if is_failure(record.outcome) else BY_NAME[name].read(record) for record in run.records]
    known = sorted(value for value in values if value is not None)
    exact = known[nearest_rank(len(known), q) - 1]
    limits = {"e2e_user": [run.limit], "ttft_user": [0.5]}
    edges = edges_around(limits.get(name, []))
    place = bisect_left(edges, exact)
    (found,) = run.ask(run.board(load_promql.quantile(q, f"{PREFIX}{name}_seconds"))).values()
    assert edges[place - 1] <= found <= edges[place]


def test_every_surface_gives_the_same_verdict(run: Run) -> None:
    """As measured: p90 is within the limit or not. A tenth of the requests may be bad."""
    (engine,) = run.frame.names
    e2e, limit = f"{PREFIX}stage_e2e_user_seconds", f"{PREFIX}objective_seconds"
    within = f'last_over_time({e2e}{{quantile="0.9"}}[5m]) <= bool on (run) group_left last_over_time({limit}[5m])'
    gauges = run.ask(within)
    (bad,) = run.ask(f"last_over_time({BAD}[1m])").values()
    for stage in STAGES:
        verdict = present(run.frame.verdict(engine, stage))
        assert verdict.status is (Status.MET if run.limit > 0.5 else Status.MISSED)
        met = verdict.status is Status.MET
        live = present(next(view for view in run.live.stages if view.label == stage).value("e2e_user", "p90"))
        assert (live <= run.limit, gauges[stage] == 1, bad <= 0.1) == (met, met, met)
        assert slo_text(next(view for view in run.live.stages if view.label == stage)) == verdict.status.value
