"""The settings of `enginebench plan`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from enginebench.analysis.settings import slo_setting
from enginebench.records.load import Load, Rate, Users
from enginebench.records.slo import Objective
from enginebench.settings.schema import UserMistake, setting

Prices = tuple[tuple[str, float], ...]  # US dollars per hour by label; "" is for all other engines
PEAK_GRAMMAR = "a number of users such as 3000 or a rate such as 40/s"


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
    """Read `4.20`, or `LABEL=4.20` for one of several engines, a price on each line. Raises `UserMistake`."""
    prices: list[tuple[str, float]] = []
    for line in filter(str.strip, text.splitlines()):
        label, _, value = line.rpartition("=")
        if re.fullmatch(r"\d+(\.\d*)?|\.\d+", value.strip()) is None:
            raise UserMistake(f"--price is a number, or LABEL=NUMBER, not `{line.strip()}`.")
        prices.append((label.strip(), float(value)))
    return tuple(prices)


peak_setting = partial(setting, group="Peak and objectives")


@dataclass(frozen=True, slots=True)
class PlanSettings:
    peak: Load | None = peak_setting(
        None,
        f"Load that the fleet must serve: {PEAK_GRAMMAR}.",
        metavar="LOAD",
        read=parse_peak,
        write=lambda peak: "" if peak is None else f"{peak.value:g}{peak.unit}",
    )
    slo: tuple[Objective, ...] = slo_setting("Peak and objectives")
    headroom: float = peak_setting(
        0.0, "Share by which the load may exceed the peak, such as 0.2.", metavar="SHARE", least=0
    )
    spares: int = peak_setting(0, "Replicas beyond those needed, in case some fail.", metavar="N", least=0)
    peak_seconds: float = peak_setting(300.0, "Seconds that the peak lasts.", metavar="S", least=10)
    price: Prices = setting(
        (),
        "US dollars that a replica costs per hour; LABEL=USD for one of several engines.",
        metavar="USD",
        group="Cost",
        read=parse_prices,
        write=lambda prices: "\n".join(f"{label}={price:g}" if label else f"{price:g}" for label, price in prices),
        repeatable=True,
    )

    @property
    def load(self) -> Load:
        """The peak with headroom."""
        assert self.peak is not None
        return more_load(self.peak, self.headroom)

    def price_of(self, label: str) -> float | None:
        """Return the price of the engine, with or without the settings that follow its name in brackets, else that of
        all engines."""
        prices = dict(self.price)
        return prices.get(label, prices.get(label.partition(" (")[0], prices.get("")))

    def check_labels(self, labels: Iterable[str]) -> None:
        """Raises `UserMistake` for a price of an engine without a run."""
        observed = {name: None for label in labels for name in (label, label.partition(" (")[0])}
        for label, _ in self.price:
            if label and label not in observed:
                raise UserMistake(
                    f"--price {label}=…: there is no run of `{label}`; choose from {', '.join(observed)}."
                )
