"""A server's `/metrics`, ours or that of another engine: rates and percentiles over the last reads."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence

import httpx
from prometheus_client.parser import text_string_to_metric_families

from analysis.run.telemetry import COUNTERS, GAUGES, value_of
from analysis.units import format_share
from analysis.watch.moment import Moment, Percentiles, gauges_of
from records.telemetry import TelemetrySample

READS = 10  # over which rates and percentiles are taken
HISTOGRAMS = {  # by title: names of the family, in the order in which they are looked for
    "TTFT": (
        "enginebench_load_ttft_seconds",
        "enginebench_time_to_first_token_seconds",
        "vllm:time_to_first_token_seconds",
        "sglang:time_to_first_token_seconds",
        "trtllm_time_to_first_token_seconds",
    ),
    "TPOT": (
        "enginebench_load_tpot_seconds",
        "enginebench_time_per_output_token_seconds",
        "vllm:request_time_per_output_token_seconds",
        "trtllm_time_per_output_token_seconds",
    ),
}
REQUESTS = ("enginebench_load_requests_total", "enginebench_requests_total", "vllm:request_success_total")
GOOD_ENDS = {"ok", "stop", "length", "cancelled", "cut_off"}  # values of `outcome` and `finished_reason`

Samples = Mapping[str, float]  # name with labels -> value


class UnreachableServer(ValueError):
    """The text is a sentence."""


class ServerPage:
    """`url` is the server's, or that of a load test's exporter. Raises `UnreachableServer`."""

    def __init__(self, url: str) -> None:
        base = url if "://" in url else f"http://{url}"
        self._url = base if base.endswith("/metrics") else base.rstrip("/") + "/metrics"
        self._http = httpx.Client(timeout=5, trust_env=False)
        self._looks: deque[tuple[float, Samples]] = deque(maxlen=READS)
        self.title = self._url
        self._read()

    def look(self) -> Moment:
        now, samples = time.monotonic(), self._read()
        before, first = self._looks[0] if self._looks else (now, samples)
        self._looks.append((now, samples))
        elapsed = now - before
        sample, earlier = TelemetrySample(0, server=samples), TelemetrySample(0, server=first)
        users = _sum(samples, "enginebench_load_users")
        rate, failed = _requests(first, samples, elapsed)
        return Moment(
            at=now,
            users=None if users is None else round(users),
            in_flight=_sum(samples, "enginebench_load_in_flight"),
            rate=rate,
            failed=failed,
            tokens=_tokens(earlier, sample, elapsed),
            latencies=_latencies(first, samples),
            findings=_findings(sample, failed),
            **gauges_of(sample),
        )

    def _read(self) -> Samples:
        try:
            answer = self._http.get(self._url)
            answer.raise_for_status()
            families = list(text_string_to_metric_families(answer.text))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableServer(f"{self._url} cannot be read: {error}.") from None
        except ValueError:
            raise UnreachableServer(f"{self._url} is not a page of Prometheus metrics.") from None
        return {_key(sample.name, sample.labels): sample.value for family in families for sample in family.samples}


def _key(name: str, labels: Mapping[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={value}' for label, value in sorted(labels.items()))}}}"


def _named(samples: Samples, name: str) -> dict[str, float]:
    return {key: value for key, value in samples.items() if key.partition("{")[0] == name}


def _sum(samples: Samples, name: str) -> float | None:
    found = _named(samples, name)
    return sum(found.values()) if found else None


def _requests(first: Samples, last: Samples, elapsed: float) -> tuple[float | None, float | None]:
    """Requests that ended per second, and the share of them that failed."""
    for name in REQUESTS:
        found = _named(last, name)
        if found and elapsed > 0:
            ended = {key: value - first.get(key, 0.0) for key, value in found.items()}
            total = sum(ended.values())
            bad = sum(value for key, value in ended.items() if not GOOD_ENDS & set(_values(key)))
            return total / elapsed, bad / total if total > 0 else None
    return None, None


def _values(key: str) -> list[str]:
    return [label.partition("=")[2] for label in key.partition("{")[2].rstrip("}").split(",")]


def _tokens(first: TelemetrySample, last: TelemetrySample, elapsed: float) -> float | None:
    exported = [_sum(one.server, "enginebench_load_output_tokens_total") for one in (first, last)]
    counted = [value_of(COUNTERS["generated_tokens"], one) for one in (first, last)]
    for before, after in (exported, counted):
        if before is not None and after is not None and elapsed > 0:
            return (after - before) / elapsed
    return None


def _latencies(first: Samples, last: Samples) -> dict[str, Percentiles]:
    found = {}
    for title, names in HISTOGRAMS.items():
        for name in names:
            buckets = _buckets(first, last, f"{name}_bucket")
            if buckets and buckets[-1][1] > 0:
                found[title] = Percentiles(quantile(0.5, buckets), quantile(0.99, buckets))
                break
    return found


def _buckets(first: Samples, last: Samples, name: str) -> list[tuple[float, float]]:
    """(upper edge, requests up to it) between two reads, over all labels."""
    counts: dict[float, float] = {}
    for key, value in _named(last, name).items():
        edge = next(float(label[3:]) for label in key.partition("{")[2].rstrip("}").split(",") if label[:3] == "le=")
        counts[edge] = counts.get(edge, 0.0) + value - first.get(key, 0.0)
    return sorted(counts.items())


def quantile(q: float, buckets: Sequence[tuple[float, float]]) -> float:
    """Interpolated inside its bucket, as Prometheus does; infinite in the last one."""
    rank, low, below = q * buckets[-1][1], 0.0, 0.0
    for edge, count in buckets:
        if count >= rank and count > below:
            return math.inf if math.isinf(edge) else low + (edge - low) * (rank - below) / (count - below)
        low, below = edge, count
    return math.inf


def _findings(sample: TelemetrySample, failed: float | None) -> list[str]:
    found = []
    if failed is not None and failed > 0.01:
        found.append(f"{format_share(failed)} of the requests fail")
    if (kv := value_of(GAUGES["kv_cache_usage"], sample)) is not None and kv > 0.95:
        found.append("the KV cache is full")
    if (hot := value_of(GAUGES["gpu_temperature_celsius"], sample)) is not None and hot >= 85:
        found.append(f"a GPU is at {hot:.0f} °C")
    return found
