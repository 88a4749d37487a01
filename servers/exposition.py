"""The page that Prometheus scrapes, written without delaying the streams.

Writing all families at once takes several milliseconds, in which the event loop sends no chunk. So the page is written
one family at a time, and the loop gets its turn whenever `SLICE` seconds have passed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

SLICE = 0.001  # seconds
END = b"# EOF\n"  # ends OpenMetrics' page; each family is written as a separate page


class _FamilyRegistry:
    """A registry of one family, as far as an encoder needs one."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


async def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the page and its content type, in the format that the header `accept` requests."""
    try:
        encode, content_type = choose_encoder(accept)
    except TypeError:  # the library compares a version that is no number
        encode, content_type = choose_encoder("")
    parts: list[bytes] = []
    ended, began = False, time.perf_counter()
    for family in registry.collect():
        part = encode(_FamilyRegistry(family))
        ended = ended or part.endswith(END)
        parts.append(part.removesuffix(END))
        if time.perf_counter() - began > SLICE:
            await asyncio.sleep(0)
            began = time.perf_counter()
    return b"".join(parts) + (END if ended else b""), content_type
