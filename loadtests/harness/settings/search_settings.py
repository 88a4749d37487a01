"""Settings of a search for capacity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from enginebench.records.slo import SLO_HELP, Objective, read_objectives, write_objectives
from enginebench.records.stage import MAX_DURATION
from enginebench.settings.schema import UserMistake
from loadtests.harness.setting_groups import most_used, search_setting

PRECISION = 0.2  # a search ends when half of the certified bracket is at most this share of its middle


def parse_range(text: str) -> tuple[float, float]:
    """Read the first and the highest load from `"1-500"`. Raises `UserMistake`."""
    try:
        first, last = (float(part) for part in text.split("-"))
        if not 0 < first <= last < float("inf"):
            raise ValueError
    except ValueError:
        raise UserMistake(f"a range of loads is FIRST-HIGHEST, such as 1-500, not `{text}`.") from None
    return first, last


def write_range(loads: tuple[float, float]) -> str:
    return "-".join(f"{load:g}" for load in loads)


@dataclass(frozen=True)
class SearchSettings:
    by: Literal["stages", "growth", "rate", "users", "agents"] = search_setting(
        "stages",
        "What to search for: the highest rate, or number of users or agents, that meets --slo. growth: users double "
        "until --slo is missed, then the two loads around the crossing are measured. stages: no search.",
    )
    slo: tuple[Objective, ...] = most_used(
        (),
        SLO_HELP,
        metavar="SLO",
        read=read_objectives,
        write=write_objectives,
        repeatable=True,
    )
    search_range: tuple[float, float] = search_setting(
        (1.0, 10_000.0),
        "First and highest load that a search tries; it goes below the first if that is too high.",
        metavar="FIRST-HIGHEST",
        read=parse_range,
        write=write_range,
    )
    search_seconds: float = search_setting(
        3600.0,
        "Time limit of a search, which reports the bracket that it has certified by then.",
        metavar="S",
        least=1,
        most=MAX_DURATION,
    )
