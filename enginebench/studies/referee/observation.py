"""One load test as the server stamped it, and as the load generator reports it.

Both observations become runs of one stage, from the first request to the end of the last answer, so that all their
numbers come from the same formulas. They contain only answered requests, as the percentiles of most load generators do;
other requests are counted.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from enginebench.analysis.formats import benchmark_report_runs
from enginebench.analysis.formats.benchmark_report_reader import ReportFile
from enginebench.analysis.formats.command import read
from enginebench.analysis.formats.results import (
    TELEMETRY,
    ImportedStage,
    NotImportable,
    Results,
    most_in_flight,
    write_run,
)
from enginebench.analysis.summary.loading import summaries_of
from enginebench.records.files import META, read_meta, read_requests
from enginebench.records.load import Users
from enginebench.records.request import RequestRecord
from enginebench.records.view import StageView
from enginebench.settings.schema import UserMistake

SUFFIXES = {".json", ".jsonl", ".yaml", ".yml"}


@dataclass(frozen=True, slots=True)
class Observation:
    """`stage` has the answered requests. `in_flight` is the highest number of requests in flight. `gap_variation` is
    the standard deviation of the gaps between the starts of requests, divided by their mean: 0 for a constant rate,
    about 1 for Poisson arrivals. The last two are unknown for results without single requests."""

    stage: StageView
    sent: int
    answered: int
    in_flight: int | None = None
    gap_variation: float | None = None


def observe(results: Results | ReportFile, file: Path, runs: Path, label: str) -> Observation | None:
    """Write a run into `runs` and summarise it; `None` if no request was answered. Raises `UserMistake`, `OSError`."""
    if isinstance(results, ReportFile):
        _, summary, _ = benchmark_report_runs.write_run([results], runs, label, 0)
        return Observation(summary.stages[0], summary.stages[0].requests, summary.stages[0].ok)
    requests = [request for stage in results.stages for request in stage.requests]
    answered = tuple(msgspec.structs.replace(request, stage=0) for request in requests if request.outcome == "ok")
    if not answered:
        return None
    starts = sorted(request.t_send for request in requests if request.t_send is not None)
    in_flight = most_in_flight(requests)
    begin, end = min(request.t_sched for request in answered), max(request.t_end for request in answered) + 1
    stage = ImportedStage(Users(in_flight), begin, end, answered)
    folder = write_run(replace(results, stages=(stage,)), file, runs, label, 0)
    (summary,) = summaries_of([str(folder)], runs)
    return Observation(summary.stages[0], len(starts), len(answered), in_flight, _gap_variation(starts))


def _gap_variation(starts: Sequence[int]) -> float | None:
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    return statistics.stdev(gaps) / statistics.fmean(gaps) if len(gaps) > 1 and any(gaps) else None


def true_results(truth: Path, url: str, started_at: datetime, settings: dict[str, Any], skip: int = 0) -> Results:
    """Read the stamps of the scripted server, which are in the order of arrival, without the first `skip` requests. A
    token's instant is just before its write."""
    stamps: list[dict[str, int]] = [json.loads(line) for line in truth.read_text().splitlines()[skip:]]
    zero = min((stamp["received"] for stamp in stamps), default=0)
    requests = tuple(_true_request(number, stamp, zero) for number, stamp in enumerate(stamps))
    stage = ImportedStage(None, 0, 0, requests)
    return Results("scripted server", (stage,), (TELEMETRY,), url=url, started_at=started_at, settings=settings)


def _true_request(number: int, stamp: dict[str, int], zero: int) -> RequestRecord:
    received, tokens = stamp["received"] - zero, stamp["tokens"]
    first, last = (stamp[name] - zero if tokens else None for name in ("first_before", "last_before"))
    return RequestRecord(
        request_id=str(number),
        worker="0",
        scenario="referee",
        stage=0,
        outcome="ok" if tokens == stamp["asked"] else "disconnected",
        t_sched=received,
        t_send=received,
        t_first=first,
        t_first_out=first,
        t_last=last,
        t_end=max(received, stamp["last_after"] - zero),
        chunks=tokens,
        first_chunk_tokens=1 if tokens else None,
        output_tokens=tokens,
        token_source="usage",
    )


def reported_results(folder: Path, since: float = 0.0) -> tuple[Results | ReportFile, Path] | None:
    """Read the only load in a folder, from a run of ours or a file; unreadable files are ignored.

    Return the load and its file, or `None` if nothing was written after the Unix time `since`. Raises `UserMistake` for
    several loads.
    """
    runs = [path.parent for path in sorted(folder.rglob(META))]
    files = [path for path in sorted(folder.rglob("*")) if path.suffix in SUFFIXES and path.is_file()]
    outside = [file for file in files if not any(run in file.parents for run in runs)]
    loads: list[tuple[Results | ReportFile, Path]] = []
    for path in [*runs, *outside]:
        if (path / META if path.is_dir() else path).stat().st_mtime >= since:
            with suppress(NotImportable):
                loads += [(load, path) for load in _loads(path)]
    if len(loads) > 1:
        name = folder if len({path for _, path in loads}) > 1 else loads[0][1].name
        raise UserMistake(f"{name} has {len(loads)} loads: compare one at a time.")
    return loads[0] if loads else None


def _loads(path: Path) -> list[Results | ReportFile]:
    """Split the stages of a file or a run. Raises `NotImportable`."""
    if not (path / META).is_file():
        loads = read(path)
    else:
        try:
            meta, requests = read_meta(path), list(read_requests(path))
        except ValueError as error:
            raise NotImportable(str(error)) from None
        parts = [tuple(request for request in requests if request.stage == stage.index) for stage in meta.stages]
        stages = tuple(ImportedStage(None, 0, 0, part) for part in parts)
        loads = [Results("enginebench", stages, (TELEMETRY,), model=meta.model, url=meta.url)]
    split: list[Results | ReportFile] = []
    for load in loads:
        split += [load] if isinstance(load, ReportFile) else [replace(load, stages=(stage,)) for stage in load.stages]
    return split
