"""The files a report can be written as, by their suffix."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from analysis.report.formats.document import Report, as_json_document
from analysis.report.formats.markdown import markdown
from analysis.report.formats.numbers import numbers_of
from analysis.report.page import render
from records.files import write_atomically


def _html(report: Report) -> str:
    return render(report.runs, report.comparison, report.decision)


def _csv(report: Report) -> str:
    return numbers_of(report.runs).write_csv()


def _parquet(report: Report) -> bytes:
    file = io.BytesIO()
    numbers_of(report.runs).write_parquet(file)
    return file.getvalue()


def _json(report: Report) -> str:
    return json.dumps(as_json_document(report), indent=1, allow_nan=False) + "\n"


FORMATS: Mapping[str, Callable[[Report], str | bytes]] = {
    ".html": _html,
    ".md": markdown,
    ".csv": _csv,
    ".parquet": _parquet,
    ".json": _json,
}


def write(report: Report, path: Path) -> None:
    """Raises `OSError` where `path` cannot be written."""
    write_atomically(path, FORMATS[path.suffix](report))
