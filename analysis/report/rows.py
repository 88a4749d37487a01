"""The one table of a report, as numbers and texts; the terminal and the page only set it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from analysis.report.units import MISSING, PLAIN, Unit, align, format_count, format_error, in_words, time_unit
from analysis.verdict.stages import StageSummary
from analysis.verdict.statistics import Estimate
from analysis.verdict.summary import RunSummary


@dataclass(frozen=True, slots=True)
class Cell:
    """A number in its column's unit, and its interval, or why there is none."""

    estimate: Estimate
    text: str  # decimal points stand in line within the column
    low: str | None
    high: str | None

    @property
    def spread(self) -> str:
        """`[1.19, 1.28]`, or `n/a, 42 < 368`."""
        if self.low is not None:
            return f"[{self.low}, {self.high}]"
        return f"{MISSING}, {self.estimate.why}" if self.estimate.value is not None and self.estimate.why else ""

    @property
    def narrow_spread(self) -> str:
        """The same for a narrow terminal: `1.19–1.28`, or `42 < 368`."""
        return f"{self.low}–{self.high}" if self.low is not None else self.estimate.why or ""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    of: Callable[[StageSummary], Estimate]
    duration: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One engine at one step. `name` tells repeats of one engine apart."""

    name: str
    label: str
    stage: StageSummary
    cells: tuple[Cell, ...]

    @property
    def requests(self) -> str:
        return format_count(self.stage.requests)

    @property
    def failed(self) -> str:
        return format_count(self.stage.failed)

    @property
    def cut_off(self) -> str:
        return f"{format_count(self.stage.cut_off)} cut off" if self.stage.cut_off else ""


@dataclass(frozen=True, slots=True)
class Results:
    """`headers` are (name, unit) of the columns with estimates; rows stand in the order of steps, then of runs.

    `accuracy` says how true TTFT is, where the load generator was calibrated; else it is empty.
    """

    headers: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    accuracy: str


COLUMNS = (
    Column("TTFT p50", lambda stage: stage.latencies["ttft"].p50),
    Column("TTFT p95", lambda stage: stage.latencies["ttft"].p95),
    Column("TTFT p99", lambda stage: stage.latencies["ttft"].p99),
    Column("TPOT p50", lambda stage: stage.latencies["tpot"].p50),
    Column("output", lambda stage: stage.throughput, duration=False),
)


def names_of(summaries: Sequence[RunSummary]) -> list[str]:
    """The label of each run, with #1, #2 … where several runs share it."""
    labels = [summary.label for summary in summaries]
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[: index + 1].count(label)}"
        for index, label in enumerate(labels)
    ]


def results_of(summaries: Sequence[RunSummary]) -> Results:
    named = [
        (name, summary, stage)
        for name, summary in zip(names_of(summaries), summaries, strict=True)
        for stage in summary.stages
    ]
    named.sort(key=lambda row: row[2].users)
    stages = [stage for _, _, stage in named]
    ttft = time_unit(column.of(stage).value for column in COLUMNS[:3] for stage in stages)
    tpot = time_unit(COLUMNS[3].of(stage).value for stage in stages)
    units = (ttft, ttft, ttft, tpot, PLAIN)
    columns = [
        _cells([column.of(stage) for stage in stages], unit) for column, unit in zip(COLUMNS, units, strict=True)
    ]
    rows = [
        Row(name, summary.label, stage, cells)
        for (name, summary, stage), cells in zip(named, zip(*columns, strict=True), strict=True)
    ]
    headers = tuple((column.name, unit.name or "tokens/s") for column, unit in zip(COLUMNS, units, strict=True))
    return Results(headers, tuple(rows), _accuracy(summaries))


def _accuracy(summaries: Sequence[RunSummary]) -> str:
    """`TTFT ± 0.038 ms: …`; past its calibration a run has none."""
    known = [(name, s.client_error) for name, s in zip(names_of(summaries), summaries, strict=True)]
    texts = {name: format_error(error) for name, error in known if error is not None}
    if not texts:
        return ""
    alike = len(texts) == len(summaries) and len(set(texts.values())) == 1
    said = next(iter(texts.values())) if alike else in_words([f"{text} ({name})" for name, text in texts.items()])
    return f"TTFT {said}: the load generator's own error at p99, as calibrated on its machine."


def _cells(estimates: Sequence[Estimate], unit: Unit) -> list[Cell]:
    texts = align([MISSING if estimate.value is None else unit.write(estimate.value) for estimate in estimates])
    return [
        Cell(
            estimate,
            text,
            None if estimate.low is None else unit.write(estimate.low),
            None if estimate.high is None else unit.write(estimate.high),
        )
        for estimate, text in zip(estimates, texts, strict=True)
    ]
