"""The order of the stages in a report, and the title and texts of an axis or a column of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from enginebench.analysis.compare.engine_runs import by_load, stages_of
from enginebench.analysis.summary.run_summary import RunSummary


@dataclass(frozen=True, slots=True)
class Place:
    """One stage: its label, its place on the axis, and how the axis writes it under the axis' title."""

    label: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """`quantitative`: the stages are numbers of one unit, the title; else their order is all."""

    title: str
    quantitative: bool
    places: tuple[Place, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(place.label for place in self.places)


def axis_of(summaries: Sequence[RunSummary]) -> Axis:
    """Names such as `200 prompt tokens` have numbers too."""
    labels = [stage.label for stage in stages_of(summaries)]
    if by_load(summaries):
        stages = stages_of(summaries)
        places = tuple(Place(stage.label, stage.load, f"{stage.load:g}") for stage in stages)
        return Axis(stages[0].load_unit, True, places)
    numbered = [re.fullmatch(r"(\d+(?:\.\d+)?) ([^#]+)", label) for label in labels]
    matches = [match for match in numbered if match is not None]
    numbers, units = [float(match[1]) for match in matches], {match[2] for match in matches}
    if len(matches) == len(labels) and len(units) == 1 and numbers == sorted(set(numbers)):
        places = tuple(Place(label, number, f"{number:g}") for label, number in zip(labels, numbers, strict=True))
        return Axis(units.pop(), True, places)
    return Axis("stage", False, tuple(Place(label, index, label) for index, label in enumerate(labels)))
