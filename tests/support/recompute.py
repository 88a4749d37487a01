"""Every number of a summary once more, from the lines of a run: plain Python that shares no code with the analysis.

It is slow and simple on purpose. Each function follows docs/metrics.md.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

Line = dict[str, Any]
NS = 1_000_000_000


def lines_of(folder: Path) -> list[Line]:
    """Whole lines of finished requests only, in the order in which the schedule planned them."""
    lines: list[Line] = []
    for path in folder.glob("requests*.jsonl"):
        text = path.read_text()
        lines += [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return sorted((line for line in lines if line["outcome"] != "sent"), key=lambda line: line["t_sched"])


def seconds(line: Line, start: str, end: str) -> float | None:
    if line[start] is None or line[end] is None:
        return None
    return float((line[end] - line[start]) / NS)


def ttft(line: Line) -> float | None:
    return seconds(line, "t_send", "t_first")


def tpot(line: Line) -> float | None:
    n, first = line["output_tokens"], line["first_chunk_tokens"]
    span = seconds(line, "t_first", "t_last")
    if n is None or span is None or not line["chunks"]:
        return None
    if first is None:
        first = n / line["chunks"]
    return span / (n - first) if n > first else None


def ntpot(line: Line) -> float | None:
    whole = seconds(line, "t_send", "t_last")
    return whole / line["output_tokens"] if whole is not None and line["output_tokens"] else None


def client_lag(line: Line) -> float | None:
    return seconds(line, "t_first", "read_first") if line["stamps"] == "kernel" else None


METRICS = {
    "ttft": ttft,
    "ttft_user": lambda line: seconds(line, "t_sched", "t_first"),
    "ttfo": lambda line: seconds(line, "t_send", "t_first_out"),
    "tpot": tpot,
    "ntpot": ntpot,
    "e2e": lambda line: seconds(line, "t_send", "t_last"),
    "e2e_user": lambda line: seconds(line, "t_sched", "t_last"),
    "send_lag": lambda line: seconds(line, "t_sched", "t_send"),
    "client_lag": client_lag,
}


def nearest_rank(values: list[float], percent: int) -> float:
    """In whole numbers, so that no float decides: the rank is percent · n / 100, rounded up."""
    return sorted(values)[-(-percent * len(values) // 100) - 1]


def inflation(series: list[float]) -> float:
    """2 Σ Γ − 1 over the positive, decreasing sums Γ of neighbouring autocorrelations (Geyer 1992); at least 1."""
    n = len(series)
    mean = math.fsum(series) / n
    centred = [value - mean for value in series]
    variance = math.fsum(value * value for value in centred)
    if variance == 0 or n < 4:
        return 1.0

    def rho(lag: int) -> float:
        return math.fsum(a * b for a, b in zip(centred, centred[lag:], strict=False)) / variance

    total, least, lag = 0.0, math.inf, 0
    while lag + 1 < n:
        pair = rho(lag) + rho(lag + 1)
        if pair <= 0:
            break
        least = min(least, pair)
        total += least
        lag += 2
    return max(1.0, 2 * total - 1)


def binomial_ranks(n: int, p: float) -> tuple[int, int]:
    """Smallest l and u with P(B ≤ l) ≥ 2.5 % and P(B ≤ u − 1) ≥ 97.5 %, by adding up."""
    logs = [
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log1p(-p)
        for k in range(n + 1)
    ]
    below, low = 0.0, None
    for k, log in enumerate(logs):
        below += math.exp(log)
        if low is None and below >= 0.025:
            low = k
        if below >= 0.975:
            assert low is not None
            return low, k + 1
    raise AssertionError("probabilities add up to one")


def interval(values: list[float], percent: int) -> tuple[float | None, float | None]:
    """The percentile's 95 % interval over values in time order."""
    n, p = len(values), percent / 100
    least = math.ceil(math.log(0.025) / math.log(max(p, 1 - p)))
    value = nearest_rank(values, percent)
    worth = int(n / inflation([float(v <= value) for v in values]))
    if worth < least:
        return None, None
    low, high = binomial_ranks(worth, p)
    ordered = sorted(values)
    return ordered[max(1, math.floor(low * n / worth)) - 1], ordered[min(n, math.ceil(high * n / worth)) - 1]


def token_stamps(line: Line) -> list[tuple[int, float]]:
    """When each chunk came, and how many tokens it brought."""
    n = line["output_tokens"]
    if n is None or line["t_last"] is None:
        return []
    if line["t_first"] is None:
        return [(line["t_last"], float(n))]
    later = len(line["icl"])
    if later == 0:
        return [(line["t_first"], float(n))]
    first = line["first_chunk_tokens"]
    first = n / (later + 1) if first is None else min(first, n)
    stamps, t = [(line["t_first"], float(first))], line["t_first"]
    for gap in line["icl"]:
        t += gap
        stamps.append((t, (n - first) / later))
    return stamps


def tokens_between(lines: list[Line], start: int, end: int) -> float:
    return math.fsum(weight for line in lines for t, weight in token_stamps(line) if start <= t < end)


def in_flight(lines: list[Line], start: int, end: int) -> float:
    overlap = sum(
        max(min(line["t_end"], end) - max(line["t_send"], start), 0) for line in lines if line["t_send"] is not None
    )
    return float(overlap / (end - start))


def t_interval(batches: list[float]) -> tuple[float, float]:
    """Of a rate, which is never below zero."""
    n, inflated = len(batches), inflation(batches)
    mean = math.fsum(batches) / n
    deviation = math.sqrt(math.fsum((b - mean) ** 2 for b in batches) / (n - 1))
    half = float(stats.t.ppf(0.975, max(1.0, n / inflated - 1))) * deviation * math.sqrt(inflated / n)
    return max(mean - half, 0.0), mean + half


def wilson(hits: int, n: int) -> tuple[float, float]:
    z = 1.959963984540054
    middle, half = hits + z * z / 2, z * math.sqrt(hits * (n - hits) / n + z * z / 4)
    return (middle - half) / (n + z * z), (middle + half) / (n + z * z)
