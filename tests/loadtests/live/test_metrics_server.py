"""The addresses of the server of metrics, and its last scrape.

The server of a whole run: users/test_page.py, and, read by Prometheus, tests/analysis/test_live_agreement.py.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import cast

import gevent
import httpx
import pytest

from enginebench.settings.schema import UserMistake
from enginebench.settings.system import free_port
from loadtests.harness.live.live_run import LiveRun
from loadtests.harness.live.metric_families import Family
from loadtests.harness.live.metrics_server import SLOW_SCRAPE, MetricsServer, serve
from loadtests.harness.settings.run_settings import RunSettings


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


@contextmanager
def serving(seconds: float = 0.0) -> Iterator[tuple[Scraped, MetricsServer, Callable[[], str]]]:
    """A page, its server, and a function that scrapes it from another thread."""
    page, port = Scraped(seconds), free_port()
    server = MetricsServer("127.0.0.1", port, page.families)

    def scrape() -> str:
        address = f"http://127.0.0.1:{port}/metrics"
        answer: httpx.Response = gevent.get_hub().threadpool.apply(httpx.get, (address,), {"trust_env": False})
        return answer.text

    yield page, server, scrape
    server.close()


@pytest.mark.parametrize("pause", [pytest.param(0.0, id="at once"), pytest.param(1.2, id="a second late")])
def test_the_end_waits_for_a_scrape_that_begins_after_it(pause: float) -> None:
    with serving() as (page, server, scrape):
        scrape()
        gevent.sleep(0.2)
        scrape()
        last = gevent.spawn_later(pause, scrape)
        server.wait_for_scrape(30.0)
        assert page.begun == 3
        assert last.get().splitlines()[-1] == "scrape 3.0"


def test_a_scrape_that_began_before_the_end_is_not_the_last_one() -> None:
    with serving(seconds=0.4) as (page, server, scrape):
        scrape()
        running = gevent.spawn(scrape)
        while page.begun < 2:
            gevent.sleep(0.01)
        after = gevent.spawn_later(1.0, scrape)  # when the running one has been answered
        began = time.monotonic()
        server.wait_for_scrape(30.0)
        assert page.begun == 3
        assert time.monotonic() - began >= 1.0
        gevent.joinall([running, after])


def test_where_nobody_scrapes_any_more_the_end_waits_for_two_intervals() -> None:
    with serving() as (_, server, scrape):
        scrape()
        scrape()
        began = time.monotonic()
        server.wait_for_scrape(30.0)
        assert SLOW_SCRAPE <= time.monotonic() - began < 20.0


NO_RUN = cast(LiveRun, None)  # whose metrics are not asked for


def test_an_address_in_use_is_a_mistake_where_it_was_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserMistake, match=f"cannot be served on 127.0.0.1:{port} "):
            serve(("127.0.0.1", port), NO_RUN, 0.0)


def test_where_the_default_port_is_taken_the_next_one_is_used_and_said(caplog: pytest.LogCaptureFixture) -> None:
    default = RunSettings().exporter
    assert default is not None
    with suppress(OSError), socket.create_server(default):
        server = serve(default, NO_RUN, 0.0)
        if server is not None:
            server.close()
        said = caplog.text
        assert "Port 9646 is taken: this load test's metrics are on port 96" in said or "are taken" in said
