"""What servers did, as their metrics in a Prometheus say: `enginebench_*`, or vLLM's own `vllm:*`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from analysis.plan.errors import CannotPlan

TIMEOUT = 30.0  # seconds for one query


@dataclass(frozen=True, slots=True)
class Names:
    """Of one server's metrics. The latencies are histograms in seconds, one observation a request; `replicas` counts a
    server's engine processes, `None` where each server has one."""

    requests: str
    prompt_tokens: str
    output_tokens: str
    ttft: str
    tpot: str
    e2e: str
    replicas: str | None = None


KNOWN = (
    Names(
        "enginebench_requests_total",
        "enginebench_prompt_tokens_total",
        "enginebench_generation_tokens_total",
        "enginebench_time_to_first_token_seconds",
        "enginebench_time_per_output_token_seconds",
        "enginebench_e2e_request_latency_seconds",
        "enginebench_engine_replicas",
    ),
    Names(
        "vllm:request_success_total",
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:time_to_first_token_seconds",
        "vllm:request_time_per_output_token_seconds",
        "vllm:e2e_request_latency_seconds",
    ),
)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts by upper bound in seconds, ascending, the last one +∞; and the sum of all values."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def count(self) -> float:
        return self.counts[-1] if self.counts else 0.0

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count > 0 else math.nan

    def quantile(self, q: float) -> tuple[float, float]:
        """The ends of the bucket that holds it: no more is known."""
        below = 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= q * self.count:
                return below, bound
            below = bound
        return below, math.inf

    def within(self, limit: float) -> tuple[float, float]:
        """The least and the largest share of values up to `limit` that agree with the counts."""
        at_least = max((c for b, c in zip(self.bounds, self.counts, strict=True) if b <= limit), default=0.0)
        at_most = min((c for b, c in zip(self.bounds, self.counts, strict=True) if b >= limit), default=self.count)
        return at_least / self.count, at_most / self.count


@dataclass(frozen=True, slots=True)
class Served:
    """What all replicas together did in the `seconds` before `end`, a Unix time."""

    end: float
    seconds: float
    replicas: int  # that served requests
    rate: float  # requests per second
    prompt_tokens: float  # of the mean request
    output_tokens: float
    histograms: Mapping[str, Histogram]  # ttft, tpot, e2e


class Prometheus:
    """The HTTP API of one. `select` are label matchers such as `job="chat"`."""

    def __init__(self, url: str, select: str = "") -> None:
        self._client = httpx.Client(base_url=url.rstrip("/"), timeout=TIMEOUT)
        self._url, self._select = url, select

    def ask(self, query: str, at: float) -> list[dict[str, Any]]:
        """The series of an instant query. Raises `CannotPlan` with a sentence."""
        try:
            answer = self._client.get("/api/v1/query", params={"query": query, "time": f"{at:.3f}"})
            told = answer.json()
        except httpx.HTTPError as error:
            raise CannotPlan(f"no Prometheus answers at {self._url} ({type(error).__name__}).") from None
        except ValueError:
            raise CannotPlan(f"the server at {self._url} is not a Prometheus.") from None
        if told.get("status") != "success":
            raise CannotPlan(f"Prometheus refused `{query}`: {told.get('error', 'no reason given')}.")
        found: list[dict[str, Any]] = told["data"]["result"]
        return found

    def served(self, end: float, seconds: float) -> Served | None:
        """`None` where no request was served. Raises `CannotPlan`."""
        for names in KNOWN:
            span = f"[{seconds:.0f}s]"
            by_instance = self.ask(f"sum by (instance) (increase({names.requests}{{{self._select}}}{span})) > 0", end)
            count = sum(_value(one) for one in by_instance)
            if count > 0:
                prompts, outputs = (
                    self._sum(f"{name}{{{self._select}}}{span}", end)
                    for name in (names.prompt_tokens, names.output_tokens)
                )
                histograms = {
                    name: self._histogram(getattr(names, name), span, end) for name in ("ttft", "tpot", "e2e")
                }
                replicas = self._replicas(names, span, end) or len(by_instance)
                return Served(end, seconds, replicas, count / seconds, prompts / count, outputs / count, histograms)
        return None

    def _replicas(self, names: Names, span: str, end: float) -> int:
        """Of all servers, the mean over the time span; 0 where they do not tell."""
        if names.replicas is None:
            return 0
        found = self.ask(f"sum(avg_over_time({names.replicas}{{{self._select}}}{span}))", end)
        return round(sum(_value(one) for one in found))

    def _sum(self, counter: str, end: float) -> float:
        return sum(_value(one) for one in self.ask(f"sum(increase({counter}))", end))

    def _histogram(self, name: str, span: str, end: float) -> Histogram:
        series = self.ask(f"sum by (le) (increase({name}_bucket{{{self._select}}}{span}))", end)
        buckets = sorted((float(one["metric"]["le"]), _value(one)) for one in series)
        return Histogram(
            tuple(bound for bound, _ in buckets),
            tuple(count for _, count in buckets),
            self._sum(f"{name}_sum{{{self._select}}}{span}", end),
        )


def _value(series: Mapping[str, Sequence[Any]]) -> float:
    return float(series["value"][1])
