"""The price list: GPUs per hour and hosted APIs per million tokens, each with where it is from and of which day."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from analysis.plan.settings import PlanSettings, named
from settings.schema import UserMistake

SHIPPED = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a price is from: a page, and the day for which it was given there."""

    page: str
    as_of: date | None
    verified: bool

    def __str__(self) -> str:
        told = f"{self.page}, {self.as_of}" if self.as_of is not None else self.page
        return told if self.verified else f"{told}, UNVERIFIED"


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """US dollars per million tokens."""

    prompt: float
    output: float
    source: Source


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per GPU and hour, with where each price is from; hosted APIs by name."""

    gpus: Mapping[str, float]
    gpu_sources: Mapping[str, Source]
    apis: Mapping[str, ApiPrice]

    def gpu(self, name: str) -> float:
        """Raises `UserMistake` with the choices."""
        found = {known.lower(): price for known, price in self.gpus.items()}
        if name.lower() not in found:
            raise UserMistake(f"the price list has no GPU called `{name}`; it has {', '.join(self.gpus)}.")
        return found[name.lower()]


def read_prices(path: Path | None) -> Prices:
    """Raises `UserMistake` for a file that is no price list."""
    path = path or SHIPPED
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        gpus, apis = told.get("gpus", {}), told.get("apis", {})
        return Prices(
            {name: float(one["per_hour"]) for name, one in gpus.items()},
            {name: _source(one, path) for name, one in gpus.items()},
            {
                name: ApiPrice(
                    float(one["per_million_prompt_tokens"]), float(one["per_million_output_tokens"]), _source(one, path)
                )
                for name, one in apis.items()
            },
        )
    except OSError as error:
        raise UserMistake(f"the price list {path} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserMistake(
            f"{path} is not a price list ({error!r}): it has tables such as [gpus.H100] with per_hour, and "
            "[apis.NAME] with per_million_prompt_tokens and per_million_output_tokens."
        ) from None


def _source(told: Mapping[str, Any], path: Path) -> Source:
    return Source(str(told.get("source", path.name)), told.get("as_of"), not told.get("unverified", False))


def price_source(settings: PlanSettings, prices: Prices, label: str) -> Source | None:
    """Where the price of a GPU of the engine `label` is from; `None` where none, or the user's own, counts."""
    gpu = named(settings.gpu, label)
    if gpu is None or named(settings.price, label) is not None:
        return None
    return {known.lower(): source for known, source in prices.gpu_sources.items()}.get(gpu.lower())


def gpu_hours(settings: PlanSettings, prices: Prices, label: str) -> tuple[int, float | None]:
    """GPUs of a replica of the engine `label`, and the price of an hour of one; `None` where no price was given.

    Raises `UserMistake`.
    """
    gpus = int(float(named(settings.gpus, label) or 1))
    price, gpu = named(settings.price, label), named(settings.gpu, label)
    if price is not None:
        return gpus, float(price) / gpus
    return gpus, prices.gpu(gpu) if gpu is not None else None
