"""A folder of saved summaries, with which later runs are compared."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from enginebench.analysis.summary.run_summary import FlowSeries, RunSummary, read_summary, write_summary
from enginebench.records.files import place_inside

SUMMARY = "summary.json"


def save_baseline(folder: Path, summaries: Sequence[RunSummary]) -> list[Path]:
    """Write `folder`/<run id>/summary.json for each run; saved runs of the same engines are replaced.

    The series that only charts need are left out. Raises `OSError`, and `NotARun` for a saved summary of another
    version.
    """
    labels = {summary.label for summary in summaries}
    for saved in _saved(folder):
        if read_summary(saved).label in labels:
            shutil.rmtree(saved)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for summary in summaries:
        place = place_inside(folder, f"{summary.run_id}/{SUMMARY}").parent
        stages = tuple(replace(stage, curves={}, series={}) for stage in summary.stages)
        flow = FlowSeries(summary.flow.step, (), ())
        written.append(write_summary(replace(summary, folder=place, stages=stages, flow=flow)))
    return written


def _saved(folder: Path) -> list[Path]:
    """Folders that hold a summary and nothing else: those that this module has written."""
    if not folder.is_dir():
        return []
    return [
        path for path in sorted(folder.iterdir()) if path.is_dir() and [p.name for p in path.iterdir()] == [SUMMARY]
    ]
