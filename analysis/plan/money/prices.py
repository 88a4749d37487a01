"""The price list: GPUs per hour and hosted APIs per million tokens, each with where it is from and of which day."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from analysis.plan.settings import PlanSettings, named

SHIPPED = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """US dollars per million tokens."""

    prompt: float
    output: float
    as_of: date | None
    source: str


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per GPU and hour, with where each price is from; hosted APIs by name."""

    gpus: Mapping[str, float]
    gpu_sources: Mapping[str, str]
    apis: Mapping[str, ApiPrice]

    def gpu(self, name: str) -> float:
        """Raises `ValueError` with the choices."""
        found = {known.lower(): price for known, price in self.gpus.items()}
        if name.lower() not in found:
            raise ValueError(f"the price list has no GPU called `{name}`; it has {', '.join(self.gpus)}.")
        return found[name.lower()]


def read_prices(path: Path | None) -> Prices:
    """Raises `ValueError` with a sentence for a file that is no price list."""
    path = path or SHIPPED
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
        gpus, apis = told.get("gpus", {}), told.get("apis", {})
        return Prices(
            {name: float(one["per_hour"]) for name, one in gpus.items()},
            {name: f"{one.get('source', path.name)}, {one.get('as_of', 'no date')}" for name, one in gpus.items()},
            {
                name: ApiPrice(
                    float(one["per_million_prompt_tokens"]),
                    float(one["per_million_output_tokens"]),
                    one.get("as_of"),
                    str(one.get("source", "")),
                )
                for name, one in apis.items()
            },
        )
    except OSError as error:
        raise ValueError(f"the price list {path} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path} is no price list ({error!r}): it has tables such as [gpus.H100] with per_hour, and "
            "[apis.NAME] with per_million_prompt_tokens and per_million_output_tokens."
        ) from None


def gpu_hours(settings: PlanSettings, prices: Prices, label: str) -> tuple[int, float | None]:
    """GPUs of a replica of the engine `label`, and the price of an hour of one; `None` where no price was given.

    Raises `ValueError` with a sentence.
    """
    gpus = int(float(named(settings.gpus, label) or 1))
    price, gpu = named(settings.price, label), named(settings.gpu, label)
    if price is not None:
        return gpus, float(price) / gpus
    return gpus, prices.gpu(gpu) if gpu is not None else None
