"""The settings of `enginebench plan`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from analysis.settings import slo_setting
from records.load import Load, Rate, Users
from records.slo import Objective
from settings_schema import setting

Balancer = Literal["round_robin", "least_requests", "random"]
PEAK_GRAMMAR = "a rate such as 40req/s, a number of users such as 3000users, or a CSV file of a day's traffic"


def parse_peak(text: str) -> Load | Path:
    """`40req/s` → a rate, `3000users` → users, else a file that is there. Raises `ValueError` with a sentence."""
    if Path(text).is_file():
        return Path(text)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(req/s|rps|users?)\s*", text)
    if match is None or not float(match[1]) > 0:
        raise ValueError(f"--peak is {PEAK_GRAMMAR}, not `{text}`.")
    if match[2].startswith("user"):
        if not float(match[1]).is_integer():
            raise ValueError(f"--peak is a whole number of users, not `{text}`.")
        return Users(int(float(match[1])))
    return Rate(float(match[1]))


def write_peak(peak: Load | Path | None) -> str:
    return f"{peak.value:g}{peak.unit}" if isinstance(peak, Users | Rate) else str(peak or "")


def parse_range(text: str) -> tuple[int, int]:
    """`128` or `64-256` → the least and the most. Raises `ValueError` with a sentence."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high:
        raise ValueError(f"a number of tokens is one such as 128, or a range such as 64-256, not `{text}`.")
    return low, high


def write_range(tokens: tuple[int, int] | None) -> str:
    return "" if tokens is None else f"{tokens[0]}-{tokens[1]}" if tokens[0] != tokens[1] else str(tokens[0])


@dataclass(frozen=True, slots=True)
class PlanSettings:
    peak: Load | Path | None = setting(
        None, f"What the fleet must bear: {PEAK_GRAMMAR}.", metavar="LOAD", read=parse_peak, write=write_peak
    )
    slo: tuple[Objective, ...] = slo_setting()
    peak_seconds: float = setting(300.0, "Seconds that the peak lasts.", metavar="S", least=10)
    arrivals: str = setting("poisson", "Arrivals of a rate: constant, poisson or gamma:cv=2.", metavar="PROCESS")
    balancer: Balancer = setting("round_robin", "How the load balancer chooses a replica.")
    start_up: float | None = setting(
        None, "Seconds until a new replica serves. Default: as measured, else 60.", metavar="S", least=0
    )
    headroom: float = setting(0.0, "Share by which the load may be above the peak, as 0.2.", metavar="SHARE", least=0)
    spares: int = setting(0, "Replicas beyond those needed, to stand in for failed ones.", metavar="N", least=0)
    prompt_tokens: tuple[int, int] | None = setting(
        None, "Prompt tokens, if others than were measured.", metavar="N", read=parse_range, write=write_range
    )
    output_tokens: tuple[int, int] | None = setting(
        None, "Answer tokens, if others than were measured.", metavar="N", read=parse_range, write=write_range
    )
    price: float | None = setting(None, "Price of a replica, per hour.", metavar="USD", least=0)
    gpu: str | None = setting(None, "Class of the GPU whose price counts, as in the price list.", metavar="NAME")
    gpus: int = setting(1, "GPUs of a replica.", metavar="N", least=1)
    html: Path | None = setting(None, "Where to write a page with sliders, for the meeting.", metavar="FILE")
    prices: Path | None = setting(None, "A price list of your own, in place of the one shipped.", metavar="FILE")
    allow_drift: bool = setting(False, "Predict although the machine drifted while it was measured.")
    seed: int = setting(0, "Seed of the simulation.", metavar="N")
