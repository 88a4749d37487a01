"""The settings of `enginebench plan`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

from analysis.settings import slo_setting
from records.load import Load, Rate, Users
from records.slo import Objective
from settings_schema import Address, read_address, setting, write_address

Balancer = Literal["round_robin", "least_requests", "random"]
Named = tuple[tuple[str, str], ...]  # of one engine by its label, and of all others by ""
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
        raise ValueError(f"a number of tokens is a number such as 128 or a range such as 64-256, not `{text}`.")
    return low, high


def write_range(tokens: tuple[int, int] | None) -> str:
    return "" if tokens is None else f"{tokens[0]}-{tokens[1]}" if tokens[0] != tokens[1] else str(tokens[0])


def named(pairs: Named, label: str) -> str | None:
    """What was given for `label`, with or without the settings that follow in brackets, else for all engines."""
    found = dict(pairs)
    return found.get(label, found.get(label.partition(" (")[0], found.get("")))


def parse_named(text: str) -> Named:
    """`4.20`, or `LABEL=4.20` for one of several engines; one a line."""
    pairs = [line.rpartition("=")[::2] for line in text.splitlines() if line.strip()]
    return tuple((label.strip(), value.strip()) for label, value in pairs)


def parse_named_numbers(text: str) -> Named:
    """The same of numbers. Raises `ValueError` with a sentence."""
    pairs = parse_named(text)
    for _, value in pairs:
        if re.fullmatch(r"\d+(\.\d*)?|\.\d+", value) is None:
            raise ValueError(f"a price or a number of GPUs is a number, or LABEL=NUMBER, not `{text.strip()}`.")
    return pairs


def write_named(pairs: Named) -> str:
    return "\n".join(f"{label}={value}" if label else value for label, value in pairs)


def parse_speeds(text: str) -> tuple[float, ...]:
    """`20,60,180` → tokens per second. Raises `ValueError` with a sentence."""
    try:
        speeds = tuple(sorted(float(part) for part in text.split(",")))
    except ValueError:
        speeds = ()
    if not speeds or speeds[0] <= 0:
        raise ValueError(f"--agents takes output speeds in tokens per second, such as 20,60,180, not `{text}`.")
    return speeds


def write_speeds(speeds: tuple[float, ...]) -> str:
    return ",".join(f"{speed:g}" for speed in speeds)


def parse_time(text: str) -> float:
    """ISO 8601, in UTC where it names no zone → a Unix time. Raises `ValueError` with a sentence."""
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"--check-until is a time such as 2026-11-22T18:00, not `{text}`.") from None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()


def write_time(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


range_setting = partial(setting, metavar="N", read=parse_range, write=write_range)
named_setting = partial(setting, read=parse_named_numbers, write=write_named, repeatable=True)


@dataclass(frozen=True, slots=True)
class PlanSettings:
    peak: Load | Path | None = setting(
        None, f"Load that the fleet must serve: {PEAK_GRAMMAR}.", metavar="LOAD", read=parse_peak, write=write_peak
    )
    slo: tuple[Objective, ...] = slo_setting()
    peak_seconds: float = setting(300.0, "Seconds that the peak lasts.", metavar="S", least=10)
    arrivals: str = setting("poisson", "Arrival process of a rate: constant, poisson or gamma:cv=2.", metavar="PROCESS")
    balancer: Balancer = setting("round_robin", "How the load balancer chooses a replica.")
    start_up: float | None = setting(
        None, "Seconds until a new replica accepts requests. Default: as measured, else 60.", metavar="S", least=0
    )
    headroom: float = setting(
        0.0, "Share by which the load may exceed the peak, such as 0.2.", metavar="SHARE", least=0
    )
    spares: int = setting(0, "Replicas beyond those needed, in case some fail.", metavar="N", least=0)
    prompt_tokens: tuple[int, int] | None = range_setting(None, "Prompt tokens, if different from the measured ones.")
    output_tokens: tuple[int, int] | None = range_setting(None, "Answer tokens, if different from the measured ones.")
    price: Named = named_setting(
        (), "Price of a replica per hour; LABEL=USD for one of several engines.", metavar="USD"
    )
    gpu: Named = named_setting(
        (), "GPU type in the price list; LABEL=NAME for one of several engines.", metavar="NAME", read=parse_named
    )
    gpus: Named = named_setting((("", "1"),), "GPUs per replica; LABEL=N for one of several engines.", metavar="N")
    pools: bool = setting(False, "Also try two pools of replicas, split by prompt length.")
    agents: tuple[float, ...] = setting(
        (),
        "Output speeds in tokens per second, such as 20,60,180: how many agents one replica serves at each.",
        metavar="SPEEDS",
        read=parse_speeds,
        write=write_speeds,
    )
    publish: Address | None = setting(
        None,
        "Serve the figures of each plan to Prometheus on this address, such as 127.0.0.1:9647, until Ctrl-C.",
        metavar="HOST:PORT",
        read=read_address,
        write=write_address,
    )
    html: Path | None = setting(None, "Write an HTML page with sliders.", metavar="FILE")
    prices: Path | None = setting(None, "Price list to use instead of the built-in one.", metavar="FILE")
    allow_drift: bool = setting(False, "Plan even if the machine's speed drifted during the measurement.")
    seed: int = setting(0, "Seed of the simulation.", metavar="N")
    check: str | None = setting(
        None,
        "Instead of planning, compare predictions with what this Prometheus recorded of the servers.",
        metavar="URL",
    )
    check_seconds: float = setting(
        600.0, "Time span to compare, ending now or at --check-until.", metavar="S", least=10
    )
    check_until: float | None = setting(
        None,
        "End of the time span in UTC, such as 2026-11-22T18:00.",
        metavar="TIME",
        read=parse_time,
        write=write_time,
    )
    check_select: str = setting("", 'Label matchers that select the servers, such as job="chat".', metavar="MATCHERS")
