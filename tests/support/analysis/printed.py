"""A report of summaries, and as a terminal shows it."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console

from enginebench.analysis.compare.comparison import compare
from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.report.contents import Report, report_of
from enginebench.analysis.report.decision import decide
from enginebench.analysis.report.terminal import print_report
from enginebench.analysis.summary.run_summary import RunSummary


def reported(summaries: Sequence[RunSummary], settings: PlanSettings | None = None) -> Report:
    comparison = compare(summaries)
    return report_of(summaries, comparison, decide(summaries, comparison, settings))


def printed(report: Report | Sequence[RunSummary], width: int) -> str:
    file = io.StringIO()
    whole = report if isinstance(report, Report) else reported(report)
    print_report(Console(file=file, width=width, highlight=False), whole)
    return file.getvalue()
