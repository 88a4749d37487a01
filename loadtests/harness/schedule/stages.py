"""The plan of a run: so many users, for so long, one stage after the other.

A schedule is a pure function of its settings: no clock, no sleep. Users of a stage start a little apart, the server's
queue fills, and only then is anything steady; so each stage opens with a warm-up and closes with a cool-down, and what
is counted lies between the two.

    locust -f loadtests/concurrent.py --steps 10,20,40 --stage-seconds 60 --warm-up 20% --cool-down 5
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from records.record import Stage

SECOND = 1_000_000_000  # nanoseconds


def parse_steps(text: str) -> tuple[int, ...]:
    """`"10,20,40"` or `"10-100:10"` (from, to, step) → users per stage. Raises `ValueError` with a sentence."""
    steps: list[int] = []
    try:
        for part in text.split(","):
            first, dash, rest = part.strip().partition("-")
            if dash:
                last, _, by = rest.partition(":")
                steps += range(int(first), int(last) + 1, int(by or first))
            else:
                steps.append(int(first))
    except ValueError:
        steps = []
    if not steps or min(steps) < 1:
        raise ValueError(f"steps are numbers of users, such as 10,20,40 or 10-100:10, not `{text}`.")
    return tuple(steps)


def parse_margin(text: str, stage_seconds: float) -> float:
    """Seconds of warm-up or cool-down, given as seconds (`"5"`) or as a share of the stage (`"20%"`).

    Raises `ValueError` with a sentence.
    """
    number = text.strip()
    try:
        seconds = float(number[:-1]) / 100 * stage_seconds if number.endswith("%") else float(number)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"a warm-up or cool-down is seconds or a share of the stage, such as 5 or 20%, not `{text}`.")
    return seconds


def plan_stages(steps: Sequence[int], stage_seconds: float, warm_up: float, cool_down: float) -> tuple[Stage, ...]:
    """One stage per step, end to end from 0; all given in seconds. Raises `ValueError` when nothing steady is left."""
    if not (math.isfinite(stage_seconds) and stage_seconds > 0):
        raise ValueError(f"a stage lasts longer than 0 seconds, not {stage_seconds:g}.")
    if warm_up + cool_down >= stage_seconds:
        raise ValueError(
            f"a stage of {stage_seconds:g} s has no steady part left after {warm_up:g} s of warm-up and {cool_down:g} s"
            " of cool-down: make the stages longer or these shorter."
        )
    stages = []
    for index, users in enumerate(steps):
        start = round(index * stage_seconds * SECOND)
        end = round((index + 1) * stage_seconds * SECOND)
        steady = (start + round(warm_up * SECOND), end - round(cool_down * SECOND))
        stages.append(Stage(index, users, start, *steady, end))
    return tuple(stages)


def stage_at(stages: Sequence[Stage], t: int) -> Stage | None:
    """The stage in which `t` (nanoseconds since the run's start) lies; `None` before the first and after the last."""
    return next((stage for stage in stages if stage.start <= t < stage.end), None)


def cut_stages(stages: Sequence[Stage], end: int) -> tuple[Stage, ...]:
    """The stages of a run that stopped at `end`: later ones are gone, the one that was running ends there."""
    return tuple(
        replace(
            stage,
            steady_start=min(stage.steady_start, end),
            steady_end=min(stage.steady_end, end),
            end=min(stage.end, end),
        )
        for stage in stages
        if stage.start < end
    )
