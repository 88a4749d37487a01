"""`plan.html`: the plan as one offline page with sliders, which read a grid that was simulated beforehand.

The grid holds, for several sizes of the fleet and several answer lengths, how many requests are within each of many
limits, as bands over seeds. The page interpolates in it, and shades what no run supports.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from analysis.plan.answer import Plan
from analysis.plan.bill import HOURS_A_MONTH
from analysis.plan.facts import ERRORS, ERRORS_MEAN, facts_of, warnings_of
from analysis.plan.outcome import Band, band, within
from analysis.plan.replicas import BEYOND, WARM_UP, Fleet, share_of
from analysis.plan.steps import Floats
from analysis.plan.trials import trials
from analysis.summary.slo import objective_text
from records.files import write_atomically
from records.load import Load, Users
from records.slo import FAILURES, Objective

TEMPLATE = Path(__file__).with_name("plan.html")
SIZES = 9  # of the fleet
NEAR, FAR = 1.08, 1.25  # times the load of a replica from one point of the grid to the next, at most
LENGTHS = (0.5, 0.75, 1.0)  # times the measured answers: longer ones were not measured
LIMITS = 60
SEEDS, REQUESTS = 8, 2500  # of one seed, simulated
WINDOW = 120.0  # seconds


def write_page(plan: Plan, path: Path) -> Path:
    """Raises `OSError`."""
    data = json.dumps(page_data(plan), allow_nan=False).replace("</", "<\\/")
    write_atomically(path, TEMPLATE.read_text(encoding="utf-8").replace("__DATA__", data))
    return path


def page_data(plan: Plan) -> dict[str, Any]:
    """What the page needs: the grid, where the sliders stand, and what was said in the terminal."""
    objective = next((one for one in plan.objectives if one.metric != FAILURES), plan.objectives[0])
    points = _points(plan)
    limits = (objective.limit or 1.0) * np.geomspace(0.1, 10, LIMITS)
    gpus, hourly = plan.gpu_hours
    mean = float(plan.peak.lengths.output.mean())
    return {
        "label": plan.label,
        "answer": plan.sentence,
        "unit": plan.load.unit,
        "peak": plan.asked.value,
        "headroom": plan.headroom,
        "spares": plan.spares,
        "beyond": BEYOND,
        "most": BEYOND * plan.measured.per_replica(plan.load),
        "q": objective.q,
        "metric": objective_text(objective).partition(" ≤")[0],
        "limit": objective.limit,
        "limits": limits.tolist(),
        "loads": [load.value / count for count, load in points],
        "answers": [factor * mean for factor in LENGTHS],
        "shares": [[_shares(plan, point, factor, objective, limits) for point in points] for factor in LENGTHS],
        "price": (hourly or 0.0) * gpus,
        "month": HOURS_A_MONTH,
        "others": [objective_text(one) for one in plan.objectives if one is not objective],
        "facts": facts_of(plan),
        "source": None if plan.price_source is None else str(plan.price_source),
        "figures": ERRORS,
        "meaning": ERRORS_MEAN,
        "errors": [
            {"load": one.title, "errors": {k: None if math.isnan(v) else v for k, v in one.errors.items()}}
            for one in plan.held_out
        ],
        "warnings": warnings_of(plan),
    }


def _sizes(plan: Plan) -> list[int]:
    """Numbers of replicas from many down to the fewest that the records support: loads of a replica in ascending order.

    A balancer makes arrivals at a replica the smoother the more replicas there are, so that the load of one replica
    alone does not say how it fares.
    """
    floor = plan.measured.fewest(plan.load)
    sizes = np.geomspace(floor, max(3 * plan.replicas.count, floor + 4), SIZES)
    near = range(max(floor, plan.replicas.low - 1), plan.replicas.low + 4)
    return sorted({*(round(size) for size in sizes.tolist()), *near}, reverse=True)


def _points(plan: Plan) -> list[tuple[int, Load]]:
    """(replicas, load of all together), by the load of each in ascending order, with no wide gaps between them.

    A share may fall from all to none within a fifth more load: between sizes that far apart, what one of them would
    serve of other loads is simulated too. The answer's own surroundings are the densest.
    """
    sizes = _sizes(plan)
    points: list[tuple[int, Load]] = []
    for count, fewer in pairwise(sizes):
        near = plan.replicas.low - 1 <= fewer <= plan.replicas.low + 2
        parts = math.ceil(math.log(count / fewer) / math.log(NEAR if near else FAR))
        points += [(count, _times(plan.load, (count / fewer) ** (part / parts))) for part in range(parts)]
    return _ascending([*points, (sizes[-1], plan.load)])


def _times(load: Load, factor: float) -> Load:
    if isinstance(load, Users):
        return Users(round(load.count * factor))
    return msgspec.structs.replace(load, per_second=load.per_second * factor)


def _ascending(points: list[tuple[int, Load]]) -> list[tuple[int, Load]]:
    """By the load of a replica, each once: whole users cannot be divided that finely."""
    distinct = {load.value / count: (count, load) for count, load in points}
    return [distinct[each] for each in sorted(distinct)]


def _shares(
    plan: Plan, point: tuple[int, Load], factor: float, objective: Objective, limits: Floats
) -> list[list[float]]:
    """For each limit the share of requests within it: the median over seeds, and the range of nine in ten."""
    lengths = replace(plan.peak.lengths, output=np.maximum(np.rint(factor * plan.peak.lengths.output), 1.0))
    count, load = point
    peak = replace(plan.peak, load=load, lengths=lengths, seconds=WINDOW)
    fleet = Fleet(plan.fitted.model, peak, plan.objectives, plan.balancer, most_requests=REQUESTS)
    served = [fleet.served(count, trial) for trial in trials(SEEDS)]
    due = [[(part.between(WARM_UP, WARM_UP + WINDOW), weight) for part, weight in seed] for seed in served]
    at = [replace(objective, limit=float(limit)) for limit in limits]
    return [_three(band([share_of([(within(p, one), w) for p, w in seed]) for seed in due])) for one in at]


def _three(of: Band) -> list[float]:
    return [round(of.median, 5), round(of.low, 5), round(of.high, 5)]
