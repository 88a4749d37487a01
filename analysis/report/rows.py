"""The one table of a report, as numbers and texts; the terminal and the page only set it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.compare.engine_runs import Contender, contenders_of, headline_ttft
from analysis.report.axis import Axis, Place, axis_of
from analysis.report.ends import has_ends, upper_end
from analysis.summary.run_summary import RunSummary
from records.formatting import (
    MISSING,
    PLAIN,
    Unit,
    align,
    format_count,
    format_error,
    format_share,
    in_words,
    significant,
    time_unit,
)
from records.metrics import BY_NAME
from records.view import Estimate, StageView


@dataclass(frozen=True, slots=True)
class Cell:
    """A number in its column's unit, and its interval, or why there is none."""

    estimate: Estimate
    text: str  # decimal points stand in line within the column
    low: str | None
    high: str | None
    answered: str | None  # where failures count: the same percentile of the answered requests

    @property
    def spread(self) -> str:
        """`[1.19, 1.28]`, or `n/a, 42 < 368`."""
        if self.answered is not None:
            return f"answered: {self.answered}"
        if self.low is not None:
            return f"[{self.low}, {self.high}]"
        return f"{MISSING}, {self._why}" if self.estimate.value is not None and self._why else ""

    @property
    def narrow_spread(self) -> str:
        """The same without brackets: `1.19–1.28`, or `42 < 368`."""
        if self.answered is not None:
            return f"ok: {self.answered}"
        return f"{self.low}–{self.high}" if self.low is not None else self._why

    @property
    def _why(self) -> str:
        """Why there is no interval. A percentile among failed requests needs none."""
        return "" if self.estimate.value == math.inf else self.estimate.why or ""


@dataclass(frozen=True, slots=True)
class Column:
    """`answered` is the same number of the answered requests alone, where others failed. `clock` says whose time it is,
    where that is not plain. `most` is the largest value that there can be."""

    name: str
    of: Callable[[StageView], Estimate]
    answered: Callable[[StageView], float | None] = lambda stage: None
    duration: bool = True
    clock: str = ""
    most: float = math.inf


@dataclass(frozen=True, slots=True)
class Row:
    """One engine at one stage. Counts are of all its runs together."""

    contender: Contender
    place: Place
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        return self.contender.label

    @property
    def stages(self) -> tuple[StageView, ...]:
        return self.contender.at(self.place.label)

    @property
    def requests(self) -> int:
        return sum(stage.requests for stage in self.stages)

    @property
    def failed(self) -> int:
        return sum(stage.failed for stage in self.stages)

    @property
    def achieved(self) -> str:
        """Requests per second that ended well, the mean of the runs: what an open loop got of what it offered."""
        return significant(self.contender.mean(lambda stage: stage.achieved_rate, self.place.label) or 0.0)

    @property
    def remark(self) -> str:
        """`5 runs, 3 cut off`"""
        cut_off, runs = sum(stage.cut_off for stage in self.stages), len(self.stages)
        said = [f"{runs} runs"] if runs > 1 else []
        said += [f"{format_count(cut_off)} cut off"] if cut_off else []
        return ", ".join(said)

    @property
    def failed_share(self) -> str:
        """Of the requests that were not cut off; the mean of the runs, as all shares are."""
        share = self.contender.mean(lambda stage: stage.failure_share.value, self.place.label)
        return format_share(share) if self.failed else ""


@dataclass(frozen=True, slots=True)
class Results:
    """`headers` are (name, unit) of the columns with estimates; rows stand in the order of stages, then of engines.

    `accuracy` says how exact TTFT is, where the load generator was calibrated; else it is empty. `open_loop`: some
    stage had a rate of arrivals.
    """

    axis: Axis
    headers: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    accuracy: str
    open_loop: bool


def percentile_column(metric: str, p: str) -> Column:
    """`TTFT (user)` becomes TTFT on the user's clock."""
    title, _, clock = BY_NAME[metric].title.partition(" (")

    def of(stage: StageView) -> Estimate:
        return stage.latencies[metric].percentile(p)

    def answered(stage: StageView) -> float | None:
        known = stage.latencies[metric].answered
        return known[p] if known else None

    return Column(f"{title} {p}", of, answered, clock=clock.rstrip(")"))


def columns_of(summaries: Sequence[RunSummary]) -> list[Column]:
    ttft = headline_ttft(summaries)
    latencies = [percentile_column(ttft, p) for p in ("p50", "p95", "p99")]
    output = Column("output", lambda stage: stage.throughput, duration=False)
    return [*latencies, percentile_column("tpot", "p50"), output]


def names_of(summaries: Sequence[RunSummary]) -> list[str]:
    """The label of each run, with #1, #2 … where several runs share it."""
    labels = [summary.label for summary in summaries]
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[: index + 1].count(label)}"
        for index, label in enumerate(labels)
    ]


def results_of(summaries: Sequence[RunSummary]) -> Results:
    axis = axis_of(summaries)
    contenders = contenders_of(summaries)
    placed = [(place, one) for place in axis.places for one in contenders if one.at(place.label)]
    columns = columns_of(summaries)
    estimates = [[one.estimate(column.of, place.label) for place, one in placed] for column in columns]
    ttft = time_unit(estimate.value for column in estimates[:3] for estimate in column)
    units = (ttft, ttft, ttft, time_unit(estimate.value for estimate in estimates[3]), PLAIN)
    cells = [
        _cells(found, [one.mean(column.answered, place.label) for place, one in placed], unit)
        for column, found, unit in zip(columns, estimates, units, strict=True)
    ]
    rows = tuple(Row(one, place, of_row) for (place, one), of_row in zip(placed, zip(*cells, strict=True), strict=True))
    headers = tuple(
        (column.name, ", ".join(filter(None, (unit.name or "tokens/s", column.clock))))
        for column, unit in zip(columns, units, strict=True)
    )
    open_loop = any(stage.is_open for summary in summaries for stage in summary.stages)
    return Results(axis, headers, rows, _accuracy(summaries), open_loop)


def _accuracy(summaries: Sequence[RunSummary]) -> str:
    """`TTFT ± 0.038 ms: …`; past its calibration a run has none."""
    known = [(name, s.client_error) for name, s in zip(names_of(summaries), summaries, strict=True)]
    texts = {name: format_error(error) for name, error in known if error is not None}
    if not texts:
        return ""
    alike = len(texts) == len(summaries) and len(set(texts.values())) == 1
    said = next(iter(texts.values())) if alike else in_words([f"{text} ({name})" for name, text in texts.items()])
    return f"TTFT {said}: the load generator's own error at p99, as calibrated on its machine."


def _cells(estimates: Sequence[Estimate], answered: Sequence[float | None], unit: Unit) -> list[Cell]:
    texts = align([MISSING if estimate.value is None else unit.write(estimate.value) for estimate in estimates])

    def written(value: float | None) -> str | None:
        return None if value is None else unit.write(value)

    return [
        Cell(
            estimate,
            text,
            written(estimate.low) if has_ends(estimate) else None,
            upper_end(estimate, unit.write) if has_ends(estimate) else None,
            written(survivors) if estimate.value is None or math.isinf(estimate.value) else None,
        )
        for estimate, text, survivors in zip(estimates, texts, answered, strict=True)
    ]
