"""A section of a study's report: page and Markdown set each in their own way, and leave nothing of it out. Its titles
name the model, and the part, where a study has several."""

from __future__ import annotations

from dataclasses import dataclass, replace

from enginebench.analysis.console import TextTable
from enginebench.analysis.report.figure import Figure
from enginebench.studies.report.contents import MeasuredPart, StudyReport

NO_LOAD = "no part of this study was under load"


@dataclass(frozen=True, slots=True)
class Section:
    """`advice` are sentences with a heading each; `folded` are tables that few readers need; `code` is what is typed,
    `links` are paths from the report.

    `why` says why there is nothing to show: the section is then a row of what was not measured.
    """

    title: str
    sentences: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    tables: tuple[TextTable, ...] = ()
    advice: tuple[tuple[str, str], ...] = ()
    folded: tuple[TextTable, ...] = ()
    code: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    why: str = ""

    @property
    def empty(self) -> bool:
        return not (self.sentences or self.figures or self.tables or self.advice or self.folded or self.code)


def numbers_table(figure: Figure) -> TextTable:
    """The numbers of a figure, for readers of text."""
    texts = tuple(index for index, header in enumerate(figure.headers) if header in {"engine", "stage"})
    rows = tuple(tuple(cell if isinstance(cell, str) else cell.text for cell in row) for row in figure.rows)
    return TextTable(figure.title, figure.headers, rows, texts, figure.note)


def of_model(measured: MeasuredPart, study: StudyReport) -> str:
    """`llama-3.2-1b: `, or nothing where there is one model."""
    return f"{measured.model}: " if len({each.model for each in study.measured}) > 1 else ""


def of_part(measured: MeasuredPart, study: StudyReport) -> str:
    """`Sustained, llama-3.2-1b`"""
    return measured.title + (f", {measured.model}" if of_model(measured, study) else "")


def titled(figure: Figure, measured: MeasuredPart, study: StudyReport) -> Figure:
    """With a key and a title of its own among those of all parts."""
    title = f"{of_model(measured, study)}{figure.title}"
    return replace(figure, key=f"{measured.part}-{measured.model}-{figure.key}", title=title)
