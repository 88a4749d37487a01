"""What a replica costs: a price that was given, or that of its GPUs in the price list, with its source and day."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from enginebench.analysis.plan.settings import PlanSettings, named
from enginebench.records.files import bytes_of
from enginebench.records.view import Estimate, Missing
from enginebench.settings.schema import UserMistake

HOURS_A_MONTH = 730.0
HOUR, MILLION = 3600.0, 1e6
SHIPPED = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class GpuPrice:
    """US dollars per hour, with the page it was read on and the day for which that gives it."""

    per_hour: float
    page: str
    as_of: date | None
    verified: bool


@dataclass(frozen=True, slots=True)
class ReplicaPrice:
    """US dollars per hour for `gpus` GPUs; `listed` is the price of one in the list, `None` for a price of the user's
    own."""

    per_hour: float
    gpus: int
    listed: GpuPrice | None = None

    def month(self, replicas: int) -> float:
        return HOURS_A_MONTH * self.per_hour * replicas


def read_prices(path: Path | None) -> Mapping[str, GpuPrice]:
    """Read the prices of GPUs by name. Raises `UserMistake` for a file that is no price list."""
    path = path or SHIPPED
    try:
        listed = tomllib.loads(bytes_of(path).decode()).get("gpus", {})
        return {
            name: GpuPrice(
                float(gpu["per_hour"]), str(gpu.get("source", path.name)), gpu.get("as_of"), not gpu.get("unverified")
            )
            for name, gpu in listed.items()
        }
    except OSError as error:
        raise UserMistake(f"the price list {path} cannot be read ({error.strerror}).") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise UserMistake(
            f"{path} is not a price list ({error!r}): it has tables such as [gpus.H100] with per_hour."
        ) from None


def check_labels(settings: PlanSettings, labels: Iterable[str]) -> None:
    """Raises `UserMistake` for a price of an engine without a run, and for a GPU that the price list does not have."""
    known = {name: None for label in labels for name in (label, label.partition(" (")[0])}
    for option, pairs in (("price", settings.price), ("gpu", settings.gpu), ("gpus", settings.gpus)):
        for label, _ in pairs:
            if label and label not in known:
                raise UserMistake(
                    f"--{option} {label}=…: there is no run of `{label}`; choose from {', '.join(known)}."
                )
    for label in known:
        replica_price(settings, label)


def replica_price(settings: PlanSettings, label: str) -> ReplicaPrice | None:
    """`None` without a price. Raises `UserMistake` for a GPU that the price list does not have."""
    gpus, price, gpu = int(named(settings.gpus, label) or 1), named(settings.price, label), named(settings.gpu, label)
    if price is not None:
        return ReplicaPrice(float(price), gpus)
    if gpu is None:
        return None
    listed = read_prices(settings.prices)
    found = {name.lower(): entry for name, entry in listed.items()}.get(gpu.lower())
    if found is None:
        raise UserMistake(f"the price list has no GPU called `{gpu}`; it has {', '.join(listed)}.")
    return ReplicaPrice(gpus * found.per_hour, gpus, found)


def token_cost(price: ReplicaPrice | None, throughput: Estimate) -> Estimate:
    """Return the US dollars of a million output tokens: price of an hour ÷ tokens of an hour, with the interval of the
    throughput (tokens/s)."""
    if price is None or not throughput.value:
        return Estimate(None, missing=throughput.missing or Missing.NOT_OBSERVED)
    if throughput.low is not None and throughput.low <= 0:
        throughput = replace(throughput, low=None, high=None, missing=Missing.FEW_REPEATS)
    return throughput.inverse.scaled(MILLION * price.per_hour / HOUR)
