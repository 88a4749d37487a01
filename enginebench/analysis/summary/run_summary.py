"""Everything that a report shows about one run, and `summary.json`, the same for programs."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from enginebench.analysis.arrays import Instants
from enginebench.analysis.data.flow import Flows
from enginebench.analysis.data.run_data import NotARun, RunData
from enginebench.analysis.data.windows import Window, windows_of
from enginebench.analysis.summary.as_document import as_document
from enginebench.analysis.summary.distributions import distributions
from enginebench.analysis.summary.findings import findings_of_run
from enginebench.analysis.summary.quantities import StageData
from enginebench.analysis.summary.recovery import Disruption, disruptions_of
from enginebench.analysis.summary.stage_view import view_of
from enginebench.records.files import NOT_UNDERSTOOD, place_inside, profile_files, read_document, write_inside
from enginebench.records.metrics import BY_NAME, ICL, QUANTITY_BY_NAME
from enginebench.records.run import UNCACHED, RunFacts
from enginebench.records.slo import Objective, RunObjectives
from enginebench.records.stage import SECOND
from enginebench.records.view import Finding, Missing, StageView, is_invalid

SCHEMA_VERSION = 6
SUMMARY = "summary.json"
POINTS = 240  # per run
MIN_SECONDS = 0.04  # minimum length of a run, so that its steps are whole nanoseconds for any records


@dataclass(frozen=True, slots=True)
class FlowSeries:
    """The whole run in equal steps of `step` seconds: requests in flight, and output tokens per second."""

    step: float
    in_flight: tuple[float, ...]
    throughput: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary(RunFacts):
    """The setup and the results of a run. `folder` is not written into `summary.json`: runs move.

    `findings` include the findings of its stages.
    """

    folder: Path
    requests: int  # in the whole run, inside and outside the steady windows
    objectives: tuple[Objective, ...]
    stages: tuple[StageView, ...]
    flow: FlowSeries
    findings: tuple[Finding, ...]
    uncached: bool = False  # the server was started with files that were not in the file cache
    profile: tuple[str, ...] = ()  # names of the files that a profiler wrote
    statistics_only: bool = False  # imported from a format without requests
    disruptions: tuple[Disruption, ...] = ()  # bursts, and disturbances of the server

    @property
    def invalid(self) -> bool:
        return is_invalid(finding.severity for finding in self.findings)

    def at(self, label: str) -> StageView | None:
        return next((stage for stage in self.stages if stage.label == label), None)


def summarise(run: RunData, objectives: tuple[Objective, ...] = ()) -> RunSummary:
    """Summarise a run, judged by its own objectives (`--slo`) by default.

    Raises `NotARun` if nothing was measured, `ValueError` for an objective that cannot be judged.
    """
    try:
        own = RunObjectives.from_workload(run.meta.workload)
    except ValueError as error:
        raise NotARun(f"{run.folder} was made with what this version does not know: {error}") from None
    objectives = objectives or own.for_all
    good = RunObjectives(objectives, own.by_class)
    windows = windows_of(run)
    if not windows:
        raise NotARun(f"{run.folder} was stopped before its first steady window: there is nothing to report.")
    edges, step = _edges(run)

    def view(window: Window) -> StageView:
        requests = window.scheduled(run.requests)  # made once, because the metrics take most of a window's memory
        metrics = distributions(requests, objectives)
        return view_of(StageData(run, window, flows.result(), requests, metrics, good), objectives)

    with ThreadPoolExecutor(2) as pool:  # NumPy and Polars release the interpreter's lock; two windows are in memory
        flows = pool.submit(Flows, run, windows, edges)
        views = tuple(pool.map(view, windows))
    findings = findings_of_run(run, views)
    stages = tuple(replace(view, findings=tuple(f for f in findings if f.stage == view.key)) for view in views)
    return RunSummary(
        folder=run.folder,
        **run.meta.facts,
        requests=len(run.requests),
        objectives=objectives,
        stages=stages,
        flow=FlowSeries(
            step,
            tuple(flows.result().in_flight.averages(edges).tolist()),
            tuple((flows.result().tokens(edges) / step).tolist()),
        ),
        findings=findings,
        uncached=any(event.what == UNCACHED for event in run.meta.events),
        profile=profile_files(run.folder),
        disruptions=disruptions_of(run, objectives),
    )


def _edges(run: RunData) -> tuple[Instants, float]:
    """Return the edges of the run's steps, and their length: a second, longer in a long run, shorter in a trial."""
    span = max(run.last / SECOND, MIN_SECONDS)
    step = max(span / POINTS, min(1.0, span / 40))
    step = float(f"{step:.2g}")
    count = max(math.floor(span / step), 1)  # an incomplete last step would look like a drop
    return np.array([round(k * step * SECOND) for k in range(count + 1)], dtype=np.int64), step


def read_summary(folder: Path) -> RunSummary:
    """Read a run from its `summary.json`, for folders without records such as a saved baseline.

    Raises `NotARun` if it is missing or from another version.
    """
    path = folder / SUMMARY
    try:
        document = read_document(path, dict[str, Any])
        if document.get("schema") != SCHEMA_VERSION:
            schema = document.get("schema")
            raise NotARun(f"{path} has schema {schema}; this version reads {SCHEMA_VERSION}: save it again.")
        document = _with_infinities(document) | {"folder": str(folder)}
    except OSError as error:
        raise NotARun(f"{path} cannot be read ({error.strerror}).") from None
    except NotARun:
        raise
    except ValueError as error:
        raise NotARun(str(error)) from None
    try:
        summary = msgspec.convert(document, RunSummary, dec_hook=lambda kind, value: kind(value)).checked()
        for name in (name for stage in summary.stages for name in (*stage.metrics, *stage.quantities)):
            if name not in {ICL.name, *BY_NAME, *QUANTITY_BY_NAME}:
                raise ValueError(f"it has `{name}`, which is no metric of this version")
        return summary
    except ValueError as error:
        raise NotARun(NOT_UNDERSTOOD.format(path, error)) from None


def _with_infinities(value: Any) -> Any:
    """Restore infinite percentiles among failed requests, and infinite ends of intervals."""
    if isinstance(value, dict):
        infinite = {"value": math.inf} if "value" in value and value.get("missing") == Missing.FAILED.value else {}
        if value.get("low") is not None and value.get("high", 0.0) is None:
            infinite["high"] = math.inf
        return {key: _with_infinities(part) for key, part in value.items()} | infinite
    return [_with_infinities(part) for part in value] if isinstance(value, list) else value


def write_summary(summary: RunSummary) -> Path:
    """Write `summary.json`: durations in seconds, rates per second, null if not observed.

    A percentile that falls among failed requests has no value and is `missing` as "failed".
    """
    document: dict[str, Any] = {"schema": SCHEMA_VERSION} | as_document(summary)
    del document["folder"]
    write_inside(summary.folder, SUMMARY, json.dumps(document, indent=1, allow_nan=False) + "\n")
    return summary.folder / SUMMARY


def save_baseline(folder: Path, summaries: Sequence[RunSummary]) -> list[Path]:
    """Write `folder`/<run id>/summary.json for each run; saved runs of the same engines are replaced.

    The series that only charts need are left out. Raises `OSError`, and `NotARun` for a saved summary of another
    version.
    """
    labels = {summary.label for summary in summaries}
    saved = [path.parent for path in sorted(folder.glob(f"*/{SUMMARY}"))]
    for place in saved:
        alone = [path.name for path in place.iterdir()] == [SUMMARY]  # not a run
        if alone and read_summary(place).label in labels:
            shutil.rmtree(place)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for summary in summaries:
        place = place_inside(folder, f"{summary.run_id}/{SUMMARY}").parent
        stages = tuple(replace(stage, curves={}, series={}) for stage in summary.stages)
        flow = FlowSeries(summary.flow.step, (), ())
        written.append(write_summary(replace(summary, folder=place, stages=stages, flow=flow)))
    return written
