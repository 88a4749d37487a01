"""Recompute every number of a summary from the lines of a run, in plain Python that shares no code with the analysis.

It is slow and simple on purpose. Each function follows docs/metrics.md.
"""

import json
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

Line = dict[str, Any]
NS = 1_000_000_000
FAILURE = ("http_error", "rejected", "timeout", "disconnected", "bad_stream", "dropped")


def lines_of(folder: Path) -> list[Line]:
    """Return the complete lines of finished requests, in the order of the schedule."""
    lines: list[Line] = []
    for path in folder.glob("requests*.jsonl"):
        text = path.read_text()
        lines += [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return sorted((line for line in lines if line["event"] == "ended"), key=lambda line: line["t_sched"])


def samples_of(folder: Path) -> list[Line]:
    return [json.loads(line) for line in (folder / "telemetry.jsonl").read_text().splitlines()]


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


def ntpot(line: Line, start: str = "t_send") -> float | None:
    whole = seconds(line, start, "t_last")
    return whole / line["output_tokens"] if whole is not None and line["output_tokens"] else None


def client_lag(line: Line) -> float | None:
    return seconds(line, "t_first", "read_first") if line["stamps"] == "kernel" else None


def delivery(line: Line) -> float | None:
    if line["server_queue"] is None or line["server_prefill"] is None or (whole := ttft(line)) is None:
        return None
    return float(whole - line["server_queue"] - line["server_prefill"])


METRICS: dict[str, Callable[[Line], float | None]] = {
    "ttft": ttft,
    "ttft_user": lambda line: seconds(line, "t_sched", "t_first"),
    "ttfo": lambda line: seconds(line, "t_send", "t_first_out"),
    "tpot": tpot,
    "ntpot": ntpot,
    "ntpot_user": lambda line: ntpot(line, "t_sched"),
    "e2e": lambda line: seconds(line, "t_send", "t_last"),
    "e2e_user": lambda line: seconds(line, "t_sched", "t_last"),
    "send_lag": lambda line: seconds(line, "t_sched", "t_send" if line["t_connect"] is None else "t_connect"),
    "connect": lambda line: seconds(line, "t_connect", "t_send"),
    "client_lag": client_lag,
    "delivery": delivery,
    "stall": lambda line: max(line["icl"]) / NS if line["icl"] else None,
}
SENT, ANSWERED = ("send_lag", "connect", "client_lag"), ("delivery", "stall")


def bound(line: Line, metric: str) -> tuple[float, bool]:
    """Return the value of a cut-off request or its lower bound, and whether it is a bound."""
    start = "t_sched" if metric.endswith("user") else "t_send"
    first = {"ttft": "t_first", "ttft_user": "t_first", "ttfo": "t_first_out"}.get(metric)
    if first is not None and line[first] is not None:
        return (line[first] - line[start]) / NS, False
    return (line["t_end"] - line[start]) / NS, True


def counted(lines: list[Line], metric: str) -> list[tuple[float, bool]]:
    """Return the values from which the metric's percentiles are computed, and whether they are lower bounds."""
    if metric not in {*SENT, *ANSWERED}:
        return attempted(lines, metric)
    return [
        (value, False)
        for line in lines
        if metric in SENT or ended_well(line)
        if (value := METRICS[metric](line)) is not None
    ]


def ended_well(line: Line) -> bool:
    return bool(line["outcome"] == "ok")


def attempted(lines: list[Line], metric: str) -> list[tuple[float, bool]]:
    """Return values, and whether they are lower bounds; failed requests are infinite."""
    found = []
    for line in lines:
        if line["outcome"] == "cut_off":
            if metric not in {"tpot", "ntpot", "ntpot_user"}:
                found.append(bound(line, metric))
        elif line["outcome"] != "ok":
            found.append((math.inf, False))
        elif (value := METRICS[metric](line)) is not None:
            found.append((value, False))
    return found


def percentile_of(values: list[tuple[float, bool]], percent: int) -> float | None:
    """Return `None` if the stopped requests could change the percentile by more than 1 %."""
    least = nearest_rank([value for value, _ in values], percent)
    most = nearest_rank([math.inf if stopped else value for value, stopped in values], percent)
    return most if most <= 1.01 * least else None


def nearest_rank(values: list[float], percent: int) -> float:
    """Compute the rank, percent · n / 100 rounded up, in integers, so that rounding of floats cannot change it."""
    return sorted(values)[-(-percent * len(values) // 100) - 1]


def token_stamps(line: Line) -> list[tuple[int, float]]:
    """Return when each chunk arrived, and its number of tokens."""
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


def good(line: Line, metric: str, limit: float) -> bool | None:
    """Return whether a request met an objective; `None` if it was cut off too early to tell."""
    if line["outcome"] == "cut_off":
        least, stopped = bound(line, metric)
        return False if least > limit else None if stopped else True
    value = METRICS[metric](line)
    return ended_well(line) and value is not None and value <= limit


@dataclass(frozen=True)
class Stage:
    """The input for the quantities of one stage: all lines of the run, and the window of the stage."""

    lines: list[Line]
    samples: list[Line]
    meta: dict[str, Any]
    start: int
    end: int
    users: int
    objectives: dict[str, float]  # limits by metric

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / NS

    def within(self, stamp: str) -> list[Line]:
        return [line for line in self.lines if line[stamp] is not None and self.start <= line[stamp] < self.end]

    @property
    def due(self) -> list[Line]:
        return self.within("t_sched")

    @property
    def ok(self) -> list[Line]:
        return [line for line in self.due if ended_well(line)]

    @property
    def failed(self) -> list[Line]:
        return [line for line in self.due if line["outcome"] in FAILURE]

    @property
    def sampled(self) -> list[Line]:
        return [sample for sample in self.samples if self.start <= sample["t"] < self.end]

    @property
    def all_good(self) -> list[bool]:
        """Return whether each request met every objective, without the requests for which that is unknown."""
        answers = [[good(line, metric, limit) for metric, limit in self.objectives.items()] for line in self.due]
        return [all(answer) for answer in answers if False in answer or None not in answer]


def mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _mean_of(field: str) -> Callable[[Stage], float | None]:
    return lambda stage: mean([line[field] for line in stage.ok if line[field] is not None])


def _user_throughput(stage: Stage) -> float | None:
    median = percentile_of(attempted(stage.due, "tpot"), 50)
    return 1 / median if median else None


def _littles_law(stage: Stage) -> float | None:
    stays = [(line["t_end"] - line["t_send"]) / NS for line in stage.within("t_send")]
    stay = mean(stays)
    return len(stays) / stage.seconds * stay if stay and stage.seconds >= 5 * stay else None


def _dispersion(stage: Stage) -> float | None:
    """Return variance over mean of the number of arrivals in tenths of a user's cycle."""
    sent = [line["t_send"] for line in stage.due if line["t_send"] is not None and line["t_send"] < stage.end]
    if len(sent) < 2 * stage.users:
        return None
    bins = [0] * max(10, round(10 * len(sent) / stage.users))
    for t in sent:
        bins[(t - stage.start) * len(bins) // (stage.end - stage.start)] += 1
    return statistics.variance(bins) / statistics.mean(bins)


def _users_running(stage: Stage) -> float | None:
    """Average, at each quarter of a second, the larger number of users in the samples just before and after it."""
    counts = []
    for t in range(stage.start, stage.end, NS // 4):
        before = [s for s in stage.samples if s["t"] < t][-1:] or stage.samples[:1]
        after = [s for s in stage.samples if s["t"] >= t][:1] or stage.samples[-1:]
        near = [s["users"] for s in (*before, *after) if abs(s["t"] - t) <= 2 * NS]
        counts.append(min(max(near, default=0), stage.users))
    return mean(counts)


def _planned_tokens(stage: Stage) -> float | None:
    known = [line for line in stage.ok if line["output_tokens"] is not None]
    return mean([line["planned_output_tokens"] for line in known if line["planned_output_tokens"] is not None])


def _tokens_per_chunk(stage: Stage) -> float | None:
    streamed = [line for line in stage.ok if line["chunks"] and line["output_tokens"] is not None]
    seen = sum(line["output_tokens"] - line["unseen_tokens"] for line in streamed)
    return seen / sum(line["chunks"] for line in streamed) if streamed else None


def _part(of: Callable[[Line], float]) -> Callable[[Stage], float | None]:
    return lambda stage: mean([of(line) for line in stage.ok if delivery(line) is not None])


def _energy_per_token(stage: Stage) -> float | None:
    """Integrate power by trapezoids between the first and the last sample inside the window."""
    watts = [(s["t"], sum(v for k, v in s["server"].items() if "power_watts" in k)) for s in stage.sampled]
    joules = math.fsum((b[0] - a[0]) / NS * (a[1] + b[1]) / 2 for a, b in pairwise(watts))
    return joules / tokens_between(stage.lines, watts[0][0], watts[-1][0]) if joules else None


def _increase(stage: Stage, counter: str) -> float:
    first, last = ([v for k, v in s["server"].items() if counter in k] for s in (stage.sampled[0], stage.sampled[-1]))
    return float(last[0] - first[0])


def _chunk_rate(stage: Stage) -> float | None:
    stamps = []
    for line in stage.lines:
        if line["t_first"] is not None and line["t_last"] is not None:
            stamps += [line["t_first"] + sum(line["icl"][:k]) for k in range(len(line["icl"]) + 1)]
    edges = [stage.start + (stage.end - stage.start) * k // 10 for k in range(11)]
    most = max(sum(a <= t < b for t in stamps) for a, b in pairwise(edges))
    return most / (stage.seconds / 10) or None


def _client_error(stage: Stage) -> float | None:
    """Return the smallest error among the calibrated conditions that were at least as demanding."""
    rate, delay = _chunk_rate(stage), mean([s["run_delay"] for s in stage.sampled])
    assert rate is not None
    assert delay is not None
    return min(
        (error for chunks, busy, error in stage.meta["client_error"] if chunks >= rate and busy >= delay), default=None
    )


QUANTITIES: dict[str, Callable[[Stage], float | None]] = {
    "offered_rate": lambda stage: len(stage.due) / stage.seconds,
    "achieved_rate": lambda stage: sum(map(ended_well, stage.within("t_end"))) / stage.seconds,
    "throughput": lambda stage: tokens_between(stage.lines, stage.start, stage.end) / stage.seconds,
    "user_throughput": _user_throughput,
    "goodput": lambda stage: sum(stage.all_good) / stage.seconds,
    "attainment": lambda stage: mean([float(one) for one in stage.all_good]),
    "failure_share": lambda stage: len(stage.failed) / (len(stage.failed) + len(stage.ok)),
    "correct": _mean_of("correct"),
    "failure_rate": lambda stage: len(stage.failed) / stage.seconds,
    "concurrency": lambda stage: in_flight(stage.lines, stage.start, stage.end),
    "littles_law": _littles_law,
    "dispersion": _dispersion,
    "users_running": _users_running,
    "prompt_tokens": _mean_of("prompt_tokens"),
    "cached_tokens": _mean_of("cached_tokens"),
    "output_tokens": _mean_of("output_tokens"),
    "planned_tokens": _planned_tokens,
    "reasoning_tokens": _mean_of("reasoning_tokens"),
    "tokens_per_chunk": _tokens_per_chunk,
    "ttft_client": _part(lambda line: (line["t_send"] - line["t_sched"]) / NS),
    "ttft_queue": _part(lambda line: line["server_queue"]),
    "ttft_prefill": _part(lambda line: line["server_prefill"]),
    "ttft_delivery": _part(lambda line: delivery(line) or 0.0),
    "round_trip": _mean_of("round_trip"),
    "acceptance_length": lambda stage: 1 + _increase(stage, "accepted_tokens") / _increase(stage, "num_drafts"),
    "acceptance_rate": lambda stage: _increase(stage, "accepted_tokens") / _increase(stage, "draft_tokens"),
    "energy_per_token": _energy_per_token,
    "chunk_rate": _chunk_rate,
    "client_error": _client_error,
}
