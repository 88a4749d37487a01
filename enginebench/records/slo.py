"""Service-level objectives: "99 % of the requests get their first token within half a second" is `ttft_p99=0.5`.

An objective is a share of requests and a limit, so it can be judged request by request: failures count as bad, and
latencies count from the scheduled time, as the user experiences them. `failures=0.01` limits only the share of failed
requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from enginebench.records.formatting import format_limit, format_share, significant
from enginebench.records.formula import Formula, Reader, reader
from enginebench.records.metrics import OBJECTIVES, Metric
from enginebench.records.rules import within
from enginebench.settings.units import parse_seconds

FAILURES = "failures"
GRAMMAR = f"METRIC_pN=TIME, such as ttft_p99=500ms, with METRIC one of {', '.join(OBJECTIVES)}, or failures=SHARE"
SLO_HELP = f"Objective for each load: {GRAMMAR}; may be repeated, or several separated by commas."
OTHER_NAMES = {"itl": "tpot", "icl": "tpot", "latency": "e2e", "first_token": "ttft"}
MAX_SECONDS = 60.0  # for a limit without a unit: a larger number is probably milliseconds


@dataclass(frozen=True, slots=True)
class Objective:
    """At least a share `q` of the requests have `metric` at or below `limit` seconds, and did not fail.

    `metric` is the metric's name in an SLO, or `FAILURES`, which has no limit.
    """

    metric: str
    q: float
    limit: float = 0.0

    @property
    def statistic(self) -> str:
        """Return the percentile that is at the limit when the objective is just met, such as `p95`."""
        return f"p{100 * self.q:.12g}"

    @property
    def name(self) -> str:
        return FAILURES if self.metric == FAILURES else f"{self.metric}_{self.statistic}"

    def __str__(self) -> str:
        """Write the objective as a user types it."""
        if self.metric == FAILURES:
            limit = f"{1 - self.q:g}"
        else:
            limit = f"{self.limit:g}{'s' if self.limit > MAX_SECONDS else ''}"
        return f"{self.name}={limit}"

    @property
    def typed(self) -> str:
        """Write the objective with a unit: `ttft_p95=500ms`."""
        if self.metric == FAILURES:
            return str(self)
        unit, size = ("ms", 0.001) if self.limit < 1 else ("s", 1.0)
        return f"{self.name}={self.limit / size:.6g}{unit}"

    @property
    def judged(self) -> Metric | None:
        """Return the metric that is judged, from the instant the request was due; `None` for failures."""
        return None if self.metric == FAILURES else OBJECTIVES[self.metric]

    @property
    def column(self) -> str | None:
        return None if self.judged is None else self.judged.name

    @property
    def within(self) -> Formula:
        """Return a formula that is 1 if a request met the objective, 0 if it missed it, null if the request was cut off
        before or its tokens are unknown."""
        metric = self.judged
        if metric is None:
            return within(None, 0.0)
        return within(metric.formula, self.limit, metric.needs, metric.absent_is_good)

    def met_by(self, request: Any) -> bool | None:
        """Return whether a request that has ended met the objective; `None` if unknown."""
        met = _reader(self)(request)
        return None if met is None else met == 1

    def judge(self, request: Any) -> tuple[bool, float | None]:
        """Return whether a request that has ended met the objective, and a successful request's latency, if any."""
        value = None if self.judged is None or request.outcome != "ok" else self.judged.read(request)
        return _reader(self)(request) == 1, value

    @property
    def text(self) -> str:
        """Write `TTFT p99 ≤ 1 s`."""
        if self.judged is None:
            return f"failures ≤ {format_share(1 - self.q)}"
        limit = format_limit(self.limit) if self.judged.unit == "s" else significant(self.limit)
        return f"{self.judged.short_title} {self.statistic} ≤ {limit}"


@cache
def _reader(objective: Objective) -> Reader:
    return reader(objective.within)


_not_failed = reader(within(None, 0.0))


@dataclass(frozen=True, slots=True)
class RunObjectives:
    """The objectives of a run: for all requests, and by class."""

    for_all: tuple[Objective, ...] = ()
    by_class: Mapping[str, tuple[Objective, ...]] = field(default_factory=dict)

    @staticmethod
    def from_workload(workload: Mapping[str, Any]) -> RunObjectives:
        """Read the `workload` of a run's `meta.json`. Raises `ValueError` with a sentence."""
        by_class = workload.get("class_objectives") or {}
        return RunObjectives(
            parse_objectives([workload.get("slo") or ""]),
            {name: parse_objectives([text]) for name, text in by_class.items()},
        )

    def __bool__(self) -> bool:
        return bool(self.for_all) or any(self.by_class.values())

    def met_by(self, request: Any) -> bool | None:
        """Return whether a request that has ended met every objective, including its class's; `None` if unknown, and
        without objectives."""
        objectives = (*self.for_all, *self.by_class.get(request.request_class, ()))
        if not self:
            return None
        met = [_reader(objective)(request) for objective in objectives] or [_not_failed(request)]
        return False if 0 in met else None if None in met else True


def parse_objectives(texts: Iterable[str]) -> tuple[Objective, ...]:
    """Parse texts of one or several comma-separated objectives. Raises `ValueError` with a sentence."""
    return tuple(dict.fromkeys(_parse(part) for text in texts for part in text.split(",") if part.strip()))


def read_objectives(text: str) -> tuple[Objective, ...]:
    """Parse the objectives of all lines of a text. Raises `ValueError` with a sentence."""
    return parse_objectives(text.splitlines())


def write_objectives(objectives: Iterable[Objective]) -> str:
    """Write objectives so that `parse_objectives` reads them back."""
    return ",".join(map(str, objectives))


def _parse(text: str) -> Objective:
    text = text.strip()
    _refuse_mistakes(text)
    match = re.fullmatch(r"(?:([a-z0-9]+)_p(\d+(?:\.\d+)?)|failures)\s*=\s*([0-9.eE+-]+)\s*([a-z]*)", text)
    try:
        if match is None or (match[4] and not match[1]):
            raise ValueError
        value = parse_seconds(match[3] + match[4])
        if match[1] is None:
            objective = Objective(FAILURES, round(1 - value, 12))
        elif match[1] in OBJECTIVES and 0 < value < float("inf"):
            objective = Objective(match[1], round(float(match[2]) / 100, 12), value)
        else:
            raise ValueError
        if not 0 < objective.q < 1:
            raise ValueError
    except ValueError:
        raise ValueError(f"an objective is {GRAMMAR}, not `{text}`.") from None
    if value > MAX_SECONDS and not match[4]:
        raise ValueError(f"{value:g} s? Write {objective.name}={value:g}ms, or {value:g}s.")
    return objective


def _refuse_mistakes(text: str) -> None:
    """Raise `ValueError` for common mistakes in writing an objective."""
    name, sign, limit = re.match(r"\s*([\w.]*)\s*([<>=≤]*)\s*(.*)", text).groups()  # type: ignore[union-attr]
    if turned := re.fullmatch(r"(p\d+(?:\.\d+)?)_([a-z0-9]+)", name):
        raise ValueError(f"an objective begins with its metric: write {turned[2]}_{turned[1]}={limit}, not `{text}`.")
    if sign not in {"", "="}:
        raise ValueError(f"an objective is a limit with `=`: write {name}={limit}, not `{text}`.")
    if name == FAILURES and re.fullmatch(r"[0.]+", limit):
        raise ValueError(f"a share of failures is above 0, such as failures=0.001, not `{text}`.")
    metric, _, statistic = name.partition("_p")
    if metric in OTHER_NAMES and statistic:
        meant = OTHER_NAMES[metric]
        raise ValueError(f"{metric} is called {meant} here: write {meant}_p{statistic}={limit}, not `{text}`.")
