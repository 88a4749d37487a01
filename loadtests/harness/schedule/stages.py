"""The stages of a run, from its settings: one for each load and each length of prompts or answers.

A schedule is a pure function of its settings, without clock or sleep. Each stage begins with a warm-up, in which users
start and the server's queue fills; only requests that are scheduled in the window after it are counted.

    locust -f loadtests/concurrent.py --stages 10,20,40 --stage-seconds 60 --warm-up 20%
    locust -f loadtests/concurrent.py --stages 20x5m,60x1m,20x5m
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from enginebench.records.load import TRACE, Load, Rate
from enginebench.records.stage import MAX_DURATION, Extent, StagePlan
from enginebench.settings.schema import UserMistake
from enginebench.settings.units import parse_seconds
from loadtests.harness.schedule.load_grammar import LoadStep
from loadtests.harness.schedule.rates import arrival_times, seconds_of_requests

MIN_BOUND = 10.0  # seconds
MANY = 100  # expected arrivals from which a window cannot be empty


def parse_warm_up(text: str) -> tuple[float, bool]:
    """Return an amount and whether it is a share of the stage: (0.2, True) for `"20%"`, (5, False) for `"5s"`.

    Raises `UserMistake`.
    """
    number = text.strip()
    share = number.endswith("%")
    try:
        amount = float(number[:-1]) / 100 if share else parse_seconds(number)
    except ValueError:
        amount = math.nan
    if not (math.isfinite(amount) and amount >= 0 and not (share and amount >= 1)):
        raise UserMistake(f"a warm-up is a length or a share of the stage below 100%, such as 5s or 20%, not `{text}`.")
    return amount, share


def write_warm_up(warm_up: tuple[float, bool]) -> str:
    amount, share = warm_up
    return f"{100 * amount:g}%" if share else f"{amount:g}"


def plan_stages(
    steps: Sequence[LoadStep],
    variations: Mapping[str, Sequence[object]],
    *,
    seconds: float,
    requests: int | None,
    warm_up: tuple[float, bool],
) -> tuple[StagePlan, ...]:
    """Plan a stage for each combination of a load and of settings with several values; loads vary slowest.

    A stage lasts its own time or `seconds`, warm-up included, or until `requests` were scheduled after the warm-up.
    Raises `UserMistake` if the warm-up leaves no window.
    """
    varied = {setting: [str(value) for value in values] for setting, values in variations.items() if len(values) > 1}
    several = len(steps) > 1
    planned = []
    for step in steps:
        length = seconds if step.seconds is None else step.seconds
        before, window = _extents(step, length, requests, warm_up)
        for values in product(*varied.values()):
            asks = dict(zip(varied, values, strict=True))
            name = _name(step.load, several, asks)
            planned.append(StagePlan(step.load, before, window, max(length, MIN_BOUND), name, asks))
    return tuple(planned)


def _extents(
    step: LoadStep, seconds: float, requests: int | None, warm_up: tuple[float, bool]
) -> tuple[Extent, Extent]:
    """Return the warm-up and the window of a stage. Raises `UserMistake`."""
    if not 0 < seconds <= MAX_DURATION:
        raise UserMistake(f"a stage must last longer than 0 seconds, and {MAX_DURATION:,} at most, not {seconds:g}.")
    amount, share = warm_up
    if requests is not None:
        if step.seconds is not None:
            raise UserMistake(f"a stage of {step} has its own length: leave --stage-requests out.")
        if isinstance(step.load, Rate) and step.load.varies:
            raise UserMistake(f"the length of a stage of {step.load.label} is set with --stage-seconds.")
        before = Extent(round(requests * amount) if share else round(amount), "requests")
        return before, Extent(requests, "requests")
    warm = amount * seconds if share else amount
    if warm >= seconds:
        raise UserMistake(
            f"a stage of {seconds:g} s has no time to measure after {warm:g} s of warm-up: make the stages longer or "
            "the warm-up shorter."
        )
    return Extent(warm), Extent(seconds - warm)


def in_seconds(stages: Sequence[StagePlan], seed: int) -> tuple[StagePlan, ...]:
    """Return the stages with times in place of numbers of arrivals, for open loops whose length is in requests.

    Arrivals are drawn from `seed` and the stage's index, so no stage may be added or removed afterwards.
    """
    return tuple(_in_seconds(plan, seed, index) for index, plan in enumerate(stages))


def _in_seconds(plan: StagePlan, seed: int, index: int) -> StagePlan:
    if not isinstance(plan.load, Rate) or plan.drains or plan.load.arrivals == TRACE or plan.window.unit == "seconds":
        return plan
    warm_up, window = int(plan.warm_up.amount), int(plan.window.amount)
    before, counted = seconds_of_requests(plan.load, warm_up, window, seed, index)
    return replace(plan, warm_up=Extent(before), window=Extent(counted))


def check_arrivals(stages: Sequence[StagePlan], seed: int) -> None:
    """Raise `UserMistake` if no request is due in any window."""
    if not any(_has_arrivals(plan, seed, index) for index, plan in enumerate(stages)):
        label, seconds = stages[0].label, stages[0].window.amount
        raise UserMistake(
            f"no request would be sent: at {label} none is due in a window of {seconds:g} s; make the stages longer "
            "(--stage-seconds) or the rate higher (--rate)."
        )


def _has_arrivals(plan: StagePlan, seed: int, index: int) -> bool:
    load, window = plan.load, plan.window
    if not isinstance(load, Rate) or window.unit == "requests" or load.per_second * window.amount > MANY:
        return True
    warm_up = plan.warm_up.amount
    due = next((at for at in arrival_times(load, warm_up, window.amount, seed, index) if at >= warm_up), math.inf)
    return due < warm_up + window.amount


def _name(load: Load, loads_differ: bool, asks: Mapping[str, str]) -> str | None:
    """Return a name that distinguishes the stage from others with the same load; `None` if none is needed."""
    varies = isinstance(load, Rate) and load.varies  # then its number is only a mean
    parts = [load.label] if loads_differ or varies else []
    parts += [f"{value} {setting.replace('_', ' ')}" for setting, value in asks.items()]
    return ", ".join(parts) if asks or varies else None
