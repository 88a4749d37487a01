"""The lower rows: how full the engine is, what it produces, and what that takes of the machine."""

from __future__ import annotations

from grafana_foundation_sdk.models import units

from grafana.panels import RED, TOKENS_PER_SECOND, Panel, labels_table, lines
from grafana.promql import CHOSEN, ON_INSTANCE, OUTPUT_TOKENS, PREFILL, PROMPT_TOKENS, REQUESTS, Query, gauge, rate

NO_GPU = "no GPU on these servers"


def saturation() -> list[Panel]:
    return [
        lines(
            "Running",
            "Requests inside the engine, against the most it runs at a time. At the upper line the engine is full and "
            "the queue begins.",
            units.Short,
            [
                Query(gauge("enginebench_requests_running"), "{{engine}} running"),
                Query(gauge("enginebench_engine_max_concurrency"), "{{engine}} places"),
            ],
            width=6,
        ),
        lines(
            "Waiting",
            "Requests in the server's queue. A line that keeps rising under steady load means that the load is more "
            "than the engine can serve.",
            units.Short,
            [Query(gauge("enginebench_requests_waiting"))],
            width=6,
        ),
        lines(
            "Turned away",
            "Requests per second refused because the queue was full (`rejected`) or the engine was not ready "
            "(`unavailable`).",
            units.RequestsPerSecond,
            [
                Query(
                    rate(REQUESTS, by="engine, outcome", where='outcome=~"rejected|unavailable"'),
                    "{{engine}} {{outcome}}",
                )
            ],
            width=6,
        ),
        lines(
            "KV cache in use",
            "Share of the engine's key-value cache that holds running requests. Near 100 % requests wait or are "
            "recomputed. Empty for engines that do not tell.",
            units.PercentUnit,
            [Query(gauge("enginebench_kv_cache_usage_ratio", of="max"))],
            width=6,
            top=1,
            steps=[(None, "transparent"), (0.95, RED)],
            no_value="these engines do not tell",
        ),
    ]


def tokens() -> list[Panel]:
    return [
        lines(
            "Input",
            "Prompt tokens per second of requests that the engine took.",
            TOKENS_PER_SECOND,
            [Query(rate(PROMPT_TOKENS))],
            width=8,
        ),
        lines(
            "Output",
            "Tokens produced per second, all users together: the number that costs are divided by.",
            TOKENS_PER_SECOND,
            [Query(rate(OUTPUT_TOKENS))],
            width=8,
        ),
        lines(
            "Mean length of a request",
            "Prompt and output tokens per request. Latencies of two periods compare only while these stay the same.",
            "suffix: tokens",
            [
                Query(f"{rate(PROMPT_TOKENS)} / {rate(PREFILL + '_count')}", "{{engine}} prompt"),
                Query(f"{rate(OUTPUT_TOKENS)} / {rate(PREFILL + '_count')}", "{{engine}} output"),
            ],
            width=8,
        ),
    ]


def server_and_engine() -> list[Panel]:
    return [
        labels_table(
            "What is running",
            "Engine, model and number format behind each server: what must be equal for a fair comparison.",
            Query(f"enginebench_build_info{{{CHOSEN}}}"),
            {
                "instance": "server",
                "engine": "engine",
                "engine_version": "engine version",
                "model": "model",
                "dtype": "number format",
                "device": "device",
                "version": "enginebench",
            },
        ),
        lines(
            "Server CPU",
            "Cores used by the HTTP server's own process, without the engine. The server works on one core: near 1 it, "
            "not the engine, is the limit.",
            "suffix: cores",
            [Query(rate("process_cpu_seconds_total", by="instance", chosen=ON_INSTANCE), "{{instance}}")],
            width=6,
            steps=[(None, "transparent"), (0.9, RED)],
        ),
        lines(
            "Memory",
            "Resident memory of the HTTP server and of the engine. A line that climbs under steady load is a leak.",
            units.BytesIEC,
            [
                Query(gauge("enginebench_engine_memory_bytes"), "{{engine}} engine"),
                Query(f"process_resident_memory_bytes{{{ON_INSTANCE}}}", "{{instance}} server"),
            ],
            width=6,
        ),
    ]


def gpu() -> list[Panel]:
    energy = rate("enginebench_gpu_energy_joules_total", by="instance", chosen=ON_INSTANCE)
    gpus = gauge("enginebench_gpu_memory_total_bytes", of="count", by="instance", chosen=ON_INSTANCE)
    return [
        _gpu(
            "GPU utilisation",
            "Share of time in which some kernel ran. 100 % does not mean that the GPU could do no more.",
            units.PercentUnit,
            [_each("utilization_ratio")],
            top=1,
        ),
        _gpu(
            "GPU activity",
            "Shares of the memory bandwidth, of the multiprocessors and of the tensor cores' time that were used. "
            "Decoding fills the memory bandwidth first, prefilling the tensor cores. Hopper and later.",
            units.PercentUnit,
            [
                _each("dram_activity_ratio", "memory bandwidth"),
                _each("sm_activity_ratio", "multiprocessors"),
                _each("tensor_activity_ratio", "tensor cores"),
            ],
            top=1,
        ),
        _gpu(
            "GPU memory",
            "Memory in use on each GPU by all its processes, what the engine says it holds of it, and its size. "
            "Engines that reserve a cache at start show a flat line.",
            units.BytesIEC,
            [
                _each("memory_used_bytes", "used"),
                _each("memory_total_bytes", "size"),
                Query(gauge("enginebench_engine_device_memory_bytes"), "{{engine}} engine"),
            ],
        ),
        _gpu(
            "GPU power",
            "Power drawn by each GPU, and the limit in force. At the limit clocks go down.",
            units.Watt,
            [_each("power_watts", "drawn"), _each("power_limit_watts", "limit")],
        ),
        _gpu(
            "GPU temperature",
            "Above about 85 °C most GPUs lower their clocks, and a long run measures the cooling.",
            units.Celsius,
            [_each("temperature_celsius")],
        ),
        _gpu(
            "GPU clocks",
            "Clocks of the multiprocessors and of the memory. Runs at different clocks do not compare.",
            units.Hertz,
            [_each("sm_clock_hertz", "multiprocessors"), _each("memory_clock_hertz", "memory")],
        ),
        _gpu(
            "Energy per output token",
            "Energy of all GPUs of a server, divided by the tokens it produced. Idle power counts, so it falls as "
            "batches grow.",
            "suffix: J/token",
            [Query(f"{energy} / {rate(OUTPUT_TOKENS, by='instance')}", "{{instance}}")],
        ),
        _gpu(
            "Output per GPU",
            "Tokens per second, divided by the GPUs of the server: what a price per GPU hour is divided by.",
            TOKENS_PER_SECOND,
            [Query(f"{rate(OUTPUT_TOKENS, by='instance')} / {gpus}", "{{instance}}")],
        ),
        _gpu(
            "GPU held down",
            "1 while power or heat holds the clocks down, by reason. A run that shows a 1 measured the cooling or the "
            "power supply.",
            units.Short,
            [Query(f"enginebench_gpu_throttled{{{ON_INSTANCE}}}", "{{instance}} GPU {{gpu}} {{reason}}")],
            top=1,
        ),
    ]


def _gpu(title: str, description: str, unit: str, queries: list[Query], top: float | None = None) -> Panel:
    return lines(title, description, unit, queries, width=8, top=top, no_value=NO_GPU)


def _each(name: str, what: str = "") -> Query:
    """A number per GPU; `what` tells several in one panel apart."""
    return Query(f"enginebench_gpu_{name}{{{ON_INSTANCE}}}", f"{{{{instance}}}} GPU {{{{gpu}}}} {what}".rstrip())
