"""`plan --check`: a real Prometheus that scraped a real server under load, against what was predicted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from analysis.plan.evidence.check import Compared
from analysis.plan.evidence.prometheus import Histogram
from analysis.plan.simulation.outcome import Band
from enginebench import app
from loadtests.harness.run.host import free_port
from tests.support.prometheus import prometheus
from tests.support.servers.served import served, until
from validation.plan.batching_server import Asked, BatchingServer, rates, write_run

LAW = BatchingServer(base=0.02, per_running=0.002, per_token=0.0, slots=8, jitter=0.02)
ALIKE = Asked(prompt=(20, 20), output=(10, 10))
REQUESTS, SPAN = 40, 30


@dataclass(frozen=True)
class Production:
    url: str  # of Prometheus
    end: str
    ttft_mean: float  # by the server's own counters
    e2e_mean: float


@pytest.fixture(scope="module")
def production(program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    """Forty requests of 20 tokens one after the other, scraped before and after; one server with two engines."""
    with ExitStack() as stack:
        options = ("step=0.02", "step_per_running=0.002", "concurrency=8", "replicas=2")
        server = stack.enter_context(served(*options))
        folder = tmp_path_factory.mktemp("prometheus") / "here"
        folder.mkdir()
        target = server.url.removeprefix("http://")
        api = stack.enter_context(prometheus(program("prometheus"), folder, servers=[target]))
        until(lambda: count(api) == 0, "a first scrape", 60)
        for _ in range(REQUESTS):
            server.ask(10, "/v1/completions", prompt=[1] * 20).raise_for_status()
        until(lambda: count(api) == REQUESTS, "a scrape of all requests", 60)
        means = [
            (server.metric(f"{name}_seconds_sum") or 0) / (server.metric(f"{name}_seconds_count") or 1)
            for name in ("time_to_first_token", "e2e_request_latency")
        ]
        end = datetime.fromtimestamp(time.time() + 1, UTC).isoformat()
        yield Production(str(api.base_url), end, *means)


def count(api: httpx.Client) -> float | None:
    query = "sum(enginebench_e2e_request_latency_seconds_count)"
    found = api.get("/api/v1/query", params={"query": query}).json()["data"]["result"]
    return float(found[0]["value"][1]) if found else None


def measured(folder: Path, law: BatchingServer, asked: Asked = ALIKE) -> Path:
    return write_run(folder / "run", law, rates(2, 6, 10), asked, window=30.0)


def check(run: Path, url: str, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["plan", str(run), "--check", url, *more])
    return result.exit_code, result.output


def test_the_servers_own_means_stand_beside_the_predicted_ones(production: Production, tmp_path: Path) -> None:
    """Requests one after the other, on two engines: ten steps of 22 ms."""
    span = ("--check-until", production.end, "--check-seconds", str(SPAN), "--json", "--slo", "ttft_p95=1")
    code, output = check(measured(tmp_path, LAW), production.url, *span)
    assert code in (0, 1)  # whether a busy machine is slower than predicted is not the question
    (part,) = json.loads(output)["parts"]
    assert part["replicas"] == 2  # engines of one server
    assert part["rate"] * SPAN == pytest.approx(REQUESTS, rel=0.25)
    figures = {one["name"]: one for one in part["figures"]}
    assert figures["TTFT mean"]["low"] == pytest.approx(production.ttft_mean, rel=0.05)
    assert figures["E2E mean"]["low"] == pytest.approx(production.e2e_mean, rel=0.05)
    assert figures["E2E mean"]["predicted"]["median"] == pytest.approx(0.22, rel=0.05)
    assert figures["within ttft_p95=1"]["low"] > 0.9


def test_slower_servers_than_predicted_are_an_exit_code(production: Production, tmp_path: Path) -> None:
    fast = BatchingServer(base=0.002, per_running=0.0001, per_token=0.0, slots=8, jitter=0.02)
    code, page = check(
        measured(tmp_path, fast), production.url, "--check-until", production.end, "--check-seconds", "30"
    )
    assert code == 1
    assert "worse than predicted: E2E mean, E2E p95, TPOT mean" in " ".join(page.split())


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        pytest.param(("--check-select", 'job="other"'), "No request was served", id="no such servers"),
        pytest.param(("--check-until", "yesterday"), "--check-until is a time such as", id="no time"),
        pytest.param(("--check-select", 'job="'), "Prometheus refused", id="matchers that are none"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(
    production: Production, tmp_path: Path, more: tuple[str, ...], sentence: str
) -> None:
    code, output = check(measured(tmp_path, LAW), production.url, *more)
    assert code == 2
    assert sentence in " ".join(output.split())
    assert "Traceback" not in output


def test_other_lengths_than_measured_are_not_compared(production: Production, tmp_path: Path) -> None:
    run = measured(tmp_path, LAW, Asked(prompt=(20, 20), output=(30, 40)))
    code, output = check(run, production.url, "--check-until", production.end, "--check-seconds", str(SPAN))
    assert code == 2
    assert "the mean output has 10 tokens in production, and 30 to 40 were measured" in " ".join(output.split())


def test_no_prometheus_is_a_sentence(tmp_path: Path) -> None:
    code, output = check(measured(tmp_path, LAW), f"http://127.0.0.1:{free_port()}")
    assert code == 2
    assert "no Prometheus answers at" in " ".join(output.split())


def test_a_histogram_tells_the_bucket_of_a_percentile_and_the_range_of_a_share() -> None:
    found = Histogram((0.1, 0.2, 0.5, float("inf")), (10.0, 60.0, 98.0, 100.0), 30.0)
    assert found.mean == pytest.approx(0.3)
    assert found.quantile(0.5) == (0.1, 0.2)
    assert found.quantile(0.99) == (0.5, float("inf"))
    assert found.within(0.2) == (0.6, 0.6)
    assert found.within(0.3) == (0.6, 0.98)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        pytest.param(1.0, 1.0, "as predicted", id="inside the band"),
        pytest.param(1.25, 1.25, "as predicted", id="a tenth of the median above it"),
        pytest.param(1.4, 2.5, "worse", id="a bucket above it"),
        pytest.param(1.1, 2.5, "as predicted", id="a bucket that reaches into it"),
        pytest.param(0.5, 0.5, "better", id="below it"),
    ],
)
def test_a_figure_is_judged_by_the_band(low: float, high: float, verdict: str) -> None:
    assert Compared("TTFT p95", Band(1.0, 0.9, 1.2), low, high).verdict == verdict
