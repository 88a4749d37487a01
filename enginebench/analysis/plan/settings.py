"""The settings of `enginebench plan`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from enginebench.analysis.settings import slo_setting
from enginebench.records.load import Load, Rate, Users
from enginebench.records.slo import Objective
from enginebench.settings.schema import UserMistake, setting

Named = tuple[tuple[str, str], ...]  # by label; "" is for all other engines
PEAK = "Peak and objectives"  # a group of `--help`
PEAK_GRAMMAR = "a rate such as 40req/s or a number of users such as 3000users"


def parse_peak(text: str) -> Load:
    """Read `40req/s` as a rate, `3000users` as users. Raises `UserMistake`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(req/s|rps|users?)\s*", text)
    if match is None or not float(match[1]) > 0:
        raise UserMistake(f"--peak is {PEAK_GRAMMAR}, not `{text}`.")
    if match[2].startswith("user"):
        if not float(match[1]).is_integer():
            raise UserMistake(f"--peak is a whole number of users, not `{text}`.")
        return Users(int(float(match[1])))
    return Rate(float(match[1]))


def more_load(load: Load, share: float) -> Load:
    """Increase a load by a share; users are rounded up."""
    if isinstance(load, Users):
        return Users(math.ceil(round(load.count * (1 + share), 9)))
    return load.scaled(1 + share)


def write_peak(peak: Load | None) -> str:
    return "" if peak is None else f"{peak.value:g}{peak.unit}"


def named(pairs: Named, label: str) -> str | None:
    """Return the value for `label`, with or without the settings that follow in brackets, else that of all engines."""
    values = dict(pairs)
    return values.get(label, values.get(label.partition(" (")[0], values.get("")))


def parse_named(text: str) -> Named:
    """Read `4.20`, or `LABEL=4.20` for one of several engines, a pair on each line."""
    pairs = [line.rpartition("=")[::2] for line in text.splitlines() if line.strip()]
    return tuple((label.strip(), value.strip()) for label, value in pairs)


def parse_named_numbers(text: str) -> Named:
    """Read pairs of a label and a number. Raises `UserMistake`."""
    pairs = parse_named(text)
    for _, value in pairs:
        if re.fullmatch(r"\d+(\.\d*)?|\.\d+", value) is None:
            raise UserMistake(f"a price is a number, or LABEL=NUMBER, not `{text.strip()}`.")
    return pairs


def parse_named_counts(text: str) -> Named:
    """Read pairs of a label and a number of GPUs. Raises `UserMistake`."""
    pairs = parse_named(text)
    for _, value in pairs:
        if re.fullmatch(r"0*[1-9]\d*", value) is None:
            raise UserMistake(f"--gpus is a whole number of GPUs, 1 or more, or LABEL=NUMBER, not `{text.strip()}`.")
    return pairs


def write_named(pairs: Named) -> str:
    return "\n".join(f"{label}={value}" if label else value for label, value in pairs)


peak_setting = partial(setting, group=PEAK)
cost_setting = partial(setting, group="Cost")
named_setting = partial(cost_setting, read=parse_named_numbers, write=write_named, repeatable=True)


@dataclass(frozen=True, slots=True)
class PlanSettings:
    peak: Load | None = peak_setting(
        None, f"Load that the fleet must serve: {PEAK_GRAMMAR}.", metavar="LOAD", read=parse_peak, write=write_peak
    )
    slo: tuple[Objective, ...] = slo_setting(PEAK)
    headroom: float = peak_setting(
        0.0, "Share by which the load may exceed the peak, such as 0.2.", metavar="SHARE", least=0
    )
    spares: int = peak_setting(0, "Replicas beyond those needed, in case some fail.", metavar="N", least=0)
    peak_seconds: float = peak_setting(300.0, "Seconds that the peak lasts.", metavar="S", least=10)
    price: Named = named_setting(
        (), "Price of a replica per hour; LABEL=USD for one of several engines.", metavar="USD"
    )
    gpu: Named = named_setting(
        (), "GPU type in the price list; LABEL=NAME for one of several engines.", metavar="NAME", read=parse_named
    )
    gpus: Named = named_setting(
        (("", "1"),),
        "GPUs per replica; LABEL=N for one of several engines.",
        metavar="N",
        read=parse_named_counts,
    )
    prices: Path | None = cost_setting(None, "Price list to use instead of the built-in one.", metavar="FILE")
    html: Path | None = setting(None, "Write an HTML page with sliders.", metavar="FILE")

    @property
    def load(self) -> Load:
        """The peak with headroom."""
        assert self.peak is not None
        return more_load(self.peak, self.headroom)
