"""What the server, its GPU and the load generator itself reported about once a second.

The names of other servers' metrics are known too, so that a run against vLLM shows its queue. What was not there is
`None`: a machine without a GPU has no GPU utilisation of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from records import files
from records.stage import SECOND
from records.telemetry import TelemetrySample
from records.view import Level

MEBIBYTE = 1024 * 1024
NEAR = 2 * SECOND  # from one sample to the next it takes a second, when nothing goes wrong
PLANNER = ""  # name of the process that plans the run; of a run with one process, that process


@dataclass(frozen=True, slots=True)
class Source:
    """One quantity: the names it goes by with the factor to our unit, and how series with several labels become one."""

    names: Mapping[str, float]
    combine: Callable[[list[float]], float]
    title: str = ""
    unit: str = ""


GAUGES: Mapping[str, Source] = {
    "requests_running": Source(
        {
            "enginebench_requests_running": 1,
            "vllm:num_requests_running": 1,
            "sglang:num_running_reqs": 1,
            "tgi_batch_current_size": 1,
            "llamacpp:requests_processing": 1,
        },
        sum,
        "running",
        "requests",
    ),
    "requests_waiting": Source(
        {
            "enginebench_requests_waiting": 1,
            "vllm:num_requests_waiting": 1,
            "sglang:num_queue_reqs": 1,
            "tgi_queue_size": 1,
            "llamacpp:requests_deferred": 1,
        },
        sum,
        "waiting",
        "requests",
    ),
    "kv_cache_usage": Source(
        {
            "enginebench_kv_cache_usage_ratio": 1,
            "vllm:kv_cache_usage_perc": 1,
            "sglang:token_usage": 1,
            "llamacpp:kv_cache_usage_ratio": 1,
        },
        fmean,
        "KV cache in use",
        "share",
    ),
    "engine_memory_bytes": Source({"enginebench_engine_memory_bytes": 1}, sum, "engine memory (host)", "B"),
    "process_memory_bytes": Source({"process_resident_memory_bytes": 1}, sum, "server memory (host)", "B"),
    "gpu_utilisation": Source(
        {"enginebench_gpu_utilization_ratio": 1, "DCGM_FI_DEV_GPU_UTIL": 0.01}, fmean, "GPU utilisation", "share"
    ),
    "gpu_memory_bytes": Source(
        {"enginebench_gpu_memory_used_bytes": 1, "DCGM_FI_DEV_FB_USED": MEBIBYTE}, sum, "device memory", "B"
    ),
    "gpu_memory_bandwidth_utilisation": Source(
        {"enginebench_gpu_dram_activity_ratio": 1, "DCGM_FI_PROF_DRAM_ACTIVE": 1},
        fmean,
        "GPU memory bandwidth",
        "share",
    ),
    "gpu_tensor_activity": Source({"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 1}, fmean, "GPU tensor activity", "share"),
    "gpu_power_watts": Source({"enginebench_gpu_power_watts": 1, "DCGM_FI_DEV_POWER_USAGE": 1}, sum, "GPU power", "W"),
    "gpu_temperature_celsius": Source(
        {"enginebench_gpu_temperature_celsius": 1, "DCGM_FI_DEV_GPU_TEMP": 1}, max, "GPU temperature", "°C"
    ),
    "gpu_clock_hertz": Source(
        {"enginebench_gpu_sm_clock_hertz": 1, "DCGM_FI_DEV_SM_CLOCK": 1e6}, min, "GPU clock", "Hz"
    ),
    "gpus": Source({"enginebench_gpu_utilization_ratio": 1, "DCGM_FI_DEV_GPU_UTIL": 1}, len, "GPUs", "GPUs"),
}
COUNTERS: Mapping[str, Source] = {
    "generated_tokens": Source(
        {
            "enginebench_generation_tokens_total": 1,
            "vllm:generation_tokens_total": 1,
            "sglang:generation_tokens_total": 1,
            "tgi_request_generated_tokens_sum": 1,
            "llamacpp:tokens_predicted_total": 1,
        },
        sum,
    ),
    "gpu_energy_joules": Source(
        {"enginebench_gpu_energy_joules_total": 1, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1e-3}, sum
    ),
}


@dataclass(frozen=True, slots=True)
class Increase:
    """How far a counter went up between two samples inside a window, and when those were (nanoseconds)."""

    amount: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TelemetrySeries:
    """All samples of a run by process, each in time order; the planning process is called `PLANNER`."""

    processes: Mapping[str, tuple[TelemetrySample, ...]]

    @property
    def last(self) -> int:
        """The last instant of any sample, 0 where there is none."""
        return max((samples[-1].t for samples in self.processes.values() if samples), default=0)

    @property
    def load_workers(self) -> set[str]:
        """The worker processes that Locust's master had."""
        return set(self.processes) - {PLANNER}

    @property
    def lost(self) -> int:
        """Records that could not be written, as far as that is known."""
        return sum(samples[-1].lost for samples in self.processes.values() if samples)

    @property
    def killed(self) -> dict[str, TelemetrySample]:
        """The last sample of each process that did not end in order."""
        last = {name: samples[-1] for name, samples in self.processes.items() if samples}
        return {name: sample for name, sample in last.items() if not sample.last}

    def users(self, start: int, end: int, planned: int) -> float | None:
        """How many of the planned users there were, all processes together: the time-average over a window.

        Between two samples a process has the larger number of them, and none where both are further away than `NEAR`.
        """
        instants = np.arange(start, end, SECOND // 4)
        told = [[(s.t, s.users) for s in samples if s.users is not None] for samples in self.processes.values()]
        told = [series for series in told if series]
        if not told or len(instants) == 0:
            return None
        there = np.zeros(len(instants))
        for series in told:
            times, counts = (np.array(column) for column in zip(*series, strict=True))
            after = np.searchsorted(times, instants)
            neighbours = [np.clip(after - 1, 0, None), np.clip(after, None, len(times) - 1)]
            there += np.max([np.where(np.abs(times[k] - instants) <= NEAR, counts[k], 0) for k in neighbours], axis=0)
        return float(np.minimum(there, planned).mean())

    def level(self, quantity: str, start: int, end: int) -> Level | None:
        return _level(value for _, value in self._series(GAUGES[quantity], start, end))

    def increase(self, quantity: str, start: int, end: int) -> Increase | None:
        """`None` with fewer than two samples, or where the counter was set back: the server was started again."""
        series = self._series(COUNTERS[quantity], start, end)
        values = [value for _, value in series]
        if len(series) < 2 or values != sorted(values):
            return None
        return Increase(values[-1] - values[0], series[0][0], series[-1][0])

    def energy(self, start: int, end: int) -> Increase | None:
        """From the GPUs' energy counters, else ∫ power dt by trapezoids."""
        counted = self.increase("gpu_energy_joules", start, end)
        if counted is not None:
            return counted
        series = self._series(GAUGES["gpu_power_watts"], start, end)
        if len(series) < 2:
            return None
        instants, watts = np.array([t for t, _ in series]) / SECOND, np.array([value for _, value in series])
        return Increase(float(np.trapezoid(watts, instants)), series[0][0], series[-1][0])

    def of_worst_process(self, of: Callable[[TelemetrySample], float | None], start: int, end: int) -> Level | None:
        """A figure of the load generator's own processes, of the one with the largest mean."""
        levels = [_level(of(s) for s in samples if start <= s.t < end) for samples in self.processes.values()]
        return max((level for level in levels if level is not None), key=lambda level: level.mean, default=None)

    def _series(self, source: Source, start: int, end: int) -> list[tuple[int, float]]:
        """One value per sample inside the window, from the first process that sampled the server."""
        for samples in self.processes.values():
            series = [
                (s.t, value) for s in samples if start <= s.t < end and (value := _value_of(source, s)) is not None
            ]
            if series:
                return series
        return []


def _level(values: Iterable[float | None]) -> Level | None:
    known = [value for value in values if value is not None]
    return Level(fmean(known), max(known)) if known else None


def _value_of(source: Source, sample: TelemetrySample) -> float | None:
    """In our unit; `None` where the server says nothing of it."""
    for name, factor in source.names.items():
        found = [value for key, value in sample.server.items() if key.partition("{")[0] == name]
        if found:
            return source.combine(found) * factor
    return None


def read_telemetry(folder: Path) -> TelemetrySeries:
    """Every whole line of every process's file; lines that are no samples are skipped."""
    processes = {}
    for path in sorted(folder.glob("telemetry*.jsonl")):
        name = path.stem.removeprefix("telemetry").removeprefix("-")
        processes[name] = tuple(sorted(files.read_telemetry(path), key=lambda sample: sample.t))
    return TelemetrySeries(processes)
