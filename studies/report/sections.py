"""Which sections a study's report has, in their order: the answer stands before all of them."""

from __future__ import annotations

from collections.abc import Callable

from studies.report import criteria, deployment, ladder, lengths, over_loads, profiles, quality, repeating
from studies.report.contents import StudyReport
from studies.report.section import Section

SECTIONS: tuple[Callable[[StudyReport], Section], ...] = (
    over_loads.pareto,
    over_loads.latency,
    ladder.ladder,
    over_loads.scaling,
    deployment.memory,
    lengths.lengths,
    lengths.kernels,
    over_loads.matrix,
    quality.quality,
    deployment.own_servers,
    deployment.cost,
    deployment.recommendation,
    criteria.criteria,
    repeating.comparisons,
    profiles.profiles,
)


def sections_of(study: StudyReport) -> list[Section]:
    """Those that have something to show, then what was not measured, and how to repeat it."""
    made = [section(study) for section in SECTIONS]
    empty = [section for section in made if section.empty and section.why]
    shown = [section for section in made if not section.empty]
    return [*shown, repeating.not_measured(study, empty), repeating.repeating(study)]
