"""What a Prometheus answers to the queries of a dashboard over a span of time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from grafana.queries import filled_in

RATE_INTERVAL = "10s"  # Grafana's $__rate_interval; Prometheus scrapes once a second here
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds since 1970. `fault` is when the fault begins; it lasts until `end`."""

    start: float
    fault: float
    end: float

    @property
    def seconds(self) -> int:
        return round(self.end - self.start)


@dataclass(frozen=True, slots=True)
class Series:
    """A line of a panel: one value a second from the span's start on, `None` where there is none."""

    name: str
    labels: Mapping[str, str]
    values: Sequence[float | None]
    ref: str = "A"  # of its query in the panel

    @property
    def last(self) -> float | None:
        return next((value for value in reversed(self.values) if value is not None), None)

    def mean(self, first: int, end: int) -> float | None:
        """Over the seconds from `first` to `end`; `None` without a value."""
        known = [value for value in self.values[first:end] if value is not None]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, slots=True)
class Mark:
    """An annotation: `at` in seconds from the span's start."""

    at: int
    colour: str


class Answers:
    """`chosen` are values of the board's variables."""

    def __init__(self, api: httpx.Client, span: Span, **chosen: str) -> None:
        self._api, self._chosen = api, {"__rate_interval": RATE_INTERVAL, **chosen}
        self.span = span

    def of(self, panel: Json) -> list[Series]:
        """The panel's series, in the order of its queries; of an instant query those that there are in the end."""
        found: list[Series] = []
        for query in panel["targets"]:
            for labels, values in self._ask(query["expr"]):
                if query["instant"] and values[-1] is None:
                    continue
                legend = filled_in(query["legendFormat"], **self._chosen)
                name = re.sub(r"\{\{(\w+)\}\}", lambda match, of=labels: of.get(match[1], ""), legend)  # type: ignore[misc]
                found.append(Series(name, labels, values, query["refId"]))
        return found

    def marks(self, board: Json) -> list[Mark]:
        """Where the board's annotations begin."""
        marks: list[Mark] = []
        for annotation in board["annotations"].get("list", ()):
            for _, values in self._ask(annotation["expr"]):
                if annotation.get("useValueForTime"):
                    moments = {round(value / 1000 - self.span.start) for value in values if value is not None}
                else:
                    present = [value is not None for value in values]
                    moments = {at for at in range(1, len(present)) if present[at] and not present[at - 1]}
                marks += [Mark(at, annotation["iconColor"]) for at in moments if 0 <= at <= self.span.seconds]
        return marks

    def _ask(self, expr: str) -> list[tuple[Mapping[str, str], list[float | None]]]:
        span = self.span
        query = filled_in(expr, **self._chosen)
        asked: dict[str, str | float] = {"query": query, "start": span.start, "end": span.end, "step": 1}
        answer = self._api.get("/api/v1/query_range", params=asked).json()
        assert answer["status"] == "success", f"{query}: {answer}"
        found = []
        for series in answer["data"]["result"]:
            values: list[float | None] = [None] * (span.seconds + 1)
            for at, text in series["values"]:
                value = float(text)
                values[round(at - span.start)] = value if math.isfinite(value) else None
            found.append((series["metric"], values))
        return found
