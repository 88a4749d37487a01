"""Everything a report says about one run, and `summary.json`, which says the same to programs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from analysis.run.load import NotARun, RunData
from analysis.run.windows import Flows, windows_of
from analysis.verdict.distributions import FAILED
from analysis.verdict.finding import Finding
from analysis.verdict.findings import findings_of
from analysis.verdict.stages import StageSummary, summarise_stage
from records.files import write_atomically
from records.search import SearchRecord
from records.slo import Objective, RunObjectives
from records.stage import SECOND

SCHEMA_VERSION = 2
POINTS = 240  # of a whole run


@dataclass(frozen=True, slots=True)
class FlowSeries:
    """The whole run in equal steps of `step` seconds: requests in flight and output tokens per second."""

    step: float
    in_flight: tuple[float, ...]
    throughput: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What was run, and what came out. `folder` is not written into `summary.json`: runs move."""

    folder: Path
    run_id: str
    label: str
    started_at: str
    scenario: str
    url: str
    model: str | None
    engine: Mapping[str, Any] | None
    workload: Mapping[str, Any]
    host: Mapping[str, Any]
    versions: Mapping[str, str]
    command: tuple[str, ...]
    repeat: int
    commit: str | None
    workers: int
    client_error: float | None  # seconds: the largest of its stages; None where one of them has none
    requests: int  # of the whole run, inside and outside the steady windows
    objectives: tuple[Objective, ...]
    search: SearchRecord | None  # of a run that searched for capacity
    stages: tuple[StageSummary, ...]
    flow: FlowSeries
    findings: tuple[Finding, ...]

    @property
    def invalid(self) -> bool:
        return any(finding.severity == "invalid" for finding in self.findings)

    def at(self, label: str) -> StageSummary | None:
        """The stage of that label."""
        return next((stage for stage in self.stages if stage.label == label), None)


def summarise(run: RunData, objectives: tuple[Objective, ...] = ()) -> RunSummary:
    """The run's own objectives (`--slo`) are judged where none are given.

    Raises `NotARun` when nothing was measured, `ValueError` for an objective that cannot be judged.
    """
    objectives = objectives or RunObjectives.of(run.meta.workload).of_all
    windows = windows_of(run)
    if not windows:
        raise NotARun(f"{run.folder} was stopped before its first steady window: there is nothing to report.")
    edges, step = _edges(run)
    flows = Flows(run, windows, edges)
    stages = tuple(summarise_stage(run, window, flows, objectives) for window in windows)
    meta = run.meta
    return RunSummary(
        folder=run.folder,
        run_id=meta.run_id,
        label=meta.label,
        started_at=meta.started_at,
        scenario=meta.scenario,
        url=meta.url,
        model=meta.model,
        engine=meta.engine,
        workload=meta.workload,
        host=meta.host,
        versions=meta.versions,
        command=meta.command,
        repeat=meta.repeat,
        commit=meta.commit,
        workers=meta.workers,
        client_error=_largest([stage.client_error for stage in stages]),
        requests=len(run.requests),
        objectives=objectives,
        search=meta.search,
        stages=stages,
        flow=FlowSeries(
            step, tuple(flows.in_flight.averages(edges).tolist()), tuple((flows.tokens(edges) / step).tolist())
        ),
        findings=findings_of(run, stages),
    )


def _largest(errors: list[float | None]) -> float | None:
    known = [error for error in errors if error is not None]
    return max(known) if len(known) == len(errors) else None


def _edges(run: RunData) -> tuple[Any, float]:
    """From the run's start to its last instant: a second apart, more in a long run and less in a trial."""
    span = run.last / SECOND
    step = max(span / POINTS, min(1.0, span / 40))
    step = float(f"{step:.2g}")
    count = max(math.floor(span / step), 1)  # a last step that is not full would look like a drop
    return np.array([round(k * step * SECOND) for k in range(count + 1)], dtype=np.int64), step


def as_document(summary: RunSummary) -> dict[str, Any]:
    """What `summary.json` holds: durations in seconds, rates per second, null for what was not observed.

    A percentile that falls among failed requests has no value and the `why` "failed".
    """
    document = dataclasses.asdict(summary)
    del document["folder"]
    finite: dict[str, Any] = without_infinities({"schema": SCHEMA_VERSION} | document)
    return finite


def without_infinities(value: Any) -> Any:
    """JSON has no infinity."""
    if isinstance(value, dict):
        return {key: without_infinities(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinities(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_summary(folder: Path) -> RunSummary:
    """The run as its `summary.json` has it, for folders without records: baselines, and aggregates of other tools.

    Raises `NotARun` where there is none, or one of another version.
    """
    path = folder / "summary.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("schema") != SCHEMA_VERSION:
            found = document.get("schema")
            raise NotARun(f"{path} has schema {found}; this version reads {SCHEMA_VERSION}: save it again.")
        document = _with_infinities(document) | {"folder": str(folder)}
        return msgspec.convert(document, RunSummary, dec_hook=lambda kind, value: kind(value))
    except OSError as error:
        raise NotARun(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, AttributeError, msgspec.ValidationError) as error:
        raise NotARun(f"{path} cannot be understood ({error}): is it from another version?") from None


def _with_infinities(value: Any) -> Any:
    """A percentile among failed requests is infinite again, and so is the end of an interval that reaches them."""
    if isinstance(value, dict):
        infinite = {"value": math.inf} if "value" in value and value.get("why") == FAILED else {}
        if value.get("low") is not None and value.get("high", 0.0) is None:
            infinite["high"] = math.inf
        return {key: _with_infinities(one) for key, one in value.items()} | infinite
    return [_with_infinities(one) for one in value] if isinstance(value, list) else value


def write_summary(summary: RunSummary) -> Path:
    path = summary.folder / "summary.json"
    write_atomically(path, json.dumps(as_document(summary), indent=1, allow_nan=False) + "\n")
    return path
