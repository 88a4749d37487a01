"""What is scraped from the server while a run is measured comes back after a failure, and leaves no garbage; what holds
up the load generator's own event loop is seen."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest

from enginebench.records.files import read_samples
from loadtests.harness.client.authentication import Access
from loadtests.harness.recording.recorder import Recorder
from loadtests.harness.recording.telemetry_sampler import (
    INTERVAL,
    MAX_SERIES,
    TICK,
    Scraper,
    TelemetrySampler,
    parse_metrics,
)
from tests.support.servers.wire_script import Step, WireServer

SERIES = "".join(f'vllm:num_requests_running{{engine="{number}"}} {number}\n' for number in range(50))
COMMENTS = "# HELP other A histogram of another family.\n" * 10_000  # half a megabyte
COPIES = 2  # of the page, less than which twenty scrapes must leave


def answer(status: str, body: str) -> list[Step]:
    return [f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()]


@pytest.fixture
def no_collections() -> Iterator[None]:
    """As while a run is measured, when the collector of cycles works rarely."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_a_page_that_is_missing_once_is_asked_for_again() -> None:
    page = answer("200 OK", "vllm:num_requests_running 3\n")
    with WireServer(page, answer("404 Not Found", ""), page) as server:
        scraper = Scraper(server.url, Access())
        values = [scraper.scrape() for _ in range(3)]
        scraper.close()
    assert values == [{"vllm:num_requests_running": 3.0}, {}, {"vllm:num_requests_running": 3.0}]
    assert server.connections == 1, "over a connection that stays open"


def test_the_page_of_tensorrt_llm_is_found() -> None:
    """What it calls /metrics are statistics in JSON."""
    page = answer("200 OK", "trtllm_num_requests_running 3\n")
    with WireServer(answer("200 OK", "[]"), page) as server:
        scraper = Scraper(server.url, Access())
        assert [scraper.scrape() for _ in range(2)] == [{}, {"trtllm_num_requests_running": 3.0}]
        scraper.close()
    assert [request.split()[1] for request in server.requests] == [b"/metrics", b"/prometheus/metrics"]


def test_a_server_that_is_gone_gives_nothing() -> None:
    with WireServer(["close"]) as server:
        scraper = Scraper(server.url, Access())
        assert scraper.scrape() == {}
    assert scraper.scrape() == {}
    scraper.close()


def test_scrapes_leave_no_copy_of_the_page(no_collections: None) -> None:
    with WireServer(answer("200 OK", SERIES + COMMENTS)) as server:
        scraper = Scraper(server.url, Access())
        assert len(scraper.scrape()) == 50
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(20):
                scraper.scrape()
            grown = tracemalloc.get_traced_memory()[0] - before
        finally:
            tracemalloc.stop()
        scraper.close()
    assert grown < COPIES * len(COMMENTS)
    assert gc.collect() < 20, "no cycles are left for the collector"


def test_what_holds_up_the_event_loop_is_seen(tmp_path: Path) -> None:
    path, held_up = tmp_path / "telemetry.jsonl", 0.2
    sampler = TelemetrySampler(Recorder(path), time.monotonic_ns(), None, lambda: 1, None)
    sampler.start()
    gevent.sleep(2 * TICK)
    time.sleep(held_up)  # cooperates with nobody
    gevent.sleep(INTERVAL)
    sampler.stop()
    first, *_ = read_samples(path)
    assert first.loop_lag is not None
    assert first.loop_lag >= held_up - TICK


def test_a_page_of_metrics_has_a_limit() -> None:
    page = "".join(f'vllm:metric_{n}{{a="{n}"}} 1.0\n' for n in range(MAX_SERIES + 100))
    assert len(parse_metrics(page)) == MAX_SERIES
