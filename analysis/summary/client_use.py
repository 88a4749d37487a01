"""What the load generator used and received in a window, and how far that puts its TTFT off."""

from __future__ import annotations

from dataclasses import dataclass

from analysis.data.load import RunData
from analysis.data.telemetry import Level
from analysis.data.windows import Flows, Window


@dataclass(frozen=True, slots=True)
class ClientUse:
    """Of several processes, each level is that of the one with the largest mean."""

    cpu: Level | None  # cores
    loop_lag: Level | None  # seconds by which the event loop was late
    run_delay: Level | None  # share of the time in which the process was ready to run and had no core
    chunk_rate: float | None  # streamed chunks per second, in the busiest tenth of the window
    error: float | None  # seconds by which TTFT may be off at p99, by the calibration


def client_use_of(run: RunData, window: Window, flows: Flows) -> ClientUse:
    cpu, loop_lag, run_delay = (
        run.telemetry.of_worst_process(name, window.start, window.end)
        for name in ("client_cpu", "loop_lag", "run_delay")
    )
    rate = float((flows.chunks(window.edges(10)) / (window.seconds / 10)).max()) or None
    error = None if rate is None else run.meta.client_error_at(rate, run_delay.mean if run_delay else 0.0)
    return ClientUse(cpu, loop_lag, run_delay, rate, error)
