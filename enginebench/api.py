"""The Python API behind `import enginebench`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from enginebench.analysis.answer import Replicas
from enginebench.analysis.data.run_data import load_run, with_metrics
from enginebench.analysis.document import Document
from enginebench.analysis.frame import Frame, frame_of
from enginebench.analysis.plan.replicas import replicas_of, separated
from enginebench.analysis.reports import report_document
from enginebench.analysis.settings import PlanSettings, parse_peak
from enginebench.analysis.summary.loading import summaries_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.analysis.write.html import page
from enginebench.analysis.write.markdown import markdown
from enginebench.analysis.write.sentence import sentence
from enginebench.records.formatting import CURRENCY, counted
from enginebench.records.slo import parse_objectives
from enginebench.settings.schema import UserMistake


@dataclass(frozen=True)
class Runs:
    """Runs that were loaded together. Durations are in seconds, time stamps in nanoseconds since the run's start."""

    summaries: tuple[RunSummary, ...]

    def __repr__(self) -> str:
        labels = ", ".join(dict.fromkeys(summary.label for summary in self.summaries))
        return f"<Runs: {counted(len(self.summaries), 'run')} of {labels}>"

    @cached_property
    def frame(self) -> Frame:
        """Return the runs, ranked, judged and compared."""
        return frame_of(self.summaries)

    @property
    def stages(self) -> pl.DataFrame:
        """Return every number of every stage, in tidy form: one row for each metric and statistic."""
        return self.frame.table

    @cached_property
    def requests(self) -> pl.DataFrame:
        """Return a row with its metrics for every request; the columns `run` and `label` name its run."""
        frames = []
        for summary in self.summaries:
            requests = with_metrics(load_run(summary.folder).requests).with_columns(pl.col(pl.Categorical).cast(str))
            names = (pl.lit(summary.run_id).alias("run"), pl.lit(summary.label).alias("label"))
            frames.append(requests.select(*names, *requests.columns))
        return pl.concat(frames, how="diagonal_relaxed")


def read(paths: Sequence[str | Path], slo: str) -> Runs:
    objectives = parse_objectives([slo]) if slo else ()
    summaries = summaries_of([str(path) for path in paths], Path("runs"), objectives)
    return Runs(tuple(replace(summary, folder=summary.folder.absolute()) for summary in summaries))


def replicas(runs: Runs, peak: str, price: float | None) -> tuple[Replicas, ...]:
    return replicas_of(frame_of(separated(runs.summaries)), _settings(runs, peak, price))


class Report(Document):
    """A document with methods that write it as a page or as Markdown."""

    def __repr__(self) -> str:
        return f"<Report: {sentence(self.answer)}>"

    def html(self) -> str:
        """Return one self-contained page."""
        return page(self)

    def markdown(self) -> str:
        return markdown(self)


def document(runs: Runs, peak: str | None, price: float | None) -> Report:
    settings = _settings(runs, peak, price)
    frame = runs.frame if peak is None else frame_of(separated(runs.summaries))
    made = report_document(frame, replicas_of(frame, settings), settings.peak)
    return Report(**{part.name: getattr(made, part.name) for part in fields(made)})


def _settings(runs: Runs, peak: str | None, price: float | None) -> PlanSettings:
    if price is not None and not 0 <= price < math.inf:
        raise UserMistake(f"a price is {CURRENCY.name} per hour, not {price:g}.")
    return PlanSettings(
        peak=None if peak is None else parse_peak(peak),
        slo=runs.frame.objectives,
        price=() if price is None else (("", price),),
    )
