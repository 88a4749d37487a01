"""Settings that several commands of the analysis share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from enginebench.records.formatting import CURRENCY
from enginebench.records.load import Load, Rate, Users
from enginebench.records.slo import SLO_HELP, Objective, read_objectives, write_objectives
from enginebench.settings.schema import UserMistake, setting

CRITICAL = 0.2  # a gate fails if a metric is worse by more than this share of the baseline
Prices = tuple[tuple[str, float], ...]  # `CURRENCY` per hour by label; "" is for all other engines
PEAK_GRAMMAR = "a number of users such as 3000 or a rate such as 40/s"
peak_setting = partial(setting, group="Peak and objectives")


def parse_peak(text: str) -> Load:
    """Read `3000` and `3000users` as users, `40/s` and `40req/s` as a rate. Raises `UserMistake`."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(/s|req/s|rps|users?|)\s*", text)
    if match is None or not float(match[1]) > 0:
        raise UserMistake(f"--peak is {PEAK_GRAMMAR}, not `{text}`.")
    if match[2] and not match[2].startswith("user"):
        return Rate(float(match[1]))
    if not float(match[1]).is_integer():
        raise UserMistake(f"--peak is a whole number of users, or a rate such as {text.strip()}/s, not `{text}`.")
    return Users(int(float(match[1])))


def more_load(load: Load, share: float) -> Load:
    """Increase a load by a share; users are rounded up."""
    if isinstance(load, Users):
        return Users(math.ceil(round(load.count * (1 + share), 9)))
    return Rate(load.per_second * (1 + share))


def parse_prices(text: str) -> Prices:
    """Read one price per line: `4.20`, or `LABEL=4.20` for one of several engines. Raises `UserMistake`."""
    prices: list[tuple[str, float]] = []
    for line in filter(str.strip, text.splitlines()):
        label, _, value = line.rpartition("=")
        if re.fullmatch(r"\d+(\.\d*)?|\.\d+", value.strip()) is None:
            raise UserMistake(f"--price is a number, or LABEL=NUMBER, not `{line.strip()}`.")
        prices.append((label.strip(), float(value)))
    return tuple(prices)


def slo_setting(group: str = "") -> tuple[Objective, ...]:
    """Declare `--slo`."""
    declared: tuple[Objective, ...] = setting(
        (),
        SLO_HELP,
        metavar="SLO",
        read=read_objectives,
        write=write_objectives,
        group=group,
        repeatable=True,
    )
    return declared


@dataclass(frozen=True, slots=True)
class RunsSettings:
    runs: Path = setting(Path("runs"), "Folder of the runs.", metavar="FOLDER")
    tokenizer: Path | None = setting(
        None,
        "A tokenizer.json, or a folder with one, to count answer tokens if a server sends no usage. It is remembered "
        "for these runs.",
        metavar="PATH",
    )


@dataclass(frozen=True, slots=True)
class ReadSettings(RunsSettings):
    """The folder of the runs, and the objectives that judge them."""

    slo: tuple[Objective, ...] = slo_setting()


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """The peak and its objectives; reports judge the loads by the same objectives."""

    peak: Load | None = peak_setting(
        None,
        f"Load that the fleet must serve: {PEAK_GRAMMAR}.",
        metavar="LOAD",
        read=parse_peak,
        write=lambda peak: "" if peak is None else f"{peak.value:g}{peak.unit}",
    )
    slo: tuple[Objective, ...] = slo_setting("Peak and objectives")
    headroom: float = peak_setting(
        0.0, "Share by which the load may exceed the peak, such as 0.2.", metavar="SHARE", least=0, most=100
    )
    spares: int = peak_setting(0, "Replicas beyond those needed, in case some fail.", metavar="N", least=0)
    peak_seconds: float = peak_setting(300.0, "Seconds that the peak lasts.", metavar="S", least=10, most=21_600)
    price: Prices = setting(
        (),
        f"{CURRENCY.name} that a replica costs per hour; LABEL={CURRENCY.code} for one of several engines.",
        metavar=CURRENCY.code,
        group="Cost",
        read=parse_prices,
        write=lambda prices: "\n".join(f"{label}={price:g}" if label else f"{price:g}" for label, price in prices),
        repeatable=True,
    )

    @property
    def load(self) -> Load:
        """Return the peak with headroom."""
        assert self.peak is not None
        return more_load(self.peak, self.headroom)

    def price_of(self, label: str) -> float | None:
        """Return the price of the engine, by its name with or without the settings in brackets, else the price of all
        engines."""
        prices = dict(self.price)
        return prices.get(label, prices.get(label.partition(" (")[0], prices.get("")))

    def check_labels(self, labels: Iterable[str]) -> None:
        """Raise `UserMistake` for a price of an engine without a run."""
        observed = {name: None for label in labels for name in (label, label.partition(" (")[0])}
        for label, _ in self.price:
            if label and label not in observed:
                raise UserMistake(
                    f"--price {label}=…: there is no run of `{label}`; choose from {', '.join(observed)}."
                )


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The conditions under which a gate fails."""

    fail_at: float = setting(
        100 * CRITICAL,
        "Fail if something is worse than the baseline by more than this, in per cent.",
        metavar="PERCENT",
        least=0,
    )
    allow_missing: bool = setting(
        False, "Judge the rest if an engine, a stage, a repeat or a metric of the baseline is missing."
    )
    allow_different: bool = setting(False, "Judge even if the versions differ in scenario, host, model or workload.")
