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
    return sorted((line for line in lines if line["event"] == "ended"), key=lambda line: line["t_sched"])


def seconds(line: Line, start: str, end: str) -> float | None:
    if line[start] is None or line[end] is None:
        return None
    return float((line[end] - line[start]) / NS)


def ttft(line: Line) -> float | None:
    return seconds(line, "t_send", "t_first")


def tpot(line: Line) -> float | None:
    n, first = line["output_tokens"], line["first_chunk_tokens"]
    span = seconds(line, "t_first", "t_last")
    if n is None or not span or not line["chunks"]:
        return None
    n -= line["unseen_tokens"]
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
    "send_lag": lambda line: seconds(line, "t_sched", "t_send" if line["t_connect"] is None else "t_connect"),
    "client_lag": client_lag,
}


def bound(line: Line, metric: str) -> tuple[float, bool]:
    """Of a request that was cut off: its value or a lower bound, and whether it is a bound."""
    start = "t_sched" if metric.endswith("user") else "t_send"
    first = {"ttft": "t_first", "ttft_user": "t_first", "ttfo": "t_first_out"}.get(metric)
    if first is not None and line[first] is not None:
        return (line[first] - line[start]) / NS, False
    return (line["t_end"] - line[start]) / NS, True


def attempted(lines: list[Line], metric: str) -> list[tuple[float, bool]]:
    """Values and whether they are lower bounds; failed requests have waited for ever."""
    found = []
    for line in lines:
        if line["outcome"] == "cut_off":
            if metric not in {"tpot", "ntpot"}:
                found.append(bound(line, metric))
        elif line["outcome"] != "ok":
            found.append((math.inf, False))
        elif (value := METRICS[metric](line)) is not None:
            found.append((value, False))
    return found


def percentile_of(values: list[tuple[float, bool]], percent: int) -> float | None:
    """Nothing where it depends by more than 1 % on how long the stopped requests would have taken."""
    least = nearest_rank([value for value, _ in values], percent)
    most = nearest_rank([math.inf if stopped else value for value, stopped in values], percent)
    return most if most <= 1.01 * least else None


def nearest_rank(values: list[float], percent: int) -> float:
    """In whole numbers, so that no float decides: the rank is percent · n / 100, rounded up."""
    return sorted(values)[-(-percent * len(values) // 100) - 1]


def token_stamps(line: Line) -> list[tuple[int, float]]:
    """When each chunk came, and how many tokens it brought."""
    n = line["output_tokens"]
    if n is None or line["t_last"] is None:
        return []
    n -= line["unseen_tokens"]
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
