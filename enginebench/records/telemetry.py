"""A line of `telemetry*.jsonl` has the metrics of the server and the load generator at one instant. The quantities
read from these lines are declared here, with the names under which servers and GPU exporters publish them.

Quantities that a server does not report are left out: a machine without a GPU has no GPU utilisation of 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from enginebench.records.load import Count
from enginebench.records.request import JsonLine
from enginebench.records.stage import Nanoseconds

MEBIBYTE = 1024 * 1024


class TelemetrySample(JsonLine, gc=False):
    """The server's gauges and counters by Prometheus name with labels, and the load generator's own state."""

    t: Nanoseconds
    client_cpu: float | None = None  # cores used by this worker process since the last sample
    server: Mapping[str, float] = msgspec.field(default_factory=dict)
    loop_lag: float | None = None  # seconds by which the load generator's event loop was late
    run_delay: float | None = None  # share of the time in which this process was ready to run and had no core
    users: Count | None = None  # of this process
    last: bool = False  # the process ended cleanly; a killed process leaves no such sample
    lost: Count = 0  # records of this process that could not be written so far


@dataclass(frozen=True, slots=True)
class Published:
    """A name under which a quantity is published, and the conversion of its value."""

    name: str
    factor: float = 1.0  # to our unit
    bits: int = 0  # bits of a mask: the value is 1 if one of them is set
    labels: tuple[str, ...] = ()  # `name="value"`, one of which is required; empty: any labels

    def value(self, published: float) -> float:
        return float(bool(int(published) & self.bits)) if self.bits else published * self.factor

    def takes(self, labels: str) -> bool:
        return not self.labels or any(label in labels for label in self.labels)


@dataclass(frozen=True, slots=True)
class Source:
    """A quantity of the server or its GPUs. The first of its names in a sample counts; `combine` makes one value of
    series with several labels, such as several GPUs."""

    title: str
    unit: Literal["requests", "tokens", "drafts", "share", "B", "W", "J", "°C", "Hz", "GPUs"]
    combine: Literal["sum", "mean", "max", "count"]
    names: tuple[str | Published, ...]

    @property
    def published(self) -> tuple[Published, ...]:
        return tuple(Published(name) if isinstance(name, str) else name for name in self.names)


# Reasons for reduced clock rates: bits of NVML's mask, which DCGM publishes as one number; our server names them.
POWER_CAP, SLOWED = 0x4, 0x8 | 0x20 | 0x40 | 0x80
SLOWING = ("hardware_slowdown", "software_thermal", "hardware_thermal", "power_brake")
MASKS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")  # newer DCGM, older DCGM

SERVERS: Mapping[str, tuple[str, ...]] = {
    "vLLM": ("vllm:", "vllm_", "ray_vllm:", "ray_vllm_"),
    "SGLang": ("sglang:", "sglang_"),
    "TGI": ("tgi_",),
    "TensorRT-LLM": ("trtllm_",),
    "Triton's TensorRT-LLM": ("nv_trt_llm_",),
    "LMDeploy": ("lmdeploy:", "lmdeploy_"),
    "llama.cpp": ("llamacpp:", "llamacpp_"),
}
"""Known servers by the prefixes of their series: first the prefix used below, then prefixes of exporters and other
versions."""


def server_of(name: str) -> tuple[str, str] | None:
    """Return which of `SERVERS` publishes a series of this name, and the name used below."""
    for server, (ours, *aliases) in SERVERS.items():
        for prefix in (ours, *aliases):
            if name.startswith(prefix):
                return server, ours + name.removeprefix(prefix)
    return None


GPU_MEMORY = ("enginebench_gpu_memory_used_bytes", Published("DCGM_FI_DEV_FB_USED", MEBIBYTE))  # of all processes

GAUGES: Mapping[str, Source] = {
    "requests_running": Source(
        "requests running",
        "requests",
        "sum",
        (
            "enginebench_requests_running",
            "vllm:num_requests_running",
            *("sglang:num_running_reqs", "sglang:num_requests_running"),  # since 0.4, before
            "tgi_batch_current_size",
            "trtllm_num_requests_running",
            Published("nv_trt_llm_request_metrics", labels=('request_type="scheduled"',)),
            "lmdeploy:num_requests_running",
            "llamacpp:requests_processing",
        ),
    ),
    "requests_waiting": Source(
        "requests waiting",
        "requests",
        "sum",
        (
            "enginebench_requests_waiting",
            "vllm:num_requests_waiting",
            *("sglang:num_queue_reqs", "sglang:num_requests_waiting"),  # since 0.4, before
            "tgi_queue_size",
            "trtllm_num_requests_waiting",
            Published("nv_trt_llm_request_metrics", labels=('request_type="waiting"',)),
            "lmdeploy:num_requests_waiting",
            "llamacpp:requests_deferred",
        ),
    ),
    "kv_cache_usage": Source(
        "KV cache in use",
        "share",
        "mean",
        (
            "enginebench_kv_cache_usage_ratio",
            *("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),  # since 0.10, before
            *("sglang:token_usage", "sglang:full_token_usage"),
            "trtllm_kv_cache_utilization",
            Published("nv_trt_llm_kv_cache_block_metrics", labels=('kv_cache_block_type="fraction"',)),
            "lmdeploy:gpu_cache_usage_perc",
            "llamacpp:kv_cache_usage_ratio",
        ),
    ),
    "engine_memory_bytes": Source("engine memory (host)", "B", "sum", ("enginebench_engine_memory_bytes",)),
    # The peak since the server's start; if it is not reported, the memory of all processes on the GPUs.
    "engine_device_memory_bytes": Source(
        "engine memory (device)",
        "B",
        "sum",
        ("enginebench_engine_device_memory_peak_bytes", *GPU_MEMORY),
    ),
    "process_memory_bytes": Source("server memory (host)", "B", "sum", ("process_resident_memory_bytes",)),
    "gpu_utilisation": Source(
        "GPU utilisation",
        "share",
        "mean",
        ("enginebench_gpu_utilization_ratio", Published("DCGM_FI_DEV_GPU_UTIL", 0.01)),
    ),
    "gpu_memory_bytes": Source("GPU memory in use", "B", "sum", GPU_MEMORY),
    "gpu_memory_bandwidth_utilisation": Source(
        "GPU memory bandwidth in use",
        "share",
        "mean",
        ("enginebench_gpu_dram_activity_ratio", "DCGM_FI_PROF_DRAM_ACTIVE"),
    ),
    "gpu_tensor_activity": Source(
        "tensor cores in use",
        "share",
        "mean",
        ("enginebench_gpu_tensor_activity_ratio", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
    ),
    "gpu_clock_hertz": Source(
        "GPU clock rate", "Hz", "mean", ("enginebench_gpu_sm_clock_hertz", Published("DCGM_FI_DEV_SM_CLOCK", 1e6))
    ),
    "gpu_temperature_celsius": Source(
        "GPU temperature", "°C", "max", ("enginebench_gpu_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP")
    ),
    "gpu_power_watts": Source("GPU power", "W", "sum", ("enginebench_gpu_power_watts", "DCGM_FI_DEV_POWER_USAGE")),
    "gpus": Source("GPUs", "GPUs", "count", ("enginebench_gpu_utilization_ratio", "DCGM_FI_DEV_GPU_UTIL")),
    # 1 while heat or the power supply slows down a GPU.
    "gpu_throttled": Source(
        "GPU throttled",
        "share",
        "max",
        (
            Published("enginebench_gpu_throttled", labels=tuple(f'reason="{reason}"' for reason in SLOWING)),
            *(Published(mask, bits=SLOWED) for mask in MASKS),
        ),
    ),
    # 1 while a GPU is at its power limit. That is common on a busy GPU, and not a fault.
    "gpu_power_capped": Source(
        "GPU at its power limit",
        "share",
        "max",
        (
            Published("enginebench_gpu_throttled", labels=('reason="power_cap"',)),
            *(Published(mask, bits=POWER_CAP) for mask in MASKS),
        ),
    ),
}
COUNTERS: Mapping[str, Source] = {
    "generated_tokens": Source(
        "tokens generated",
        "tokens",
        "sum",
        (
            "enginebench_generation_tokens_total",
            "vllm:generation_tokens_total",
            "sglang:generation_tokens_total",
            "tgi_request_generated_tokens_sum",
            "trtllm_generation_tokens_total",
            "lmdeploy:generation_tokens_total",
            "llamacpp:tokens_predicted_total",
        ),
    ),
    "gpu_energy_joules": Source(
        "GPU energy",
        "J",
        "sum",
        ("enginebench_gpu_energy_joules_total", Published("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e-3)),
    ),
}
SPECULATION: Mapping[str, Source] = {
    "drafts": Source("drafts", "drafts", "sum", ("vllm:spec_decode_num_drafts_total",)),
    "drafted_tokens": Source(
        "tokens drafted",
        "tokens",
        "sum",
        (
            "vllm:spec_decode_num_draft_tokens_total",
            *("trtllm_spec_decode_num_draft_tokens_total", "trtllm_spec_decode_drafted_tokens_total"),
        ),
    ),
    "accepted_tokens": Source(
        "drafted tokens accepted",
        "tokens",
        "sum",
        (
            "vllm:spec_decode_num_accepted_tokens_total",
            *("trtllm_spec_decode_num_accepted_tokens_total", "trtllm_spec_decode_accepted_tokens_total"),
        ),
    ),
    "acceptance_length": Source(
        "acceptance length", "tokens", "mean", ("sglang:spec_accept_length", "trtllm_spec_decode_acceptance_length")
    ),
    "acceptance_rate": Source("acceptance rate", "share", "mean", ("sglang:spec_accept_rate",)),
}
"""Counters of speculative decoding, and gauges that some servers publish instead, which are 0 while nothing is drafted.
A server that does not speculate need not have them."""
LOAD_GENERATOR_GAUGES = ("client_cpu", "loop_lag", "run_delay")
"""Fields of `TelemetrySample`. A stage shows the process of the load generator with the largest mean."""
