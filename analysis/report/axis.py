"""How the stages of a report stand beside each other: their order, and what an axis or a column of them is called."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.verdict.contenders import by_load, stages_of
from analysis.verdict.summary import RunSummary


@dataclass(frozen=True, slots=True)
class Place:
    """One stage: its label, its place on the axis, and how the axis writes it under the axis' title."""

    label: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """`quantitative`: the stages are loads of one unit, the title; else each has a label, and their order is all."""

    title: str
    quantitative: bool
    places: tuple[Place, ...]

    def place(self, label: str) -> Place:
        return next(place for place in self.places if place.label == label)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(place.label for place in self.places)


def axis_of(summaries: Sequence[RunSummary]) -> Axis:
    stages = stages_of(summaries)
    if by_load(summaries):
        places = tuple(Place(stage.label, stage.load, f"{stage.load:g}") for stage in stages)
        return Axis(stages[0].load_unit if stages else "", True, places)
    return Axis("stage", False, tuple(Place(stage.label, index, stage.label) for index, stage in enumerate(stages)))
