"""What profilers saw of the engines, after all cells and in no number of the study."""

from __future__ import annotations

from analysis.report.profiles import OUTSIDE, shown_profile
from studies.report.contents import StudyReport
from studies.report.section import Section


def profiles(study: StudyReport) -> Section:
    """Empty where nobody asked for any. Links lead from the study's folder."""
    shown = [shown_profile(each, run.folder, run.folder.parents[1]) for run in study.runs for each in run.profiles]
    return Section(
        "Profiles",
        (OUTSIDE, *(f"{one.title}. {one.sentence}" for one in shown)) if shown else (),
        tables=tuple(one.table for one in shown if one.table is not None),
        links=tuple(path for one in shown for _, path in one.files),
    )
