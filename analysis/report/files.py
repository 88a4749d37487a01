"""The files a report can be written as, by their suffix."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from analysis.report.document import Report, as_json_document
from analysis.report.markdown import markdown
from analysis.report.numbers import numbers_of
from analysis.report.page import render
from records.files import write_atomically


def _parquet(report: Report) -> bytes:
    file = io.BytesIO()
    numbers_of(report.runs).write_parquet(file)
    return file.getvalue()


FORMATS: Mapping[str, Callable[[Report], str | bytes]] = {
    ".html": lambda report: render(report.runs, report.comparison, report.decision),
    ".md": markdown,
    ".csv": lambda report: numbers_of(report.runs).write_csv(),
    ".parquet": _parquet,
    ".json": lambda report: json.dumps(as_json_document(report), indent=1, allow_nan=False) + "\n",
}


def write(report: Report, path: Path) -> None:
    """Raises `OSError` where `path` cannot be written."""
    write_atomically(path, FORMATS[path.suffix](report))
