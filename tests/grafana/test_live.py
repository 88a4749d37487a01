"""A real Prometheus scrapes a real server under real load, and answers every question that the dashboards ask.

There is the fake engine behind the whole server, a load test by Locust that goes well, and pages of what this machine
does not have: a server with a GPU, a second load test, and other people's servers by the names of the rules' own tests.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from enginebench.settings.system import free_port
from grafana import load_promql
from tests.support.dashboards import DASHBOARDS, VARIABLES, asked, filled_in
from tests.support.loadtests.load_exporter import ScriptedRun, exported
from tests.support.loadtests.locust_process import start
from tests.support.prometheus import SeriesOfRuleTests, answers, prometheus, until
from tests.support.servers.gpu_server import GPU_ENGINE, gpu_server
from tests.support.servers.scripted import Script, ScriptedServer
from tests.support.servers.served import served

OTHERWISE = "vector(1) unless "  # a sentence for when the panel's other queries have no answer
QUERIES = [
    query
    for name, board in DASHBOARDS.items()
    for panel in board["panels"]
    if panel["type"] != "row" and name != "compare"  # which needs two runs: test_compare.py
    for query in panel["targets"]
    if not query["expr"].startswith(OTHERWISE)
]
ANNOTATIONS = {
    mark["name"]: mark["expr"] for board in DASHBOARDS.values() for mark in board["annotations"].get("list", ())
}

# Absent, not zero, without a GPU or where an engine does not tell: these are asked of the server with a GPU.
ONLY_OF_USERS = re.compile(r"enginebench_load_users\b(?!\[)")  # a closed loop's, now: the real run's loop is open
ONLY_WITH_A_GPU = re.compile(r"enginebench_(gpu_|kv_cache_usage_ratio)")

STAGE = {"stage_seconds": "20", "stage_ago": "1"}
GPU_HOST = "gpu:8000"  # another host than that of the servers, whose tokens its energy does not make
SCRAPES, SCRAPED_IN = 10, "20s"  # one a second, of which a busy machine misses some
USERS, TOKENS = 4, 16
SLO = "ttft_p95=5,tpot_p95=5,e2e_p95=20"
RUNS = {"a": "20261122-100000-real-aaaa", "b": "20261122-100100-other-bbbb"}
ENGINES = [f"engines/{name}.yml" for name in ("vllm", "sglang", "tgi", "tensorrt_llm", "llamacpp")]


@dataclass(frozen=True)
class Watched:
    """A Prometheus that saw all targets under load, until `at`."""

    api: httpx.Client
    at: float
    server: str
    gpu_server: str

    def ask(self, expr: str) -> list[dict[str, Any]]:
        return asked(self.api, self.at, expr)

    def value(self, expr: str) -> float:
        (series,) = self.ask(expr)
        return float(series["value"][1])

    def fill_in(self, expr: str, *, on_gpu: bool = False, **chosen: str) -> str:
        """What Grafana would send while one server, and the runs of all engines, are chosen."""
        engine, instance = (GPU_ENGINE, self.gpu_server) if on_gpu else ("(fake|scripted)", self.server)
        values = {"engine": engine, "instance": instance.replace(".", r"\\."), "shown_runs": RUNS["a"], **STAGE}
        return filled_in(expr, **(values | {"__rate_interval": SCRAPED_IN} | chosen))


@pytest.fixture(scope="module")
def watched(program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    found, folder, now = program("prometheus"), tmp_path_factory.mktemp("prometheus") / "here", time.time()
    with ExitStack() as stack:
        server, on_gpu = stack.enter_context(_server()), stack.enter_context(gpu_server())
        run_a = stack.enter_context(_load_test(tmp_path_factory.mktemp("run")))
        run_b = stack.enter_context(exported(ScriptedRun(RUNS["b"], GPU_ENGINE, now - 20)))
        others = stack.enter_context(exported(SeriesOfRuleTests(*ENGINES)))
        dcgm = stack.enter_context(exported(SeriesOfRuleTests("engines/dcgm.yml")))
        folder.mkdir()
        targets = {"servers": [server, on_gpu], "load": [run_a, run_b], "engines": [others], "gpus": [dcgm]}
        api = stack.enter_context(prometheus(found, folder, {on_gpu: GPU_HOST}, **targets))
        scraped = f"sum_over_time(up[{SCRAPED_IN}]) >= {SCRAPES}"
        exporters = sum(len(addresses) for addresses in targets.values())
        until(lambda: len(asked(api, None, scraped)) >= exporters, "Prometheus has scraped them all", 180)
        yield Watched(api, time.time(), server, GPU_HOST)


@contextmanager
def _load_test(folder: Path) -> Iterator[str]:
    """A real load test, in an open loop against a server that answers at once; gives its exporter's `host:port`."""
    address = f"127.0.0.1:{free_port()}"
    options = ["--rate", "8", "--stage-seconds", "120", "--warm-up", "1", "--slo", SLO, "--run-id", RUNS["a"]]
    with ScriptedServer(Script(ttft=0.02, tpot=0.005, tokens=TOKENS)) as server:
        locust = start(server, folder, *options, "--exporter", address)
        try:
            with httpx.Client(base_url=f"http://{address}") as client:
                until(lambda: answers(client, "/metrics"), "the load test exports")
                until(lambda: 'outcome="ok"' in client.get("/metrics").text, "a request has ended")
            yield address
        finally:
            locust.process.kill()
            locust.process.wait(30)


@contextmanager
def _server() -> Iterator[str]:
    """The fake engine behind the whole server, which several users ask; gives its `host:port`."""
    over = Event()
    with served("ttft=0.1", "tpot=0.004") as server, ThreadPoolExecutor(USERS) as pool:

        def user() -> None:
            while not over.is_set():
                server.ask(TOKENS)

        for _ in range(USERS):
            pool.submit(user)
        try:
            yield server.url.removeprefix("http://")
        finally:
            over.set()


def test_every_query_of_every_panel_is_answered_with_data(watched: Watched) -> None:
    assert len(QUERIES) > 80
    for query in QUERIES:
        of_users = bool(ONLY_OF_USERS.search(query["expr"]))
        on_gpu = of_users or bool(ONLY_WITH_A_GPU.search(query["expr"]))
        expr = watched.fill_in(query["expr"], on_gpu=on_gpu, shown_runs=RUNS["b" if of_users else "a"])
        series = watched.ask(expr)
        assert series, expr
        assert any(math.isfinite(float(one["value"][1])) for one in series), f"{expr}: {series}"
        named = set(re.findall(r"\{\{(\w+)\}\}", query["legendFormat"]))
        assert all(named <= set(one["metric"]) for one in series), f"{query['legendFormat']}: {series}"


def test_without_a_gpu_its_panels_are_empty_and_not_zero(watched: Watched) -> None:
    queries = [
        query["expr"]
        for board in DASHBOARDS.values()
        for panel in board["panels"]
        for query in panel.get("targets", ())
    ]
    about_gpus = [expr for expr in queries if ONLY_WITH_A_GPU.search(expr)]
    assert len(about_gpus) > 20
    answered = [expr for expr in about_gpus if watched.ask(watched.fill_in(expr))]
    (sentence,) = (panel for panel in DASHBOARDS["gpu"]["panels"] if panel["title"] == "What is seen")
    assert answered == [sentence["targets"][-1]["expr"]], "one panel says why, the others have a dash"
    assert sentence["targets"][-1]["legendFormat"].startswith("No GPU is reported: ")


def test_a_mean_is_that_of_the_requests_that_did_not_fail(watched: Watched) -> None:
    assert watched.value(
        watched.fill_in(load_promql.mean(load_promql.TTFT_USER, ""), engine=".+", shown_runs=RUNS["b"])
    ) == pytest.approx(0.2)


def test_a_late_load_generator_is_not_forgotten_in_the_next_stage(watched: Watched) -> None:
    (tile,) = (panel for panel in DASHBOARDS["load-test"]["panels"] if panel["title"] == "Load generator")
    assert watched.value(watched.fill_in(tile["targets"][0]["expr"], shown_runs=RUNS["b"])) == 2


def test_a_run_is_shown_alone(watched: Watched) -> None:
    attained = next(panel for panel in DASHBOARDS["load-test"]["panels"] if panel["title"] == "Attainment")
    (one,) = watched.ask(watched.fill_in(attained["targets"][0]["expr"], engine=".+"))
    assert one["metric"]["engine"] == "scripted"
    assert float(one["value"][1]) == 1
    assert len(watched.ask(watched.fill_in(attained["targets"][0]["expr"], engine=".+", shown_runs=".+"))) == 2


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        pytest.param("Runs", 1, id="the start of the run is marked"),
        pytest.param("Stages", 1, id="the newest stage is marked"),
        pytest.param("Engine restarts", 0, id="no engine was restarted"),
    ],
)
def test_annotations_mark_what_happened(watched: Watched, mark: str, expected: int) -> None:
    expr = watched.fill_in(ANNOTATIONS[mark].replace("offset 15s", "offset 5s"))
    assert len(watched.ask(f"max_over_time(({expr})[2m:1s])")) == expected


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        pytest.param("engine", {"fake", GPU_ENGINE, "vllm", "sglang", "tgi"}, id="every engine can be chosen"),
        pytest.param("instance", {"server", "gpu_server"}, id="every server can be chosen"),
        pytest.param("slo_ttft", {"1.0"}, id="the first TTFT threshold is an edge of a bucket"),
        pytest.param("slo_e2e", {"10.0"}, id="the first E2E threshold is an edge of a bucket"),
    ],
)
def test_every_variable_offers_choices(watched: Watched, variable: str, expected: set[str]) -> None:
    asked = re.fullmatch(r"label_values\((.+), (\w+)\)", VARIABLES[variable]["query"]["query"])
    assert asked is not None
    series = re.sub(r"\$\w+", ".+", asked[1])
    answer = watched.api.get(f"/api/v1/label/{asked[2]}/values", params={"match[]": series}).json()["data"]
    allowed = re.compile(VARIABLES[variable].get("regex", "").strip("/") or ".*")
    choices = {choice for choice in answer if allowed.fullmatch(choice)}
    assert {str(getattr(watched, name, name)) for name in expected} <= choices
    if variable.startswith("slo_"):
        assert all(float(choice) > 0 and math.isfinite(float(choice)) for choice in choices)


def test_every_rule_is_healthy_and_every_record_has_data(watched: Watched) -> None:
    groups = watched.api.get("/api/v1/rules").json()["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert [(rule["name"], rule["lastError"]) for rule in rules if rule["health"] != "ok"] == []
    records = {
        (group["name"], rule["name"]) for group in groups for rule in group["rules"] if rule["type"] == "recording"
    }
    assert len(records) > 80
    assert [record for record in records if not watched.ask(record[1])] == []
