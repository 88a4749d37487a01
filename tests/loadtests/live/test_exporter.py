"""The exporter of a real run: merged over four workers, read by a real Prometheus, against the records."""

from __future__ import annotations

import contextlib
import math
import socket
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import gevent
import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from enginebench.records.metrics import BY_NAME, Metric
from enginebench.records.request import RequestRecord
from enginebench.records.run import RunMeta
from enginebench.settings.system import free_port
from loadtests.harness.live.buckets import edges_around
from loadtests.harness.live.counts import OUTCOMES
from loadtests.harness.live.exporter import SLOW_SCRAPE, MetricsServer
from loadtests.harness.live.prometheus import EXPORTED, Family, name_of
from tests.support.loadtests.locust_process import Locust, listens, start
from tests.support.prometheus import prometheus, until
from tests.support.servers.scripted import Script, ScriptedServer

SLO = "ttft_p95=0.03,e2e_p99=5"
LIMIT = 0.03
PREFIX = "enginebench_load_"


@dataclass(frozen=True)
class Exported:
    """A run that is over: what Prometheus says of it, and its records."""

    api: httpx.Client
    records: list[RequestRecord]
    meta: RunMeta

    def ask(self, expr: str) -> dict[tuple[str, ...], float]:
        """Values of the last minutes' series by the values of their labels, in the labels' order."""
        query = f"last_over_time({expr}[5m])"
        answer = self.api.get("/api/v1/query", params={"query": query}).json()
        assert answer["status"] == "success", answer
        return {
            tuple(value for name, value in sorted(one["metric"].items()) if name in {"stage", "outcome", "le"}): float(
                one["value"][1]
            )
            for one in answer["data"]["result"]
        }


@contextmanager
def on_its_page(
    server: ScriptedServer, folder: Path, *options: str, processes: int
) -> Iterator[tuple[Locust, httpx.Client]]:
    """A run that Locust's page shows, so that its metrics are served after its end, too; and a client for that page."""
    port = free_port()
    page = ["--web-host", "127.0.0.1", "--web-port", str(port), "--autostart"]
    locust = start(server, folder, *options, *page, headless=False, processes=processes)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            yield locust, client
    finally:
        locust.process.terminate()
        locust.wait()


def stopped(page: httpx.Client) -> bool:
    try:
        return bool(page.get("/stats/requests").json()["state"] == "stopped")
    except httpx.TransportError:  # not served yet
        return False


@pytest.fixture(scope="module")
def exported(program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    folder, port = tmp_path_factory.mktemp("exporter"), free_port()
    with (
        prometheus(program("prometheus"), folder, load=[f"127.0.0.1:{port}"]) as api,
        ScriptedServer(Script(ttft=0.02, tpot=0.02, tokens=6, statuses=[500, 503])) as server,
    ):
        options = ["--stages", "8,4", "--stage-seconds", "3", "--warm-up", "0.5", "--slo", SLO]
        options += ["--exporter", f"127.0.0.1:{port}", "--label", "mine"]
        with on_its_page(server, folder, *options, processes=4) as (locust, page):
            locust.wait_until(lambda: stopped(page))
            over = time.time()
            until(lambda: last_scrape(api) > over, "Prometheus has scraped the run that is over")
        yield Exported(api, locust.records, locust.meta)


def last_scrape(api: httpx.Client) -> float:
    """In Unix seconds."""
    answer = api.get("/api/v1/query", params={"query": f"timestamp({PREFIX}run_info)"}).json()
    return max((float(series["value"][1]) for series in answer["data"]["result"]), default=0.0)


def test_counts_equal_the_records(exported: Exported) -> None:
    outcomes = Counter((record.outcome,) for record in exported.records)
    assert outcomes["http_error",] == outcomes["rejected",] == 1
    found = {key: count for key, count in exported.ask(f"{PREFIX}requests_total").items() if count}
    assert found == outcomes
    tokens = sum(record.output_tokens or 0 for record in exported.records)
    assert exported.ask(f"{PREFIX}output_tokens_total") == {(): tokens}
    assert exported.ask(f"{PREFIX}good_requests_total") == {(): sum(map(meets, exported.records))}


def meets(record: RequestRecord) -> bool:
    """The objectives of `SLO`, whose latencies run from the instant at which a request was due."""
    ttft, e2e = (BY_NAME[name].read(record) for name in ("ttft_user", "e2e_user"))
    return record.outcome == "ok" and ttft is not None and e2e is not None and ttft <= LIMIT and e2e <= 5


@pytest.mark.parametrize("metric", EXPORTED, ids=lambda metric: metric.name)
def test_every_bucket_has_the_records_in_it(exported: Exported, metric: Metric) -> None:
    """Recomputed from the records: a failure is beyond every edge of what is judged over attempted requests."""
    expected = Counter[str]()
    buckets = exported.ask(f"{PREFIX}{name_of(metric)}_bucket")
    edges = sorted({float(le) for (le,) in buckets})
    for record in exported.records:
        value = metric.read(record)
        if record.outcome not in {"ok", "cut_off"} and metric.population == "attempted":
            value = math.inf
        if value is not None:
            for edge in edges[bisect_left(edges, value) :]:
                expected[f"{edge:g}"] += 1
    assert {f"{float(le):g}": count for (le,), count in buckets.items() if count} == expected


def test_the_percentile_is_within_a_bucket_of_the_exact_one(exported: Exported) -> None:
    answered = [record for record in exported.records if record.outcome == "ok"]
    exact = sorted(value for record in answered if (value := BY_NAME["ttft_user"].read(record)) is not None)
    q = 0.9  # p99 falls among the two failures
    expr = f"sum by (le) (last_over_time({PREFIX}ttft_user_seconds_bucket[5m]))"
    answer = exported.api.get("/api/v1/query", params={"query": f"histogram_quantile({q}, {expr})"}).json()
    found = float(answer["data"]["result"][0]["value"][1])
    truth = exact[math.ceil(q * len(exported.records)) - 1]
    edges = edges_around([LIMIT])
    place = bisect_left(edges, truth)
    assert edges[place - 1] <= found <= edges[place]


def test_the_share_within_the_objective_is_exact(exported: Exported) -> None:
    within = sum(
        record.outcome == "ok" and (BY_NAME["ttft_user"].read(record) or math.inf) <= LIMIT
        for record in exported.records
    )
    buckets = exported.ask(f"{PREFIX}ttft_user_seconds_bucket")
    assert sum(count for (le,), count in buckets.items() if float(le) == LIMIT) == within


def test_a_scrape_after_the_run_sees_its_end(exported: Exported) -> None:
    answer = exported.api.get("/api/v1/query", params={"query": f"last_over_time({PREFIX}run_info[5m])"}).json()
    (series,) = answer["data"]["result"]
    metric = series["metric"]
    assert (metric["run"], metric["scenario"], metric["engine"]) == (exported.meta.run_id, "concurrent", "mine")
    assert exported.ask(f"{PREFIX}in_flight")["4 users",] == 0
    assert exported.ask(f"{PREFIX}users")["4 users",] == 0
    index = exported.ask(f"{PREFIX}stage_index")
    assert index.pop(("4 users",)) == 1
    assert index in ({("8 users",): 0}, {}), "nothing was scraped of a stage that a slow machine hurried through"


def test_a_single_process_is_on_its_page_from_its_start_and_counts_from_zero_on(tmp_path: Path) -> None:
    port = free_port()
    with ScriptedServer(Script(ttft=3.0)) as server:
        locust = start(server, tmp_path, "--stages", "2", "--stage-seconds", "1", "--exporter", f"127.0.0.1:{port}")
        locust.wait_until(lambda: locust.stage is not None)
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
        assert httpx.get(f"http://127.0.0.1:{port}/", trust_env=False).status_code == 404
        locust.wait()
    assert locust.process.returncode == 0
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(page.text)}
    assert {f"{PREFIX}run_info", f"{PREFIX}in_flight", f"{PREFIX}users"} <= families.keys()
    samples = [sample for family in families.values() for sample in family.samples]
    counts = [
        sample.value
        for sample in samples
        if sample.name in {f"{PREFIX}requests_total", f"{PREFIX}e2e_user_seconds_count"}
    ]
    assert counts == [0.0] * (len(OUTCOMES) + 1)


def test_a_stopped_run_is_counted_to_its_end(tmp_path: Path) -> None:
    """Requests that were cut off among them."""
    port = free_port()
    with ScriptedServer(Script(ttft=0.5)) as server:
        options = ["--stages", "4", "--stage-seconds", "60", "--exporter", f"127.0.0.1:{port}"]
        with on_its_page(server, tmp_path, *options, processes=2) as (locust, page):
            locust.wait_until(lambda: locust.stage is not None and len(locust.records) > 8)
            page.post("/stop").raise_for_status()
            locust.wait_until(lambda: stopped(page))
            metrics = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    counted = {
        sample.labels["outcome"]: sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.name == f"{PREFIX}requests_total" and sample.value
    }
    assert counted == Counter(record.outcome for record in locust.records)
    assert "cut_off" in counted


def test_a_run_without_its_page_ends_after_one_more_scrape(tmp_path: Path) -> None:
    """Where it is being scraped, so that how it ended is seen; else it ends at once."""
    port, page = free_port(), ""
    with ScriptedServer(Script(ttft=0.02, tpot=0.005, tokens=4)) as server:
        options = ["--stages", "2", "--stage-seconds", "2", "--warm-up", "0.5", "--exporter", f"127.0.0.1:{port}"]
        locust = start(server, tmp_path, *options)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            while locust.process.poll() is None:
                with contextlib.suppress(httpx.TransportError):
                    page = client.get("/metrics").text
                time.sleep(0.2)
        locust.wait()
    counted = {
        sample.labels["outcome"]: sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == f"{PREFIX}requests_total" and sample.value
    }
    assert counted == Counter(record.outcome for record in locust.records)


@dataclass
class Scraped:
    """A page of one family, which says which scrape it is; the answer takes `seconds`, in which others are served."""

    seconds: float = 0.0
    begun: int = 0

    def families(self) -> Iterator[Family]:
        self.begun += 1
        family = Family("scrape", "Which scrape it is.", "gauge")
        family.add_sample("scrape", {}, self.begun)
        yield family
        gevent.sleep(self.seconds)


@pytest.mark.parametrize(
    ("pauses", "last"),
    [
        pytest.param([0.2, 0.0], 3, id="the third begins after the end"),
        pytest.param([0.2, 1.2], 3, id="it is a second late"),
    ],
)
def test_the_end_waits_for_a_scrape_that_begins_after_it(pauses: list[float], last: int) -> None:
    page, port = Scraped(), free_port()
    server = MetricsServer("127.0.0.1", port, page.families)
    answers: list[str] = []

    def scrape() -> None:
        answers.append(httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text)

    pool = gevent.get_hub().threadpool
    pool.apply(scrape)
    gevent.sleep(pauses[0])
    pool.apply(scrape)
    late = gevent.spawn_later(pauses[1], pool.apply, scrape)
    server.wait_for_scrape(30.0)
    late.join()
    server.close()
    assert page.begun == last == len(answers)
    assert answers[-1].splitlines()[-1] == f"scrape {last}.0"


def test_a_scrape_that_began_before_the_end_is_not_the_last_one() -> None:
    page, port = Scraped(seconds=0.4), free_port()
    server = MetricsServer("127.0.0.1", port, page.families)

    def scrape() -> str:
        return httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text

    pool = gevent.get_hub().threadpool
    pool.apply(scrape)
    running = pool.spawn(scrape)
    while page.begun < 2:
        gevent.sleep(0.01)
    after = gevent.spawn_later(1.0, pool.apply, scrape)  # when the running one has been answered
    began = time.monotonic()
    server.wait_for_scrape(30.0)
    assert page.begun == 3
    assert time.monotonic() - began >= 1.0
    running.get()
    after.join()
    server.close()


def test_where_nobody_scrapes_any_more_the_end_waits_for_two_intervals() -> None:
    port = free_port()
    server = MetricsServer("127.0.0.1", port, Scraped().families)
    for _ in range(2):
        gevent.get_hub().threadpool.apply(httpx.get, (f"http://127.0.0.1:{port}/metrics",), {"trust_env": False})
    began = time.monotonic()
    server.wait_for_scrape(30.0)
    assert SLOW_SCRAPE <= time.monotonic() - began < 20.0
    server.close()


def test_an_address_in_use_is_a_mistake_where_it_was_asked_for(tmp_path: Path) -> None:
    with socket.socket() as taken, ScriptedServer() as server:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        locust = start(server, tmp_path, "--stages", "1", "--stage-seconds", "1", "--exporter", address)
        said = locust.wait()
    assert locust.process.returncode == 2
    assert f"cannot be served on {address}" in said
    assert "Traceback" not in said


def test_where_the_default_port_is_taken_the_next_one_is_used_and_said(tmp_path: Path) -> None:
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", 9646)) as taken, ScriptedServer() as server:
        assert taken.getsockname()[1] == 9646
        locust = start(server, tmp_path, "--stages", "1", "--stage-seconds", "1")
        said = locust.wait()
        assert locust.process.returncode == 0
        assert "Port 9646 is taken: this load test's metrics are on port 96" in said or "are taken" in said


def test_a_page_that_stays_open_gives_the_port_back_after_its_run(tmp_path: Path) -> None:
    port = free_port()
    with ScriptedServer() as server:
        options = ["--stages", "1", "--stage-seconds", "1", "--exporter", f"127.0.0.1:{port}"]
        with on_its_page(server, tmp_path, *options, processes=1) as (locust, page):
            locust.wait_until(lambda: stopped(page))
            assert listens(port), "for one more scrape"
            locust.wait_until(lambda: not listens(port))
            assert stopped(page)
