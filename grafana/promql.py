"""Short functions that return PromQL, and the names of the servers' metrics.

Values are summed by engine, so that replicas of one engine count as one and engines can be compared.
Quantiles come from histograms: they are exact to within the bucket they fall in (Prometheus interpolates inside it).
Shares of requests under a threshold are exact, because the thresholds are edges of buckets.
"""

from __future__ import annotations

from dataclasses import dataclass

TTFT = "enginebench_time_to_first_token_seconds"
TPOT = "enginebench_time_per_output_token_seconds"
ICL = "enginebench_inter_chunk_latency_seconds"
E2E = "enginebench_e2e_request_latency_seconds"
QUEUE = "enginebench_request_queue_time_seconds"
PREFILL = "enginebench_request_prefill_time_seconds"
DECODE = "enginebench_request_decode_time_seconds"
REQUESTS = "enginebench_requests_total"
PROMPT_TOKENS = "enginebench_prompt_tokens_total"
OUTPUT_TOKENS = "enginebench_generation_tokens_total"
BUILD_INFO = "enginebench_build_info"
READY, REPLICAS = "enginebench_engine_ready", "enginebench_engine_replicas"
ENGINE_RESTARTS = "enginebench_engine_restarts_total"
RUNNING, WAITING = "enginebench_requests_running", "enginebench_requests_waiting"
SLOTS = "enginebench_engine_max_concurrency"
KV_CACHE = "enginebench_kv_cache_usage_ratio"
ENGINE_CPU, SERVER_CPU = "enginebench_engine_cpu_seconds_total", "process_cpu_seconds_total"
ENGINE_MEMORY, SERVER_MEMORY = "enginebench_engine_memory_bytes", "process_resident_memory_bytes"
ENGINE_MEMORY_PEAK = "enginebench_engine_memory_peak_bytes"
GPU = "enginebench_gpu_"  # before the name of a GPU's quantity

CHOSEN = 'engine=~"$engine",instance=~"$instance"'  # on the servers' own metrics
ON_INSTANCE = 'instance=~"$instance"'  # on process and GPU metrics, which carry no engine
SERVER_FAILED = 'outcome=~"rejected|timeout|engine_error|unavailable"'
WINDOW = "[$__rate_interval]"  # for lines: the time just before each point
STAGE = "[${stage_seconds}s] offset ${stage_ago}s"  # for tiles: see variables.STAGE
DRAWN = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and the legend of its series."""

    expr: str
    legend: str = "{{engine}}"


def rate(counter: str, by: str = "engine", where: str = "", chosen: str = CHOSEN, window: str = WINDOW) -> str:
    """Return the rate per second, summed by a label; `by=""` sums everything that is chosen."""
    grouped = f"sum by ({by})" if by else "sum"
    selector = f"{chosen},{where}" if where else chosen
    return f"{grouped} (rate({counter}{{{selector}}}{window}))"


def gauge(name: str, operator: str = "sum") -> str:
    return f"{operator} by (engine) ({name}{{{CHOSEN}}})"


def quantile(q: float, histogram: str, chosen: str = CHOSEN, window: str = WINDOW) -> str:
    return f"histogram_quantile({q}, {rate(histogram + '_bucket', 'engine, le', '', chosen, window)})"


def percentiles(histogram: str) -> list[Query]:
    return [Query(quantile(q / 100, histogram), f"{{{{engine}}}} p{q}") for q in DRAWN]


def mean(histogram: str, by: str = "engine", chosen: str = CHOSEN) -> str:
    return f"{rate(histogram + '_sum', by, '', chosen)} / {rate(histogram + '_count', by, '', chosen)}"


def attainment(histogram: str, threshold: str) -> str:
    """Return the share of requests that stayed under a threshold, an edge of the histogram's buckets, in the stage.

    Failures count as missed; one after its first token counts twice, also as the request that was in time. The others
    are counted by the histogram itself: a request ends after its first token, so that finished requests lag behind
    first tokens.
    """
    within = rate(f"{histogram}_bucket", where=f'le="{threshold}"', window=STAGE)
    observed = rate(f"{histogram}_count", window=STAGE)
    failed = rate(REQUESTS, where=SERVER_FAILED, window=STAGE)
    return f"{within} / ({observed} + ({failed} or 0 * {observed}))"
