"""llm-d's Benchmark Report 0.2 and 0.2.1: the parts of the format that are written and read. A report is one stage.

Fields as of llmdbenchmark/analysis/benchmark_report/schema_v0_2_1.py in llm-d/llm-d-benchmark, which allows other
fields only in `results.observability`: its `metadata` has values without a field in the format, such as intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from enginebench.records.metrics import (
    ACHIEVED_RATE,
    E2E,
    ICL,
    NTPOT,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    THROUGHPUT,
    TPOT,
    TTFT,
)

TOOL, VERSION = "enginebench", "0.2.1"
READ_VERSIONS = ("0.2", VERSION)


class Part(msgspec.Struct, omit_defaults=True):
    """A part of a report. Fields without a value are left out."""


class Statistics(Part):
    units: str
    mean: float | None = None  # required by the schema
    stddev: float | None = None
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


Fields = Mapping[str, Statistics | None]


class Requests(Part):
    total: int
    failures: int | None = None
    incomplete: int | None = None
    input_length: Statistics | None = None
    output_length: Statistics | None = None


class Aggregate(Part):
    requests: Requests | None = None
    latency: Fields | None = None
    throughput: Fields | None = None


class RequestPerformance(Part):
    aggregate: Aggregate


class ComponentObservability(Part):
    component_label: str
    aggregate: Fields | None = None


class Observability(Part):
    components: list[ComponentObservability] | None = None
    metadata: Any = None  # values without a field in the format, such as intervals


class Results(Part):
    request_performance: RequestPerformance | None = None
    observability: Observability | None = None


class Length(Part):
    distribution: Literal["fixed", "gaussian", "uniform", "other"]
    value: float


class LoadStandardized(Part):
    tool: str
    tool_version: str
    source: str
    input_seq_len: Length
    output_seq_len: Length | None = None
    parallelism: int | None = None
    stage: int | None = None
    rate_qps: float | None = None
    concurrency: float | None = None  # written as a whole number, as the schema requires; .inf is unlimited


class Native(Part):
    config: Any = None


class Load(Part):
    metadata: Any
    standardized: LoadStandardized
    native: Native


class Component(Part):
    """`standardized` is of the kind `inference_engine`, or `generic` if its accelerator is not known."""

    metadata: dict[str, Any]
    standardized: dict[str, Any]
    native: Native


class Scenario(Part):
    stack: list[Component] | None = None
    load: Load | None = None


class RunTime(Part):
    start: datetime | None = None
    end: datetime | None = None
    duration: timedelta | None = None


class Run(Part):
    uid: str
    eid: str | None = None
    time: RunTime | None = None
    description: str | None = None


class BenchmarkReport(Part):
    run: Run
    results: Results
    scenario: Scenario | None = None
    version: str | float | None = None  # 0.2 without quotes is a number in YAML


@dataclass(frozen=True, slots=True)
class Slot:
    """The field for a metric, a quantity or a gauge of enginebench/records."""

    name: str
    part: Literal["requests", "latency", "throughput"] | None  # None: in a component's resources
    field: str
    units: str  # our units, by their names in the format


SLOTS = (
    Slot(TTFT, "latency", "time_to_first_token", "s"),
    Slot(NTPOT, "latency", "normalized_time_per_output_token", "s/token"),
    Slot(TPOT, "latency", "time_per_output_token", "s/token"),
    Slot(ICL.name, "latency", "inter_token_latency", "s/token"),
    Slot(E2E, "latency", "request_latency", "s"),
    Slot(PROMPT_TOKENS, "requests", "input_length", "count"),
    Slot(OUTPUT_TOKENS, "requests", "output_length", "count"),
    Slot(THROUGHPUT, "throughput", "output_token_rate", "tokens/s"),
    Slot(ACHIEVED_RATE, "throughput", "request_rate", "queries/s"),
    Slot("kv_cache_usage", None, "kv_cache_usage", "fraction"),
    Slot("gpu_memory_bytes", None, "gpu_memory_usage", "bytes"),
    Slot("gpu_utilisation", None, "gpu_utilization", "fraction"),
    Slot("gpu_power_watts", None, "power_consumption", "Watts"),
    Slot("requests_running", None, "running_requests", "count"),
    Slot("requests_waiting", None, "waiting_requests", "count"),
)
OTHER_MEANINGS = {
    ("aiperf", "inter_token_latency"): TPOT,
    ("guidellm", "inter_token_latency"): TPOT,
    ("guidellm", "time_per_output_token"): NTPOT,
}
"""The metrics that tools write into a field, if they differ from its slot's. The inter-token latency of aiperf and
guidellm is a mean for each request. Time per output token of guidellm includes the wait for the first token
(inter_token_latency_metric.py in ai-dynamo/aiperf, schemas/request_stats.py in vllm-project/guidellm)."""

STATISTICS: Mapping[str, str] = {
    "mean": "mean",
    "deviation": "stddev",
    "least": "min",
    "largest": "max",
    **{name: name for name in ("p50", "p90", "p95", "p99")},
}
"""The format's names of the statistics in the frame's table."""

FACTORS: Mapping[str, Mapping[str, float]] = {
    "s": {"s": 1.0, "ms": 1e-3},
    "s/token": {"s/token": 1.0, "ms/token": 1e-3},
    "fraction": {"fraction": 1.0, "percent": 1e-2},
    "bytes": {"bytes": 1.0, "MB": 1e6, "GB": 1e9, "TB": 1e12, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
    **{units: {units: 1.0} for units in ("count", "tokens/s", "queries/s", "Watts")},
}
"""Factors that convert the format's units, by the name of our unit."""
