"""A report as a terminal shows it."""

from __future__ import annotations

import io

from rich.console import Console

from analysis.compare.winner import compare
from analysis.report.terminal import print_report
from analysis.summary.run_summary import RunSummary


def printed(summaries: list[RunSummary], width: int) -> str:
    file = io.StringIO()
    print_report(Console(file=file, width=width, highlight=False), summaries, compare(summaries))
    return file.getvalue()
