"""The lower rows: saturation, throughput and the use of the machine."""

from __future__ import annotations

from grafana_foundation_sdk.models import units

from grafana.panels import RED, TOKENS_PER_SECOND, Panel, labels_table, lines
from grafana.promql import CHOSEN, ON_INSTANCE, OUTPUT_TOKENS, PREFILL, PROMPT_TOKENS, REQUESTS, Query, gauge, rate

NO_GPU = "no GPU on these servers"


def saturation() -> list[Panel]:
    return [
        lines(
            "Running",
            "Requests in the engine, and its number of slots. When all slots are taken, further requests wait in the "
            "queue.",
            units.Short,
            [
                Query(gauge("enginebench_requests_running"), "{{engine}} running"),
                Query(gauge("enginebench_engine_max_concurrency"), "{{engine}} slots"),
            ],
            width=6,
        ),
        lines(
            "Waiting",
            "Requests in the server's queue. A line that keeps rising under steady load means that the load exceeds "
            "the engine's capacity.",
            units.Short,
            [Query(gauge("enginebench_requests_waiting"))],
            width=6,
        ),
        lines(
            "Refused",
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
            "recomputed. Empty for engines that do not report it.",
            units.PercentUnit,
            [Query(gauge("enginebench_kv_cache_usage_ratio", of="max"))],
            width=6,
            top=1,
            steps=[(None, "transparent"), (0.95, RED)],
            no_value="not reported by these engines",
        ),
    ]


def tokens() -> list[Panel]:
    return [
        lines(
            "Input",
            "Prompt tokens per second of admitted requests.",
            TOKENS_PER_SECOND,
            [Query(rate(PROMPT_TOKENS))],
            width=8,
        ),
        lines(
            "Output",
            "Generated tokens per second, all users together. Costs per token are derived from it.",
            TOKENS_PER_SECOND,
            [Query(rate(OUTPUT_TOKENS))],
            width=8,
        ),
        lines(
            "Mean length of a request",
            "Prompt and output tokens per request. Compare latencies of two periods only where these are the same.",
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
            "Engine, model and number format of each server. They must be known for a fair comparison.",
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
            "Cores used by the HTTP server's process, without the engine. The server runs on one core: near 1 it is "
            "the limit, not the engine.",
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
    return [*_gpu_load(), *_gpu_power()]


def _gpu_load() -> list[Panel]:
    return [
        _gpu(
            "GPU utilisation",
            "Share of time in which a kernel was running. At 100 % the GPU may still have capacity left.",
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
            "Memory in use on each GPU by all processes, the engine's own share, and the total. "
            "Engines that reserve their cache at start show a flat line.",
            units.BytesIEC,
            [
                _each("memory_used_bytes", "used"),
                _each("memory_total_bytes", "size"),
                Query(gauge("enginebench_engine_device_memory_bytes"), "{{engine}} engine"),
            ],
        ),
    ]


def _gpu_power() -> list[Panel]:
    energy = rate("enginebench_gpu_energy_joules_total", by="instance", chosen=ON_INSTANCE)
    gpus = gauge("enginebench_gpu_memory_total_bytes", of="count", by="instance", chosen=ON_INSTANCE)
    return [
        _gpu(
            "GPU power",
            "Power draw of each GPU, and its limit. At the limit clock rates drop.",
            units.Watt,
            [_each("power_watts", "drawn"), _each("power_limit_watts", "limit")],
        ),
        _gpu(
            "GPU temperature",
            "Above about 85 °C most GPUs reduce their clock rates, and a long run measures the cooling.",
            units.Celsius,
            [_each("temperature_celsius")],
        ),
        _gpu(
            "GPU clocks",
            "Clock rates of multiprocessors and memory. Runs at different clock rates are not comparable.",
            units.Hertz,
            [_each("sm_clock_hertz", "multiprocessors"), _each("memory_clock_hertz", "memory")],
        ),
        _gpu(
            "Energy per output token",
            "Energy of all GPUs of a server, divided by the tokens it generated. Idle power counts, so it falls as "
            "batches grow.",
            "suffix: J/token",
            [Query(f"{energy} / {rate(OUTPUT_TOKENS, by='instance')}", "{{instance}}")],
        ),
        _gpu(
            "Output per GPU",
            "Tokens per second, divided by the number of GPUs. With a price per GPU hour it gives the cost per token.",
            TOKENS_PER_SECOND,
            [Query(f"{rate(OUTPUT_TOKENS, by='instance')} / {gpus}", "{{instance}}")],
        ),
        _gpu(
            "GPU throttling",
            "1 while power or heat reduces the clock rates, by reason. Such a run measured the cooling or the power "
            "supply.",
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
