"""Every tile of every board after two real runs, one clean and one failing, against their reports.

Each run has a real server, which ends with its run. A GPU is scripted. Nothing of what tiles say may depend on when the
page is opened: they are asked a moment after the runs, and an hour later.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.view import StageView
from enginebench.settings.system import free_port
from grafana.load_promql import RUN_START
from grafana.palette import RED
from servers.prometheus_metrics import TTFT_BUCKETS
from tests.support.dashboards import DASHBOARDS, asked, chosen_at_first, colour, filled_in
from tests.support.loadtests.locust_process import start
from tests.support.prometheus import prometheus, until
from tests.support.servers.gpu_server import GPU_JOULES_PER_TOKEN, gpu_server
from tests.support.servers.served import served

TOKENS, PRICE = 16, 2.5
# Slots, and places in the queue: the 6 users of the failing run find two of them taken.
SERVERS = {"clean": ["concurrency=8"], "failing": ["concurrency=2"]}
QUEUE = {"clean": "8", "failing": "2"}
STAGES = {"clean": "2,4", "failing": "2,6"}
DELAYS = ("ttft=0.12", "tpot=0.01")
SECONDS = 12
LATER = {"a moment after": 0, "an hour after": 3600}
GPU_HOST = "gpu:8000"  # another host than that of the servers, whose tokens its energy does not make
RANGE = 2 * 3600  # seconds of the pages

TILES = {
    (name, panel["title"]): panel
    for name, board in DASHBOARDS.items()
    for panel in board["panels"]
    if panel["type"] == "stat" and name != "compare" and panel["options"]["textMode"] != "name"
}


@dataclass(frozen=True)
class Recorded:
    """A Prometheus that saw both runs and their servers, until both servers were gone; what the records say."""

    api: httpx.Client
    at: float
    runs: dict[str, RunSummary]
    servers: dict[str, str]

    def tile(self, label: str, board: str, title: str, later: int = 0) -> list[float]:
        """Its values on a page that shows the run with this label."""
        at = self.at + later
        values = chosen_at_first(self.api, DASHBOARDS[board], at, RANGE, run=self.runs[label].run_id)
        engine = "fake" if board in {"engine", "capacity"} else ".+"
        values |= {"engine": engine, "instance": self.servers[label] if engine == "fake" else GPU_HOST}
        (target,) = TILES[board, title]["targets"]
        return [float(series["value"][1]) for series in asked(self.api, at, filled_in(target["expr"], **values))]


def record(program: str, folder: Path, stack: ExitStack) -> Recorded:
    (folder / "prometheus").mkdir()
    ports = {label: (free_port(), free_port()) for label in SERVERS}
    gpus = stack.enter_context(gpu_server())
    api = stack.enter_context(
        prometheus(
            program,
            folder / "prometheus",
            {gpus: GPU_HOST},
            servers=[*(f"127.0.0.1:{port}" for port, _ in ports.values()), gpus],
            load=[f"127.0.0.1:{port}" for _, port in ports.values()],
        )
    )
    locusts = {}
    with ExitStack() as servers_of_runs:
        for label, (port, exporter) in ports.items():
            options = ["--stages", STAGES[label], "--stage-seconds", str(SECONDS), "--warm-up", "1", "--label", label]
            options += ["--output-tokens", str(TOKENS), "--slo", "ttft_p95=1,e2e_p95=10", "--exit-code-on-error", "0"]
            arguments = ("--port", str(port), "--queue-size", QUEUE[label])
            server = servers_of_runs.enter_context(served(*SERVERS[label], *DELAYS, arguments=arguments))
            locusts[label] = start(server, folder / label, *options, "--exporter", f"127.0.0.1:{exporter}")
        for label in SERVERS:
            until(partial(asked, api, None, f'{RUN_START}{{engine="{label}"}}'), "the run has been scraped")
        for locust in locusts.values():
            assert "Traceback" not in locust.wait()
    until(
        lambda: len(asked(api, None, 'up{job="enginebench"} == 0')) == len(SERVERS), "the servers are seen to be gone"
    )
    runs = {label: summarise(load_run(locust.run)) for label, locust in locusts.items()}
    servers = {label: f"127.0.0.1:{port}" for label, (port, _) in ports.items()}
    return Recorded(api, time.time(), runs, servers)


@pytest.fixture(scope="module")
def recorded(program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    with ExitStack() as stack:
        yield record(program("prometheus"), tmp_path_factory.mktemp("tiles"), stack)


Number = Callable[[StageView], Any]


def _share_failed(view: StageView) -> float:
    return view.failed / view.requests


def _rate(view: StageView) -> float:
    return view.requests / (view.end - view.start)


def _number(name: str, statistic: str = "value") -> Number:
    return lambda view: view.value(name, statistic)


def _cost(view: StageView) -> float:
    return PRICE / (view.value("throughput") or 0) / 3600 * 1e6


def _bucket(view: StageView) -> Any:
    """The server's buckets around the p99 of the requests that were answered; from their median on, because a client on
    a busy machine reads late."""
    distribution = view.metrics["ttft"]
    median, p99 = (
        (distribution.answered or {}).get(statistic, view.value("ttft", statistic)) for statistic in ("p50", "p99")
    )
    assert median is not None
    assert p99 is not None
    low, high = TTFT_BUCKETS[bisect_left(TTFT_BUCKETS, median) - 2], TTFT_BUCKETS[bisect_left(TTFT_BUCKETS, p99) + 1]
    return pytest.approx((low + high) / 2, abs=(high - low) / 2)


def near(number: Number, relative: float = 0.0, absolute: float = 1e-9) -> Number:
    return lambda view: pytest.approx(number(view), rel=relative, abs=absolute)


# What a tile says about the last stage, by the report's view of it. Servers are measured between scrapes of the window.
EXPECTED: dict[tuple[str, str], Number] = {
    ("load-test", "Load"): lambda view: view.load,
    ("load-test", "Output"): near(_number("throughput")),
    ("load-test", "TTFT (user) p99"): near(_number("ttft_user", "p99"), 0.02),
    ("load-test", "TPOT p99"): near(_number("tpot", "p99"), 0.02),
    ("load-test", "Attainment"): near(_number("attainment")),
    ("load-test", "Failed"): near(_number("failure_share")),
    ("engine", "Requests"): near(_rate, 0.15),
    ("engine", "Output"): near(_number("throughput"), 0.1),
    ("engine", "Longest queue"): lambda view: 2 if view.load == 6 else 0,
    ("engine", "TTFT p99"): _bucket,
    ("engine", "TTFT objective met"): near(lambda view: 1 - _share_failed(view), absolute=0.05),
    ("engine", "E2E objective met"): near(lambda view: 1 - _share_failed(view), absolute=0.05),
    ("engine", "Failed or cancelled"): near(_share_failed, absolute=0.05),
    ("capacity", "Load"): near(_rate, 0.15),
    ("capacity", "Attainment"): near(lambda view: 1 - _share_failed(view), absolute=0.05),
    ("capacity", "Cost per 1M tokens"): near(_cost, 0.1),
    ("gpu", "Utilisation"): near(lambda view: 0.97),
    ("gpu", "Highest temperature"): lambda view: 64,
    ("gpu", "Throttled"): lambda view: 0,
    ("gpu", "Energy per token"): near(lambda view: GPU_JOULES_PER_TOKEN, 0.02),
}
NOW = {("load-test", "In flight"), ("load-test", "Load generator"), ("engine", "Engine")}  # asked below


def test_every_tile_is_expected_to_say_something() -> None:
    assert set(TILES) == set(EXPECTED) | NOW


@pytest.mark.parametrize("later", LATER.values(), ids=LATER.keys())
@pytest.mark.parametrize("label", SERVERS)
@pytest.mark.parametrize("tile", EXPECTED, ids=" ".join)
def test_a_tile_says_what_the_report_says(recorded: Recorded, tile: tuple[str, str], label: str, later: int) -> None:
    assert recorded.tile(label, *tile, later) == [EXPECTED[tile](recorded.runs[label].stages[-1])]


@pytest.mark.parametrize("label", SERVERS)
def test_a_failed_run_is_red_and_a_clean_one_is_not(recorded: Recorded, label: str) -> None:
    colours = {
        tile: colour(TILES[tile], *recorded.tile(label, *tile))
        for tile in EXPECTED
        if RED in {step["color"] for step in TILES[tile]["fieldConfig"]["defaults"]["thresholds"]["steps"]}
    }
    red = {tile for tile, name in colours.items() if name == RED}
    failed = {
        ("load-test", "TTFT (user) p99"),
        ("load-test", "TPOT p99"),
        ("load-test", "Attainment"),
        ("load-test", "Failed"),
        ("engine", "TTFT objective met"),
        ("engine", "E2E objective met"),
        ("engine", "Failed or cancelled"),
        ("capacity", "Attainment"),
    }
    assert red == (set() if label == "clean" else failed)


def test_a_run_that_is_over_has_nothing_in_flight(recorded: Recorded) -> None:
    assert recorded.tile("clean", "load-test", "In flight") == []


@pytest.mark.parametrize("label", SERVERS)
def test_the_load_generator_is_judged_over_all_stages(recorded: Recorded, label: str) -> None:
    """Reports know more causes, such as a busy processor."""
    rank = {"note": 1, "warn": 2, "invalid": 3}
    findings = [finding for view in recorded.runs[label].stages for finding in view.findings]
    worst = max((rank[one.severity] for one in findings if one.kind == "load_generator_late"), default=0)
    (value,) = recorded.tile(label, "load-test", "Load generator")
    assert value <= worst


def test_a_dead_server_is_red_and_is_forgotten(recorded: Recorded) -> None:
    (value,) = recorded.tile("failing", "engine", "Engine")
    assert (value, colour(TILES["engine", "Engine"], value)) == (-1, RED)
    assert recorded.tile("failing", "engine", "Engine", later=3600) == []


def test_the_link_sets_the_time_range_of_the_run(recorded: Recorded) -> None:
    for label, run in recorded.runs.items():
        values = chosen_at_first(recorded.api, DASHBOARDS["load-test"], recorded.at, RANGE, run=run.run_id)
        (start,) = asked(recorded.api, recorded.at, f'last_over_time({RUN_START}{{engine="{label}"}}[1h])')
        begin, end = int(values["run_from"]) / 1e3, int(values["run_to"]) / 1e3
        assert begin == pytest.approx(float(start["value"][1]), abs=0.001)
        assert end - begin == pytest.approx(run.stages[-1].end, abs=0.01)
