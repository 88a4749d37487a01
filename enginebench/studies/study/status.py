"""How far a study is: what is done, what is left, and what it takes in time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, get_args

from enginebench.settings.console import stdout
from enginebench.studies.study.folder import CellOutcome, CellState, StudyFolder
from enginebench.studies.study.runner import spent, summary_of
from loadtests.harness.run.duration import rounded_time

OUTCOMES = (*get_args(CellOutcome), "left")


def show(study: StudyFolder) -> None:
    """On standard output: a row for each part and model, why cells were skipped or failed, and one sentence."""
    from rich import box
    from rich.table import Table

    console = stdout()
    console.print(f"{study.grid.title}: {study.path}", style="bold", soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("part and model")
    for column in (*OUTCOMES, "spent", "expected"):
        table.add_column(column, justify="right")
    for part, model, states in _groups(study):
        counts = [str(count) if (count := _count(states, outcome)) else "" for outcome in OUTCOMES]
        left = sum(state.expected for state in states if state.outcome == "left")
        times = [rounded_time(round(seconds)) if seconds else "" for seconds in (spent(states), left)]
        table.add_row(f"{part} {model}", *counts, *times)
    console.print(table)
    for outcome in ("skipped", "failed"):
        for reason, engines in _reasons(study, outcome).items():
            console.print(f"{outcome}: {', '.join(engines)}: {reason}", soft_wrap=True)
    console.print(summary_of(study), soft_wrap=True)


def as_document(study: StudyFolder) -> dict[str, Any]:
    return {
        "folder": str(study.path),
        "name": study.facts.name,
        "cells": [
            {
                "cell": state.cell.id,
                "outcome": state.outcome,
                "reason": state.reason,
                "seconds": state.seconds,
                "expected_seconds": state.expected,
            }
            for state in study.cells
        ],
        **{outcome: _count(study.cells, outcome) for outcome in OUTCOMES},
        "seconds_spent": spent(study.cells),
        "seconds_left": sum(state.expected for state in study.cells if state.outcome == "left"),
    }


def _groups(study: StudyFolder) -> Iterable[tuple[str, str, list[CellState]]]:
    for part in study.grid.parts:
        for model in study.grid.models:
            if states := study.of(part.name, model.label):
                yield part.name, model.label, states


def _count(states: Iterable[CellState], outcome: str) -> int:
    return sum(state.outcome == outcome for state in states)


def _reasons(study: StudyFolder, outcome: str) -> dict[str, list[str]]:
    """By the reason, the engines that have it, once each."""
    found: dict[str, list[str]] = {}
    for state in study.with_outcome(outcome):
        engines = found.setdefault(state.reason or "no reason was given", [])
        if state.cell.engine not in engines:
            engines.append(state.cell.engine)
    return found
