"""One line of `telemetry*.jsonl`: what the server and the load generator said of themselves at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from records.stage import Nanoseconds


@dataclass(frozen=True, slots=True)
class TelemetrySample:
    """The server's gauges and counters by Prometheus name with labels, and the load generator's own state."""

    t: Nanoseconds
    client_cpu: float | None = None  # cores used by this worker process since the last sample
    server: Mapping[str, float] = field(default_factory=dict)
    loop_lag: float | None = None  # seconds by which the load generator's event loop was late
    run_delay: float | None = None  # share of the time in which this process was ready to run and had no core
    users: int | None = None  # that this process has
    last: bool = False  # the run ended in order; a killed process leaves no such sample
    lost: int = 0  # records of this process that could not be written so far
