"""`plan.html`: the document as one offline page, with sliders that read a grid which was simulated beforehand.

The grid holds, for several sizes of the fleet and several answer lengths, the share of requests within each of many
limits. At the plan's own load, lengths and objectives it holds the very futures that the document shows. Elsewhere the
page interpolates in the simulation, and it shades what no run supports. What was measured is not interpolated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.document import Document, Table
from enginebench.analysis.plan.candidates import Plan
from enginebench.analysis.plan.fleet import FUTURES, SURE, Fleet, share_within
from enginebench.analysis.plan.measured import SupportedLoads
from enginebench.analysis.plan.prices import HOURS_A_MONTH
from enginebench.analysis.plan.replicas import SimulatedReplicas
from enginebench.analysis.plan.requests import band
from enginebench.analysis.plan.settings import PlanSettings, more_load
from enginebench.analysis.write import words
from enginebench.analysis.write.cells import show
from enginebench.analysis.write.sentence import sentence
from enginebench.records.load import Load, Users
from enginebench.records.slo import Objective

SIZES = 9  # of the fleet
NEAR, FAR = 1.08, 1.25  # largest ratio of the loads of a replica at neighbouring points of the grid
LENGTHS = (0.5, 0.75, 1.0)  # times the measured answers: longer ones were not measured
LIMITS = 61  # odd, so that the plan's own limit is the middle one
GRID_FUTURES, GRID_REQUESTS, GRID_SECONDS = 8, 2500, 120.0  # for what the plan itself has not simulated


def page_data(document: Document, plans: Sequence[Plan], settings: PlanSettings) -> dict[str, Any]:
    """The document in words, and the grid of the cheapest engine that could be simulated, if there is one."""
    assert document.candidates is not None
    assert document.next is not None
    order = [each.name for each in document.answer.candidates]  # type: ignore[union-attr]
    simulated = [plan for plan in plans if plan.simulation is not None and plan.simulation.replicas is not None]
    chosen = min(simulated, key=lambda plan: order.index(plan.name), default=None)
    return {
        "label": document.title,
        "tested": words.tested_line(document.tested),
        "slo": words.slo_line(document.objectives),
        "answer": sentence(document.answer),
        "candidates": _rows(document.candidates),
        "legend": " · ".join(f"{sign} {meaning}" for sign, meaning in words.legend(document)),
        "heading": words.next_title(document.next),
        "next": words.next_line(document.next),
        "command": words.next_command(document.next),
        "warnings": [" ".join(words.warning_texts(warning)) for warning in document.warnings[: words.MAX_WARNINGS]],
        "sections": [
            {"title": section.title, "tables": [_rows(block) for block in section.blocks if isinstance(block, Table)]}
            for section in document.sections
            if not section.folded
        ],
        "grid": None if chosen is None else _grid(chosen, settings),
    }


def _rows(table: Table) -> list[list[str]]:
    return [[column.title for column in table.columns], *([show(cell).line for cell in row] for row in table.rows)]


def _grid(plan: Plan, settings: PlanSettings) -> dict[str, Any]:
    simulation, capacity = plan.simulation, plan.replicas.capacity
    assert simulation is not None
    fleet, supported, answer = simulation.fleet, simulation.supported, simulation.replicas
    assert fleet is not None
    assert supported is not None
    assert answer is not None
    objective, points = fleet.objectives[0], _points(fleet, supported, answer)
    limits = objective.limit * np.geomspace(0.1, 10, LIMITS)
    limits[LIMITS // 2] = objective.limit
    cells = [[_cells(fleet, answer, point, factor, limits) for point in points] for factor in LENGTHS]
    mean = float(fleet.peak.lengths.output.mean())
    in_unit = capacity is not None and capacity.unit == settings.load.unit
    return {
        "label": plan.name,
        "unit": settings.load.unit,
        "peak": 0.0 if settings.peak is None else settings.peak.value,
        "headroom": settings.headroom,
        "spares": settings.spares,
        "measured": capacity.load if capacity is not None and in_unit else None,
        "used": simulation.refused is None,
        "most": supported.largest(settings.load),
        "beyond": supported.beyond,
        "q": objective.q,
        "metric": objective.text.partition(" ≤")[0],
        "limit": objective.limit,
        "limits": limits.tolist(),
        "loads": [load.value / count for count, load in points],
        "answers": [factor * mean for factor in LENGTHS],
        "shares": [[shares for shares, _ in row] for row in cells],
        "margins": [[margins for _, margins in row] for row in cells],
        "price": 0.0 if plan.price is None else plan.price.per_hour,
        "month": HOURS_A_MONTH,
        "others": [other.text for other in fleet.objectives[1:]],
    }


def _points(fleet: Fleet, supported: SupportedLoads, answer: SimulatedReplicas) -> list[tuple[int, Load]]:
    """(replicas, load of all together), by the load of each in ascending order, with no wide gaps between them.

    Arrivals in turn are the smoother the more replicas there are, so that the load of one replica alone does not say
    how it fares. A share may fall from all to none within a fifth more load: between sizes that far from each other,
    other loads of one of them are simulated too. The answer's own surroundings are the densest.
    """
    load = fleet.peak.load
    points: list[tuple[int, Load]] = []
    for count, fewer in pairwise(_sizes(load, supported, answer)):
        near = answer.count - 2 <= fewer <= answer.count + 2
        parts = math.ceil(math.log(count / fewer) / math.log(NEAR if near else FAR))
        points += [(count, more_load(load, (count / fewer) ** (part / parts) - 1)) for part in range(parts)]
    points.append((supported.fewest(load), load))
    # Each load of a replica once: whole users cannot be divided that finely. The plan's own load comes first.
    distinct: dict[float, tuple[int, Load]] = {}
    for count, at in sorted(points, key=lambda point: point[1] != load):
        distinct.setdefault(at.value / count, (count, at))
    return [distinct[load_of_each] for load_of_each in sorted(distinct)]


def _sizes(load: Load, supported: SupportedLoads, answer: SimulatedReplicas) -> list[int]:
    """Numbers of replicas from many down to the fewest that the records support."""
    floor = supported.fewest(load)
    sizes = np.geomspace(floor, max(3 * answer.count, floor + 4), SIZES)
    own = {answer.count, *({answer.fewer.replicas} if answer.fewer is not None else ())}
    near = range(max(floor, answer.count - 2), answer.count + 4)
    return sorted({*(round(size) for size in sizes.tolist()), *near, *own, floor}, reverse=True)


def _cells(
    fleet: Fleet, answer: SimulatedReplicas, point: tuple[int, Load], factor: float, limits: Floats
) -> tuple[list[list[float]], list[float]]:
    """For each limit: the share of requests within it, as a median and the range of nine in ten futures; and by how
    much the worst objective is met in the 95 % of the futures that meet it best."""
    (count, load), objective = point, fleet.objectives[0]
    known = {each.replicas: each.futures for each in (answer.fewer, answer.chosen) if each is not None}
    if load == fleet.peak.load and factor == 1.0 and count in known:
        parts, shown = [fleet.parts(count, future) for future in range(FUTURES)], known[count]
    else:
        grid = _grid_fleet(fleet, answer, load, factor)
        parts, shown = [grid.parts(count, future) for future in range(GRID_FUTURES)], GRID_FUTURES
    others = [other for other in fleet.objectives if other is not objective]
    rest = [min((share_within(part, o) - o.q for o in others), default=math.inf) for part in parts]
    shares, margins = [], []
    for limit in limits.tolist():
        within = [share_within(part, replace(objective, limit=limit)) for part in parts]
        share = band(within[:shown])
        shares.append([round(value, 6) for value in (share.median, share.low, share.high)])
        margins.append(_margin(objective, within, rest))
    return shares, margins


def _margin(objective: Objective, within: Sequence[float], rest: Sequence[float]) -> float:
    """The margin that 95 % of the futures reach."""
    ordered = sorted(min(share - objective.q, other) for share, other in zip(within, rest, strict=True))
    return round(ordered[math.floor((1 - SURE) * len(ordered) + 1e-9)], 7)


def _grid_fleet(fleet: Fleet, answer: SimulatedReplicas, load: Load, factor: float) -> Fleet:
    """The peak lasts at least two cycles: from a request to the next one of the same user, or to its answer."""
    lengths, chosen = fleet.peak.lengths, answer.chosen
    lengths = replace(lengths, output=np.maximum(np.rint(factor * lengths.output), 1.0))
    cycle = (fleet.peak.load.value if isinstance(load, Users) else chosen.in_flight) / chosen.rate
    peak = replace(fleet.peak, load=load, lengths=lengths, seconds=max(GRID_SECONDS, 2 * cycle))
    return replace(fleet, peak=peak, max_requests=GRID_REQUESTS, tallies={})
