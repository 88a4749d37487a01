"""The data of a study's report: the runs and the benches of each part with each model, and missing cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from enginebench.analysis.settings import PlanSettings, parse_peak
from enginebench.analysis.summary.loading import summaries_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import counted
from enginebench.records.run import instant
from enginebench.records.slo import parse_objectives
from enginebench.settings.schema import UserMistake
from enginebench.studies.study.folder import CellState, NotAStudy, StudyFolder
from enginebench.studies.study.grid import Cell, NotMeasured
from engines.bench.result import BenchEngine, BenchResult, LeftOut, Row, read_result


@dataclass(frozen=True, slots=True)
class PartRuns:
    """All runs of one part with one model. `own` has the runs of engines' own servers, by the label of the same engine
    behind the common server."""

    part: str
    title: str
    runs: tuple[RunSummary, ...]
    own: Mapping[str, tuple[RunSummary, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartBench:
    """A part with a model, measured without HTTP: all engines and rounds in one document."""

    part: str
    title: str
    model: str
    result: BenchResult


@dataclass(frozen=True, slots=True)
class StudySource:
    """The records of a study. `plan` has the objectives, the peak and the price that its grid declares."""

    study: StudyFolder
    plan: PlanSettings
    parts: tuple[PartRuns, ...]
    benches: tuple[PartBench, ...]
    missing: tuple[NotMeasured, ...]


def read_source(study: StudyFolder, show: Callable[[str], None] = lambda _: None) -> StudySource:
    """Read every cell that has ended; an unfinished run has no line in `cells.jsonl` and is not read.

    Raises `NotAStudy` if the records of all cells are missing, because an empty report would replace the existing one.
    """
    grid = study.grid
    results = [path for state in study.with_outcome("done") if (path := study.result(state)) is not None]
    if results and not any(path.exists() for path in results):
        raise NotAStudy(
            f"{study.path} lacks the records of its cells. If it has a records.tar.xz: enginebench study report "
            f"{study.path / 'records.tar.xz'}"
        )
    parts: list[PartRuns] = []
    benches: list[PartBench] = []
    missing = list(grid.not_measured)
    for part in grid.parts:
        for model in grid.models:
            done = [state for state in study.select(part.name, model.label) if state.outcome == "done"]
            places = [(state.cell, path) for state in done if (path := study.result(state)) is not None]
            title = part.title or part.name
            if not places:
                continue
            show(f"Reading {part.name} with {model.label} …")
            if part.kind == "bench":
                bench, unreadable = _bench(study.facts.name, part.name, title, model.label, places)
                benches += [bench] if bench is not None else []
                missing += unreadable
                continue
            runs, unreadable = _runs(study, part.name, title, model.label, places)
            parts += [runs] if runs.runs else []
            missing += unreadable
    plan = PlanSettings(
        peak=parse_peak(grid.peak) if grid.peak else None,
        slo=parse_objectives(grid.slo),
        price=() if grid.price is None else (("", grid.price.per_hour),),
    )
    missing += [
        NotMeasured(f"{name} (disturbed, measured again)", record.reason or "")
        for name, record in study.disturbed.items()
    ]
    return StudySource(study, plan, tuple(parts), tuple(benches), (*missing, *_missing(study.cells)))


def _runs(
    study: StudyFolder, part: str, title: str, model: str, places: Sequence[tuple[Cell, Path]]
) -> tuple[PartRuns, list[NotMeasured]]:
    """Read the runs of one part with one model, under the grid's name of the model: servers may call it anything."""
    grid = study.grid
    runs: dict[str, list[RunSummary]] = {}
    unreadable = []
    for cell, path in places:
        try:
            (summary,) = summaries_of([str(path)], Path(), parse_objectives(grid.slo))
        except ValueError as error:
            unreadable.append(NotMeasured(cell.id, str(error)))
            continue
        begun = [sitting for sitting in study.sittings if _is_before(sitting.started_at, summary.started_at)]
        gpus = ", ".join(str(gpu.get("name")) for gpu in begun[-1].gpus) if begun else ""
        host = {**summary.host, "gpus": gpus} if gpus else summary.host  # the names of the sitting's GPUs
        named = replace(summary, label=cell.engine, model=model, repeat=cell.repeat, host=host)
        runs.setdefault(cell.engine, []).append(named)
    own = {}
    for engine in grid.engines:
        if engine.own_server and engine.label in runs:
            ours = grid.behind_our_server(engine)
            if ours is not None and ours.label in runs:
                own[ours.label] = tuple(runs[engine.label])
            else:
                why = "it has nothing to be compared with: the same engine and options behind our server."
                unreadable.append(NotMeasured(f"{engine.label} with {model}: {part}", why))
    behind_ours = [engine.label for engine in grid.engines if not engine.own_server]
    ordered = tuple(run for label in behind_ours for run in runs.get(label, []))
    return PartRuns(part, title, ordered, own), unreadable


def _is_before(at: str, other: str) -> bool:
    try:
        return instant(at) <= instant(other)
    except ValueError:
        return False


def _bench(
    study: str, part: str, title: str, model: str, places: Sequence[tuple[Cell, Path]]
) -> tuple[PartBench | None, list[NotMeasured]]:
    """Join the results of all cells. Each has one engine and one round, its repeat in the study."""
    result = BenchResult("")
    engines: dict[str, BenchEngine] = {}
    rows: list[Row] = []
    left_out: dict[tuple[str, str], LeftOut] = {}
    unreadable = []
    for cell, path in places:
        try:
            cell_result = read_result(path)
        except (UserMistake, OSError) as error:
            unreadable.append(NotMeasured(cell.id, str(error)))
            continue
        result = result if result.made_at else cell_result
        for engine in cell_result.engines:
            before = engines.setdefault(cell.engine, replace(engine, label=cell.engine))
            engines[cell.engine] = replace(before, quality=before.quality or engine.quality)
        for row in cell_result.rows:
            label = None if row.engine is None else cell.engine
            rows.append(replace(row, study=study, part=part, model=model, engine=label, repeat=cell.repeat))
        left_out |= {(cell.engine, c.case): replace(c, engine=cell.engine) for c in cell_result.left_out}
    if not result.made_at:
        return None, unreadable
    joined = replace(result, engines=tuple(engines.values()), rows=tuple(rows), left_out=tuple(left_out.values()))
    return PartBench(part, title, model, joined), unreadable


def _missing(cells: Sequence[CellState]) -> list[NotMeasured]:
    """Make a row for each engine and reason why its cells were not measured, or lack some stages."""
    groups: dict[tuple[str, str, str, str], list[Cell]] = {}
    for state in cells:
        if state.outcome != "done":
            why = state.reason or {"left": "the study was ended before"}.get(state.outcome, "no reason was given")
            groups.setdefault((state.cell.engine, state.cell.model, state.outcome, why), []).append(state.cell)
        elif state.reason:
            groups.setdefault((state.cell.engine, state.cell.model, "in part", state.reason), []).append(state.cell)
    rows = []
    for (engine, model, outcome, why), group in groups.items():
        parts = ", ".join(dict.fromkeys(cell.part for cell in group))
        words = {"left": "not reached", "in part": "measured in part"}.get(outcome, outcome)
        rows.append(NotMeasured(f"{engine} with {model}: {parts} ({counted(len(group), 'cell')}, {words})", why))
    return rows
