"""From settings to the stages of a run: a stage for each load and each prompt or answer length that was asked for.

A schedule is a pure function of its settings: no clock, no sleep. Each stage opens with a warm-up, in which users start
and the server's queue fills, and only what is scheduled in the window after it is counted.

    locust -f loadtests/concurrent.py --stages 10,20,40 --stage-seconds 60 --warm-up 20%
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from loadtests.harness.schedule.rates import seconds_of_requests
from loadtests.harness.workload.lengths import Lengths, whole_numbers
from records.load import Load, Rate, Users
from records.stage import Extent, StagePlan
from settings.schema import UserMistake

LEAST_BOUND = 10.0  # seconds


def parse_users(text: str) -> tuple[Load, ...]:
    """`"10,20,40"` or `"10-100:10"` (from, to, step) → a load per stage. Raises `UserMistake`."""
    try:
        counts = whole_numbers(text)
    except ValueError:
        counts = []
    if not counts or min(counts) < 1:
        raise UserMistake(f"stages are numbers of users, such as 10,20,40 or 10-100:10, not `{text}`.")
    return tuple(Users(count) for count in counts)


def write_users(loads: Sequence[Load]) -> str:
    return ",".join(f"{load.value:g}" for load in loads)


def parse_warm_up(text: str) -> tuple[float, bool]:
    """`"5"` → 5 seconds, or requests where the stage is given in requests; `"20%"` → (0.2, True), a share of the stage.

    Raises `UserMistake`.
    """
    number = text.strip()
    share = number.endswith("%")
    try:
        amount = float(number[:-1]) / 100 if share else float(number)
    except ValueError:
        amount = math.nan
    if not (math.isfinite(amount) and amount >= 0 and not (share and amount >= 1)):
        raise UserMistake(f"a warm-up is a length or a share of the stage below 100%, such as 5 or 20%, not `{text}`.")
    return amount, share


def write_warm_up(warm_up: tuple[float, bool]) -> str:
    amount, share = warm_up
    return f"{100 * amount:g}%" if share else f"{amount:g}"


def plan_stages(
    loads: Sequence[Load],
    prompts: Sequence[Lengths],
    answers: Sequence[Lengths],
    *,
    prefixes: Sequence[int] = (0,),
    seconds: float,
    requests: int | None,
    warm_up: tuple[float, bool],
) -> tuple[StagePlan, ...]:
    """One stage for each combination, loads varying slowest.

    A stage lasts `seconds`, warm-up included, or until `requests` were scheduled after the warm-up. Raises
    `UserMistake` when nothing is left to be measured.
    """
    if not (math.isfinite(seconds) and seconds > 0):
        raise UserMistake(f"a stage must last longer than 0 seconds, not {seconds:g}.")
    amount, share = warm_up
    if requests is not None:
        before = Extent(round(requests * amount) if share else round(amount), "requests")
        window = Extent(requests, "requests")
    else:
        warm = amount * seconds if share else amount
        if warm >= seconds:
            raise UserMistake(
                f"a stage of {seconds:g} s has nothing left to measure after {warm:g} s of warm-up: make the stages "
                "longer or the warm-up shorter."
            )
        before, window = Extent(warm), Extent(seconds - warm)
    for load in loads:
        if requests is not None and isinstance(load, Rate) and load.varies:
            raise UserMistake(f"the length of a stage of {load.label} is set with --stage-seconds.")
    bound = max(seconds, LEAST_BOUND)
    varied = {
        setting: [str(value) for value in values]
        for setting, values in {
            "prompt_tokens": prompts, "output_tokens": answers, "shared_prefix_tokens": prefixes,
        }.items()
        if len(values) > 1
    }  # fmt: skip
    return tuple(
        StagePlan(load, before, window, bound, _name(load, len(loads) > 1, asks), asks)
        for load, values in product(loads, product(*varied.values()))
        for asks in (dict(zip(varied, values, strict=True)),)
    )


def in_seconds(stages: Sequence[StagePlan], seed: int) -> tuple[StagePlan, ...]:
    """All stages of a run, of which those of an open loop that are given in requests get the seconds that hold exactly
    so many arrivals.

    Arrivals are drawn from `seed` and the stage's index, so no stage may be added or left out afterwards.
    """
    return tuple(_in_seconds(plan, seed, index) for index, plan in enumerate(stages))


def _in_seconds(plan: StagePlan, seed: int, index: int) -> StagePlan:
    if not isinstance(plan.load, Rate) or plan.drains or plan.window.unit == "seconds":
        return plan
    warm_up, window = int(plan.warm_up.amount), int(plan.window.amount)
    before, counted = seconds_of_requests(plan.load, warm_up, window, seed, index)
    return replace(plan, warm_up=Extent(before), window=Extent(counted))


def _name(load: Load, loads_differ: bool, asks: Mapping[str, str]) -> str | None:
    """What distinguishes a stage from others with the same load; `None` where nothing does."""
    varies = isinstance(load, Rate) and load.varies  # then its number is only a mean
    parts = [load.label] if loads_differ or varies else []
    parts += [f"{value} {setting.replace('_', ' ')}" for setting, value in asks.items()]
    return ", ".join(parts) if asks or varies else None
