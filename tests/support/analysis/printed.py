"""A report as a terminal shows it."""

from __future__ import annotations

import io

from rich.console import Console

from analysis.report.terminal import print_report
from analysis.verdict.comparison.compare import compare
from analysis.verdict.summary import RunSummary


def printed(summaries: list[RunSummary], width: int) -> str:
    file = io.StringIO()
    print_report(Console(file=file, width=width, highlight=False), summaries, compare(summaries))
    return file.getvalue()
