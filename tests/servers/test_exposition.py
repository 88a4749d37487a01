"""The page in pieces is the page as a whole, and between the pieces the event loop has its turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from servers.exposition import SLICE, exposition

OPEN_METRICS = "application/openmetrics-text;version=1.0.0"


@pytest.mark.parametrize("accept", ['application/openmetrics-text; version="1.0.0"', "text/plain;version=x"])
async def test_a_version_that_is_no_number_gets_the_page_in_some_format(accept: str) -> None:
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry)
    page, content_type = await exposition(registry, accept)
    assert content_type.startswith("text/plain")
    assert b"things_total 0.0" in page


@pytest.mark.parametrize("accept", ["", "text/plain", OPEN_METRICS])
async def test_the_page_is_what_the_client_library_writes(accept: str) -> None:
    registry = CollectorRegistry()
    Counter("things", "Things.", ["kind"], registry=registry).labels("a").inc(3)
    Counter("others", "Others.", registry=registry)
    encode, expected_type = choose_encoder(accept)
    page, content_type = await exposition(registry, accept)
    assert content_type == expected_type
    assert page == encode(registry)
    assert page.count(b"# EOF") == (accept == OPEN_METRICS)


async def test_the_loop_has_its_turn_between_families() -> None:
    class Registry(CollectorRegistry):
        def collect(self) -> Iterator[Metric]:
            for number in range(20):
                time.sleep(SLICE * 1.5)
                yield GaugeMetricFamily(f"slow_{number}", "Slow.", value=number)

    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    page, _ = await exposition(Registry(), "")
    other.cancel()
    assert page.count(b"# HELP") == 20
    assert turns >= 20
