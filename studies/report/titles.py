"""Titles that name the model, and the part, where a study has several."""

from __future__ import annotations

from dataclasses import replace

from analysis.report.figure import Figure
from studies.report.contents import MeasuredPart, StudyReport


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
