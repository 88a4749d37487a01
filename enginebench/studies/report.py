"""A study's document. Its answer comes from the part with the most loads; every other part has its own section."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from enginebench.analysis.document import Block, Cell, Code, Column, Document, NextStep, Number, Section, Table, Word
from enginebench.analysis.frame import Frame, frame_of
from enginebench.analysis.plan.replicas import replicas_of
from enginebench.analysis.reports import report_document
from enginebench.analysis.sections.candidates import candidates
from enginebench.analysis.sections.comparison import comparison
from enginebench.analysis.sections.figures import first_figure
from enginebench.analysis.sections.warnings import warnings, warnings_section
from enginebench.analysis.write.export import write
from enginebench.records.exit_codes import GOOD
from enginebench.records.load import load_of
from enginebench.records.view import Estimate
from enginebench.studies.source import PartBench, PartRuns, StudySource, read_source
from enginebench.studies.study.folder import load_study
from engines.bench.report import bench_document
from engines.bench.result import BenchResult

FILES = ("report.html", "report.md", "frame.parquet", "figure.svg")
CHARTS = "report-charts"  # folder of report.md's charts


@dataclass(frozen=True, slots=True)
class MeasuredPart:
    """A part with one model. `own` compares engines behind the common server with themselves behind their own."""

    part: str
    title: str
    frame: Frame
    own: tuple[Frame, ...]


def study_document(source: StudySource, continued: Path | None = None) -> Document:
    """Return the study's report. `continued` is named by the command that measures the rest; default: the folder."""
    parts, rest = [_measured(source, part) for part in source.parts], _next(source, continued)
    benches = [bench_document(part.result) for part in source.benches]
    last = [*_bench_sections(source.benches, benches, bool(source.parts)), *_missing(source)]
    if not parts:
        return _without_load(source, benches, last, rest)
    head = max(parts, key=lambda part: len(part.frame.stages) * part.frame.loads_make_axis)
    several = len(head.frame.tested.loads) > 1  # a single load does not show the capacity
    peak = source.plan.peak if source.plan.slo and several else None
    replicas = replicas_of(head.frame, source.plan) if peak is not None else ()
    document = report_document(head.frame, replicas, peak)
    sections = [*(_section(part) for part in parts if part is not head), *_own_servers(parts)]
    return replace(
        document,
        title=source.study.grid.title,
        next=rest or _with(document.next, head.frame),
        sections=(
            *(section for section in document.sections if not section.folded),
            *(section for section in [*sections, *last] if section.blocks),
            *(section for section in document.sections if section.folded),
            _how(source),
            warnings_section(warnings(*(part.frame for part in parts))),
        ),
        frame=pl.concat([*(part.frame.table for part in parts), *(bench.frame for bench in benches)]),
        exit_code=GOOD,
    )


def _measured(source: StudySource, part: PartRuns) -> MeasuredPart:
    labels = {run.label for run in part.runs}
    study, grid = source.study.facts.name, source.study.grid
    baseline = grid.baseline if grid.baseline in labels else None
    own = []
    for label, runs in part.own.items():
        ours = [run for run in part.runs if run.label == label]
        own += [frame_of([*ours, *runs], runs[0].label, study, part.part)] if ours else []
    return MeasuredPart(part.part, part.title, frame_of(part.runs, baseline, study, part.part), tuple(own))


def _section(part: MeasuredPart) -> Section:
    """The candidates and the chart of a part."""
    table, figure = candidates(part.frame), first_figure(part.frame)
    key = f"{part.part}-{'-'.join(part.frame.tested.models)}"
    table = replace(table, key=f"candidates-{key}", title=part.title)
    figures = () if figure is None else (replace(figure, key=f"{figure.key}-{key}"),)
    return Section(f"part-{key}", part.title, (table, *figures))


def _own_servers(parts: Sequence[MeasuredPart]) -> Iterator[Section]:
    """Show the cost of the common server for each engine that has its own server."""
    blocks: list[Block] = []
    for part in parts:
        for frame in part.own:
            for block in comparison(frame).blocks:
                if isinstance(block, Table):
                    title = f"{part.title}: {block.title} at {frame.stage}"
                    blocks.append(replace(block, key=f"{part.part}-{block.key}", title=title))
    yield Section("own-servers", "The common server next to engines' own", tuple(blocks))


def _bench_sections(parts: Sequence[PartBench], benches: Sequence[Document], load: bool) -> Iterator[Section]:
    """Yield the sections of all benches; of a bench that is not the document's own, also its first screen."""
    several = {part.part for part in parts}, {part.model for part in parts}
    for part, bench in zip(parts, benches, strict=True):
        titles = [part.title] * (len(several[0]) > 1 or load) + [part.model] * (len(several[1]) > 1)
        title = ", ".join(titles)
        if (load or part is not parts[0]) and bench.candidates is not None:
            figure = bench.figure and replace(bench.figure, key=f"{bench.figure.key}-{part.part}-{part.model}")
            table = replace(bench.candidates, key=f"candidates-{part.part}-{part.model}", title=title)
            blocks: tuple[Block, ...] = (table,) if figure is None else (table, figure)
            yield Section(f"part-{part.part}-{part.model}", title, blocks)
        for section in bench.sections:
            yield replace(section, title=f"{title}: {section.title}" if title else section.title)


def _without_load(
    source: StudySource, benches: Sequence[Document], last: Sequence[Section], step: NextStep | None
) -> Document:
    """Document a study that has only benches, or no measurements."""
    first = benches[0] if benches else bench_document(BenchResult(""))
    return replace(
        first,
        title=source.study.grid.title,
        next=step,
        sections=(*last, _how(source)),
        frame=pl.concat([bench.frame for bench in benches]) if benches else first.frame,
        exit_code=GOOD,
    )


def _missing(source: StudySource) -> list[Section]:
    rows: list[tuple[Cell, ...]] = [(Word(missing.what), Word(missing.why)) for missing in source.missing]
    headings = (Column("cell", text=True), Column("reason", text=True))
    return (
        [Section("missing", "Not measured", (Table("missing", "Not measured", headings, tuple(rows)),))] if rows else []
    )


def _how(source: StudySource) -> Section:
    """Show when and with which versions the study was measured, and the commands that repeat it."""
    rows: list[tuple[Cell, ...]] = [
        (
            Number(Estimate(float(number)), style="count"),
            Word(sitting.started_at[:16].replace("T", " ")),
            Word(str(sitting.host.get("cpu") or "")),
            Word(", ".join(str(gpu.get("name")) for gpu in sitting.gpus)) if sitting.gpus else None,
            Word(", ".join(f"{name} {version}" for name, version in sitting.versions.items())),
        )
        for number, sitting in enumerate(source.study.sittings, 1)
    ]
    titles = ("began", "machine", "GPUs", "versions")
    headings = (Column("sitting"), *(Column(title, text=True) for title in titles))
    commands = [source.study.facts.command, *(sitting.command for sitting in source.study.sittings)]
    blocks: list[Block] = []
    if rows:
        blocks.append(Table("sittings", "Sittings", headings, tuple(rows)).without_empty_columns())
    blocks.append(Code(tuple(dict.fromkeys(map(shlex.join, commands)))))
    return Section("repeat", "How to repeat it", tuple(blocks), folded=True)


def _next(source: StudySource, continued: Path | None) -> NextStep | None:
    """Continue with the cells that were not reached."""
    if not source.study.with_outcome("left"):
        return None
    return NextStep("continue_study", ("enginebench", "study", str(continued or source.study.path)))


def _with(step: NextStep | None, frame: Frame) -> NextStep | None:
    """Name the best engine as the result if its limit is known. No command reads records in an archive."""
    capacity = frame.capacities.get(frame.names[0])
    if step is None or step.purpose != "plan" or capacity is None:
        return step
    names = {"engine": capacity.engine, "load": load_of(capacity.load or 0.0, capacity.unit).label}
    return NextStep("deploy", names=names)


def write_report(
    folder: Path, show: Callable[[str], None] = lambda _: None, continued: Path | None = None
) -> tuple[Document, list[Path]]:
    """Write all derived files into a study's folder. `continued`: see `study_document`.

    Raises `NotAStudy`, and `UserMistake` if the folder cannot be written to.
    """
    document = study_document(read_source(load_study(folder), show), continued)
    show("Writing the report …")
    shutil.rmtree(folder / CHARTS, ignore_errors=True)
    names = FILES if document.figure is not None else FILES[:-1]
    for name in names:
        write(document, folder / name, inside=True)
    charts = sorted((folder / CHARTS).glob("*.svg"))
    return document, [*(folder / name for name in names), *charts]
