"""What speaks against the numbers of a run: one table of rules, each a predicate over a stage's view or over the run.

A rule that is added to its table appears on every surface: terminal, page, Markdown, CSV, JSON, compare and gate.
"""

from __future__ import annotations

from analysis.data.load import RunData
from records.view import Finding, StageView


def findings_of_stage(view: StageView, run: RunData) -> tuple[Finding, ...]:
    return ()


def findings_of_run(run: RunData, stages: tuple[StageView, ...]) -> tuple[Finding, ...]:
    return ()
