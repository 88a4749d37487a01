"""What is shown of a server or a run at one moment. What is not known is `None`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from analysis.run.telemetry import GAUGES, value_of
from records.telemetry import TelemetrySample

SHOWN_GAUGES = {
    "running": "requests_running",
    "waiting": "requests_waiting",
    "kv": "kv_cache_usage",
    "gpu": "gpu_utilisation",
    "gpu_memory": "gpu_memory_bytes",
    "power": "gpu_power_watts",
}


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Moment:
    at: float  # seconds on the monotonic clock
    users: int | None = None
    in_flight: float | None = None
    rate: float | None = None  # requests that end per second
    failed: float | None = None  # share of them
    tokens: float | None = None  # output tokens per second
    latencies: Mapping[str, Percentiles] = field(default_factory=dict)  # by title: TTFT, TPOT
    running: float | None = None
    waiting: float | None = None
    kv: float | None = None  # share of the cache
    gpu: float | None = None  # share of the time in use
    gpu_memory: float | None = None  # bytes
    power: float | None = None  # watts
    findings: Sequence[str] = ()
    over: bool = False  # the run has ended


def gauges_of(sample: TelemetrySample) -> dict[str, Any]:
    """A moment's fields that come from a server's telemetry."""
    return {field: value_of(GAUGES[gauge], sample) for field, gauge in SHOWN_GAUGES.items()}


class Watched(Protocol):
    """A server, or a run."""

    title: str

    def look(self) -> Moment: ...
