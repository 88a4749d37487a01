"""`plan.html`: the plan as one offline page, with sliders that read a grid that was simulated beforehand.

The grid holds, for several sizes of the fleet and several answer lengths, how many requests are within each of many
limits. At the plan's own load, lengths and objectives it holds the very futures that the answer was taken from.
Elsewhere the page interpolates, and it shades what no run supports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from enginebench.analysis.arrays import Floats
from enginebench.analysis.console import TextTable
from enginebench.analysis.first_screen import FirstScreen
from enginebench.analysis.plan.accuracy import ERRORS
from enginebench.analysis.plan.alternatives import Alternatives
from enginebench.analysis.plan.document import ERRORS_MEAN, alternatives_table, bill_rows, facts_of, warnings_of
from enginebench.analysis.plan.fleet import FUTURES, MEDIAN, SURE, Fleet, share_within
from enginebench.analysis.plan.plan import Plan
from enginebench.analysis.plan.prices import HOURS_A_MONTH
from enginebench.analysis.plan.replicas import NEARLY_ALL, more_load
from enginebench.analysis.plan.requests import band
from enginebench.records.load import Load, Users
from enginebench.records.slo import Objective

SIZES = 9  # of the fleet
NEAR, FAR = 1.08, 1.25  # times the load of a replica from one point of the grid to the next, at most
LENGTHS = (0.5, 0.75, 1.0)  # times the measured answers: longer ones were not measured
LIMITS = 61  # odd, so that the plan's own limit is the middle one
GRID_FUTURES, GRID_REQUESTS, GRID_SECONDS = 8, 2500, 120.0  # where the plan itself has simulated nothing


def page_data(alternatives: Alternatives, screen: FirstScreen) -> dict[str, Any]:
    """What the page shows: the first screen, and of the cheapest engine the grid and what it rests on."""
    plan = alternatives.cheapest
    assert screen.table is not None, "replicas were planned"
    objective = plan.fleet.objectives[0]
    assert objective.limit
    limits = objective.limit * np.geomspace(0.1, 10, LIMITS)
    limits[LIMITS // 2] = objective.limit
    gpus, hourly = plan.gpu_hours
    mean, points = float(plan.fleet.peak.lengths.output.mean()), _points(plan)
    cells = [[_cells(plan, point, factor, objective, limits) for point in points] for factor in LENGTHS]
    return {
        "label": plan.label,
        "answer": screen.answer,
        "screen": _rows(screen.table),
        "notes": screen.table.caption,
        "sentences": screen.sentences,
        "alternatives": _rows(alternatives_table(alternatives)) if len(alternatives.all) > 1 else [],
        "warnings": warnings_of(plan),
        "mark": plan.marked(""),
        "refused": [f"{a.name}: {a.refused}" for a in alternatives.all if a.refused is not None],
        "unit": plan.load.unit,
        "peak": plan.asked.value,
        "headroom": plan.headroom,
        "spares": plan.spares,
        "most": plan.supported.largest(plan.load),
        "beyond": plan.supported.beyond,
        "q": objective.q,
        "metric": objective.text.partition(" ≤")[0],
        "limit": objective.limit,
        "limits": limits.tolist(),
        "loads": [load.value / count for count, load in points],
        "answers": [factor * mean for factor in LENGTHS],
        "shares": [[point[0] for point in row] for row in cells],
        "margins": [[point[1] for point in row] for row in cells],
        "price": (hourly or 0.0) * gpus,
        "month": HOURS_A_MONTH,
        "others": [other.text for other in plan.objectives if other is not objective],
        "facts": [*bill_rows(plan)[:1], *facts_of(plan)],
        "figures": ERRORS,
        "meaning": ERRORS_MEAN,
        "errors": [
            {"load": held.title, "errors": {k: None if math.isnan(v) else v for k, v in held.errors.items()}}
            for held in plan.held_out
        ],
    }


def _rows(table: TextTable) -> list[list[str]]:
    return [list(table.headers), *map(list, table.rows)]


def _points(plan: Plan) -> list[tuple[int, Load]]:
    """(replicas, load of all together), by the load of each in ascending order, with no wide gaps between them.

    A balancer makes arrivals at a replica the smoother the more replicas there are, so that the load of one replica
    alone does not say how it fares. A share may fall from all to none within a fifth more load: between sizes that far
    apart, what one of them would serve of other loads is simulated too. The answer's own surroundings are the densest.
    """
    sizes, low = _sizes(plan), plan.replicas.low
    points: list[tuple[int, Load]] = []
    for count, fewer in pairwise(sizes):
        near = low - 1 <= fewer <= max(plan.replicas.count, low + 2)
        parts = math.ceil(math.log(count / fewer) / math.log(NEAR if near else FAR))
        points += [(count, more_load(plan.load, (count / fewer) ** (part / parts) - 1)) for part in range(parts)]
    points.append((sizes[-1], plan.load))
    # Each load of a replica once: whole users cannot be divided that finely. The plan's own load comes first.
    distinct: dict[float, tuple[int, Load]] = {}
    for count, load in sorted(points, key=lambda point: point[1] != plan.load):
        distinct.setdefault(load.value / count, (count, load))
    return [distinct[each] for each in sorted(distinct)]


def _sizes(plan: Plan) -> list[int]:
    """Numbers of replicas from many down to the fewest that the records support."""
    floor, answer = plan.supported.fewest(plan.load), plan.replicas
    sizes = np.geomspace(floor, max(3 * answer.count, floor + 4), SIZES)
    own = {answer.count, answer.low, *({answer.fewer.replicas} if answer.fewer is not None else ())}
    near = range(max(floor, answer.low - 1), answer.low + 4)
    return sorted({*(round(size) for size in sizes.tolist()), *near, *own}, reverse=True)


def _cells(
    plan: Plan, point: tuple[int, Load], factor: float, objective: Objective, limits: Floats
) -> tuple[list[list[float]], list[list[float]]]:
    """For each limit: the share of requests within it, as a median and the range of nine in ten futures; and by how
    much the worst objective is met in the 50, 95 and 99 % of the futures that meet it best."""
    count, load = point
    answer, own = plan.replicas, load == plan.load and factor == 1.0
    known = {attainment.replicas: attainment.futures for attainment in (answer.fewer, answer.chosen) if attainment}
    if own and count in known:
        parts, shown = [plan.fleet.parts(count, future) for future in range(FUTURES)], known[count]
    else:
        fleet = _grid_fleet(plan, load, factor)
        parts, shown = [fleet.parts(count, future) for future in range(GRID_FUTURES)], GRID_FUTURES
    others = [other for other in plan.fleet.objectives if other is not objective]
    rest = [min((share_within(part, o) - o.q for o in others), default=math.inf) for part in parts]
    shares, margins = [], []
    for limit in limits.tolist():
        within = [share_within(part, replace(objective, limit=limit)) for part in parts]
        share = band(within[:shown])
        shares.append([round(value, 6) for value in (share.median, share.low, share.high)])
        margins.append(_margins([min(w - objective.q, r) for w, r in zip(within, rest, strict=True)]))
    return shares, margins


def _grid_fleet(plan: Plan, load: Load, factor: float) -> Fleet:
    lengths = plan.fleet.peak.lengths
    lengths = replace(lengths, output=np.maximum(np.rint(factor * lengths.output), 1.0))
    peak = replace(plan.fleet.peak, load=load, lengths=lengths, seconds=max(GRID_SECONDS, 2 * _cycle(plan)))
    return replace(plan.fleet, peak=peak, most_requests=GRID_REQUESTS, tallies={})


def _cycle(plan: Plan) -> float:
    """Mean seconds from a request to the next one of the same user; in an open loop, to its answer (Little's law)."""
    chosen = plan.replicas.chosen
    return (plan.load.value if isinstance(plan.load, Users) else chosen.in_flight) / chosen.rate


def _margins(of_futures: Sequence[float]) -> list[float]:
    """The margin that this share of the futures reaches, with as many misses as the plan allows."""
    ordered = sorted(of_futures)
    return [round(ordered[math.floor((1 - share) * len(ordered) + 1e-9)], 7) for share in (MEDIAN, SURE, NEARLY_ALL)]
