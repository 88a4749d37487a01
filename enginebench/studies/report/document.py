"""The tidy frame of a study, and the files that its report is written as."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from enginebench.analysis.compare.engine_runs import since_due
from enginebench.analysis.compare.quality import QUALITY, quality_rows
from enginebench.analysis.report.card import card, rivals_picture
from enginebench.analysis.report.document import numbers_of
from enginebench.analysis.summary.frame import SCHEMA
from enginebench.records.files import write_inside
from enginebench.records.metrics import columns
from enginebench.settings.schema import UserMistake
from enginebench.studies.report.contents import StudyReport, study_report
from enginebench.studies.report.criteria import judged
from enginebench.studies.report.markdown import markdown
from enginebench.studies.report.page import StudyPage, page_of, render, screen_of
from enginebench.studies.report.quality import qualities_of
from enginebench.studies.report.source import read_source
from enginebench.studies.study.folder import load_study
from engines.bench.tables import middle_of

STUDY_SCHEMA = pl.Schema({"study": pl.String(), "part": pl.String(), **SCHEMA})


def numbers(study: StudyReport) -> pl.DataFrame:
    """Every number of `enginebench report` for each part with each model, those of benches, the comparisons with
    engines' own servers, quality, the criteria, and what was not measured; a row each."""
    frames = [_named(study, numbers_of(each.report), each.part, each.model) for each in study.measured]
    frames = [frame.filter(pl.col("metric") != QUALITY) for frame in frames]  # of the whole study, below
    rows = [
        *_answer_rows(study),
        *_served_rows(study),
        *_own_rows(study),
        *_bench_rows(study),
        *_quality_rows(study),
        *_criteria_rows(study),
        *_missing_rows(study),
    ]
    return pl.concat([*frames, pl.DataFrame([{"study": study.source.name} | row for row in rows], schema=STUDY_SCHEMA)])


def _named(study: StudyReport, frame: pl.DataFrame, part: str, model: str) -> pl.DataFrame:
    named = {"study": pl.lit(study.source.name), "part": pl.lit(part), "model": pl.lit(model)}
    return frame.with_columns(**named).select(STUDY_SCHEMA.names())


def _answer_rows(study: StudyReport) -> Iterator[dict[str, Any]]:
    yield {"metric": "answer", "why": screen_of(study).answer}
    yield {"metric": "machine", "why": study.machine}
    if study.head is not None:
        yield {
            "part": study.head.part,
            "model": study.head.model,
            "metric": "head",
            "stage": study.head.comparison.stage,
        }


def _served_rows(study: StudyReport) -> Iterator[dict[str, Any]]:
    """Over the repeats of each engine, best first, at every load: what the tables of the report show."""
    for each in study.measured:
        engines = {engine.label: engine for engine in each.engines}
        columns_shown = columns("table", since_due(each.runs))
        for load in each.comparison.loads:
            for column in columns_shown:
                number = engines[load.engine].column(load.stage, column).finite
                yield {
                    "part": each.part,
                    "model": each.model,
                    "label": load.engine,
                    "scenario": each.scenario,
                    "stage": load.stage,
                    "load": load.load,
                    "load_unit": load.unit,
                    "metric": column.name,
                    "statistic": SERVED if column.statistic == "value" else f"{column.statistic} {SERVED}",
                    "unit": column.unit,
                    **{name: getattr(number, name) for name in ("value", "low", "high", "n", "why")},
                }


def _own_rows(study: StudyReport) -> Iterator[dict[str, Any]]:
    for each in study.measured:
        for own in each.own:
            for found in own.comparison.comparisons:
                ratio = found.ratio.finite
                yield {
                    "part": each.part,
                    "model": each.model,
                    "label": own.engine,
                    "stage": found.stage,
                    "metric": "identical server",
                    "statistic": f"{found.column.key} over {own.server}",
                    "value": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "n": ratio.n,
                    "why": found.verdict,
                }


def _bench_rows(study: StudyReport) -> Iterator[dict[str, Any]]:
    for bench in study.benches:
        for result in bench.result.measured:
            for series in result.series:
                middle = middle_of(series)
                if middle is not None:
                    yield {
                        "part": bench.part,
                        "model": bench.model,
                        "label": result.label,
                        "engine": result.engine,
                        "metric": series.measure.name,
                        "statistic": "median",
                        "unit": series.measure.unit,
                        "value": middle.median,
                        "low": middle.low,
                        "high": middle.high,
                        "n": middle.n,
                        "why": middle.why,
                    }


def _quality_rows(study: StudyReport) -> Iterator[dict[str, Any]]:
    for of in qualities_of(study):
        for engine in of.engines:
            yield from ({"model": of.model} | row for row in quality_rows(engine))


def _criteria_rows(study: StudyReport) -> Iterator[dict[str, Any]]:
    for criterion, _, found in judged(study):
        yield {"metric": "criterion", "statistic": criterion.key, "label": found.answer, "why": found.evidence}


def _missing_rows(study: StudyReport) -> Iterator[dict[str, Any]]:
    for missing in study.source.missing:
        yield {"metric": "not measured", "statistic": missing.what, "why": missing.why}


def _parquet(page: StudyPage) -> bytes:
    file = io.BytesIO()
    numbers(page.study).write_parquet(file)
    return file.getvalue()


FILES: Mapping[str, Callable[[StudyPage], str | bytes]] = {
    "report.html": render,
    "report.md": markdown,
    "frame.parquet": _parquet,
}
SERVED = "over the repeats"  # behind the statistic of a number of all runs of an engine
CARD, PICTURE = "card.svg", "ttft.svg"  # of the part that decides


def write_report(folder: Path, says: Callable[[str], None] = lambda _: None) -> tuple[StudyReport, list[Path]]:
    """Everything that is derived from a study's folder, written into it.

    Raises `NotAStudy`, and `UserMistake` where the folder cannot be written.
    """
    study = study_report(read_source(load_study(folder), says), says)
    says("Drawing the charts …")
    return study, write_files(study, folder)


def write_files(study: StudyReport, folder: Path) -> list[Path]:
    written = []
    page = page_of(study)
    contents = {name: write(page) for name, write in FILES.items()}
    if study.head is not None:
        contents[CARD] = card(study.head.report)
        if (picture := rivals_picture(study.head.report)) is not None:
            contents[PICTURE] = picture
    for name, content in contents.items():
        try:
            write_inside(folder, name, content)
        except OSError as error:
            raise UserMistake(f"{folder / name} cannot be written ({error.strerror}).") from None
        written.append(folder / name)
    return written
