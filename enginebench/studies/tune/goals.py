"""What a race can maximise. A further goal is a name in `Goal` and a row of `GOALS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from enginebench.records.formatting import CURRENCY
from enginebench.records.metrics import GOODPUT

if TYPE_CHECKING:
    from enginebench.analysis.summary.run_summary import RunSummary

MIN_SHARE = 0.5  # score if nothing meets the SLO: a share of a request, or of the lowest load
USERS = {"stages": "32", "stage_seconds": "20"}
Goal = Literal["goodput", "capacity", "cost"]


@dataclass(frozen=True, slots=True)
class Scoring:
    """How runs are scored for a goal. `score` takes a run with answered requests and the price per hour, and returns
    `None` if the load was not measured."""

    meaning: str  # in the help of --for
    measure: str
    unit: str
    scenario: str
    load: Mapping[str, str]  # of each run, if none is given
    score: Callable[[RunSummary, float | None], float | None]
    priced: bool = False  # needs --price


def _goodput(summary: RunSummary, price: float | None) -> float:
    """Return the goodput at the best tested load."""
    return max(max(stage.value(GOODPUT) or 0.0, MIN_SHARE / stage.seconds) for stage in summary.stages)


def _capacity(summary: RunSummary, price: float | None) -> float | None:
    from enginebench.analysis.engine_runs import engine_runs_of
    from enginebench.analysis.verdict.capacity import capacities_of

    (capacity,) = capacities_of(engine_runs_of([summary])) or (None,)
    if capacity is None:
        return None
    return capacity.load or MIN_SHARE * min(stage.load for stage in summary.stages)


def _requests_per_price(summary: RunSummary, price: float | None) -> float:
    return _goodput(summary, price) * (3600 / price if price else 1.0)


GOALS: Mapping[Goal, Scoring] = {
    "goodput": Scoring("requests within the SLO", GOODPUT, "req/s", "concurrent", USERS, _goodput),
    "capacity": Scoring(
        "the highest load within it", "capacity", "users", "quick", {"search_seconds": "40"}, _capacity
    ),
    "cost": Scoring(
        "requests per dollar",
        f"{GOODPUT} per dollar",
        f"requests per {CURRENCY.sign}",
        "concurrent",
        USERS,
        _requests_per_price,
        priced=True,
    ),
}
