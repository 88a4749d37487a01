"""Service-level objectives: "99 % of the requests get their first token within half a second" is `ttft_p99=0.5`.

An objective limits a percentile of a metric, or the share of requests with a fault: `failures=0.01`. Either requires a
share of good requests, so it can be judged request by request: failures count as bad, and latencies count from the
scheduled time, as the user experiences them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from enginebench.records.formatting import format_limit, format_share, significant
from enginebench.records.formula import Formula, Reader, reader
from enginebench.records.metrics import FAILURE_SHARE, OBJECTIVES, Metric
from enginebench.records.rules import within
from enginebench.settings.units import parse_seconds

FAILURES = "failures"
OTHER_NAMES = {"itl": "tpot", "icl": "tpot", "latency": "e2e", "first_token": "ttft"}
MAX_SECONDS = 60.0  # for a limit without a unit: a larger number is probably milliseconds


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of requests whose share an objective may limit. `share` is the quantity of a stage that measures it, and
    `absent` is 1 for a request without the fault, 0 with it, and null if unknown."""

    name: str
    share: str
    absent: Formula


FAULTS = {fault.name: fault for fault in (Fault(FAILURES, FAILURE_SHARE, within(None, 0.0)),)}
GRAMMAR = (
    f"METRIC_pN=TIME, such as ttft_p99=500ms, with METRIC one of {', '.join(OBJECTIVES)}, or "
    f"{', '.join(f'{name}=SHARE' for name in FAULTS)}"
)
SLO_HELP = f"Objective for each load: {GRAMMAR}; may be repeated, or several separated by commas."
TYPED = re.compile(
    rf"(?:(?P<metric>[a-z0-9]+)_p(?P<percentile>\d+(?:\.\d+)?)|(?P<fault>{'|'.join(FAULTS)}))"
    r"\s*=\s*(?P<value>[0-9.eE+-]+)\s*(?P<unit>[a-z]*)"
)


@dataclass(frozen=True, slots=True)
class Objective:
    """At least a share `q` of the requests have `metric` at or below `limit` seconds, and did not fail.

    `metric` is the metric's name in an SLO, or that of a fault, which has no limit: at least `q` are without the fault.
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
        return self.metric if self.fault is not None else f"{self.metric}_{self.statistic}"

    def __str__(self) -> str:
        """Write the objective as a user types it."""
        if self.fault is not None:
            limit = f"{round(1 - self.q, 12):.12g}"
        else:
            limit = f"{self.limit:g}{'s' if self.limit > MAX_SECONDS else ''}"
        return f"{self.name}={limit}"

    @property
    def typed(self) -> str:
        """Write the objective with a unit: `ttft_p95=500ms`."""
        if self.fault is not None:
            return str(self)
        unit, size = ("ms", 0.001) if self.limit < 1 else ("s", 1.0)
        return f"{self.name}={self.limit / size:.6g}{unit}"

    @property
    def fault(self) -> Fault | None:
        """Return the fault whose share is limited; `None` if a metric is limited."""
        return FAULTS.get(self.metric)

    @property
    def judged(self) -> Metric | None:
        """Return the metric that is limited, from the instant the request was due; `None` if a fault is limited."""
        return None if self.metric in FAULTS else OBJECTIVES[self.metric]

    @property
    def column(self) -> str | None:
        return None if self.judged is None else self.judged.name

    @property
    def within(self) -> Formula:
        """Return a formula that is 1 if a request met the objective, 0 if it missed it, null if the request was cut off
        before or its tokens are unknown."""
        fault, metric = self.fault, self.judged
        if fault is not None:
            return fault.absent
        assert metric is not None
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
            return f"{self.metric} ≤ {format_share(1 - self.q)}"
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
    match = TYPED.fullmatch(text)
    try:
        if match is None or (match["unit"] and not match["metric"]):
            raise ValueError
        value = parse_seconds(match["value"] + match["unit"])
        if match["fault"]:
            objective = Objective(match["fault"], round(1 - value, 12))
        elif match["metric"] in OBJECTIVES and 0 < value < float("inf"):
            objective = Objective(match["metric"], round(float(match["percentile"]) / 100, 12), value)
        else:
            raise ValueError
        if not 0 < objective.q < 1:
            raise ValueError
    except ValueError:
        raise ValueError(f"an objective is {GRAMMAR}, not `{text}`.") from None
    if value > MAX_SECONDS and not match["unit"]:
        raise ValueError(f"{value:g} s? Write {objective.name}={value:g}ms, or {value:g}s.")
    return objective


def _refuse_mistakes(text: str) -> None:
    """Raise `ValueError` for common mistakes in writing an objective."""
    name, sign, limit = re.match(r"\s*([\w.]*)\s*([<>=≤]*)\s*(.*)", text).groups()  # type: ignore[union-attr]
    if turned := re.fullmatch(r"(p\d+(?:\.\d+)?)_([a-z0-9]+)", name):
        raise ValueError(f"an objective begins with its metric: write {turned[2]}_{turned[1]}={limit}, not `{text}`.")
    if sign not in {"", "="}:
        raise ValueError(f"an objective is a limit with `=`: write {name}={limit}, not `{text}`.")
    if name in FAULTS and re.fullmatch(r"[0.]+", limit):
        raise ValueError(f"a share of {name} is above 0, such as {name}=0.001, not `{text}`.")
    metric, _, statistic = name.partition("_p")
    if metric in OTHER_NAMES and statistic:
        meant = OTHER_NAMES[metric]
        raise ValueError(f"{metric} is called {meant} here: write {meant}_p{statistic}={limit}, not `{text}`.")
