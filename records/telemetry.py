"""One line of `telemetry*.jsonl`: what the server and the load generator said of themselves at one instant."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from records.request import JsonLine
from records.stage import Nanoseconds


class TelemetrySample(JsonLine, frozen=True, gc=False):
    """The server's gauges and counters by Prometheus name with labels, and the load generator's own state."""

    t: Nanoseconds
    client_cpu: float | None = None  # cores used by this worker process since the last sample
    server: Mapping[str, float] = msgspec.field(default_factory=dict)
    loop_lag: float | None = None  # seconds by which the load generator's event loop was late
    run_delay: float | None = None  # share of the time in which this process was ready to run and had no core
    users: int | None = None  # that this process has
    last: bool = False  # the run ended in order; a killed process leaves no such sample
    lost: int = 0  # records of this process that could not be written so far
