"""Short functions that return PromQL, and the names of what servers export.

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

CHOSEN = 'engine=~"$engine",instance=~"$instance"'  # on the servers' own metrics
ON_INSTANCE = 'instance=~"$instance"'  # on process and GPU metrics, which carry no engine
WINDOW = "[$__rate_interval]"
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True)
class Query:
    """One PromQL expression and the legend of its series. `instant`: only its value at the end of the time range."""

    expr: str
    legend: str = "{{engine}}"
    instant: bool = False


def rate(counter: str, by: str = "engine", where: str = "", chosen: str = CHOSEN) -> str:
    """Per second, summed by a label; `by=""` sums everything that is chosen."""
    grouped = f"sum by ({by})" if by else "sum"
    selector = f"{chosen},{where}" if where else chosen
    return f"{grouped} (rate({counter}{{{selector}}}{WINDOW}))"


def gauge(name: str, of: str = "sum") -> str:
    return f"{of} by (engine) ({name}{{{CHOSEN}}})"


def quantile(q: float, histogram: str) -> str:
    return f"histogram_quantile({q}, {rate(histogram + '_bucket', by='engine, le')})"


def percentiles(histogram: str) -> list[Query]:
    return [Query(quantile(q / 100, histogram), f"{{{{engine}}}} p{q}") for q in PERCENTILES]


def mean(histogram: str, by: str = "engine") -> str:
    return f"{rate(histogram + '_sum', by)} / {rate(histogram + '_count', by)}"


def attainment(histogram: str, threshold: str) -> str:
    """Share of all requests, failed ones included, that stayed under a threshold, an edge of the histogram's buckets.

    A request counts as attempted only when it ends, after its first token, so the ratio is capped at 1.
    """
    within = rate(f"{histogram}_bucket", where=f'le="{threshold}"')
    return f"clamp_max({within} / {rate(REQUESTS)}, 1)"
