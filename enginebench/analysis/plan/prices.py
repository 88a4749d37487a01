"""What a fleet costs, and the price list: GPUs per hour and hosted APIs per million tokens, each with where it is from
and of which day.

A fleet costs the same whether it is busy or not; costs per token are those at the load for which they are given.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from enginebench.analysis.plan.settings import PlanSettings, named
from enginebench.records.files import bytes_of
from enginebench.records.formatting import significant
from enginebench.settings.schema import UserMistake

if TYPE_CHECKING:
    from enginebench.analysis.plan.fleet import Attainment  # imports SciPy's optimisers, which a report does without

HOURS_A_MONTH = 730.0
HOUR, MILLION = 3600.0, 1e6
SHIPPED = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a price is from: a page, and the day for which it was given there."""

    page: str
    as_of: date | None
    verified: bool

    def __str__(self) -> str:
        dated = f"{self.page}, {self.as_of}" if self.as_of is not None else self.page
        return dated if self.verified else f"{dated}, UNVERIFIED"


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
        known = {gpu.lower(): price for gpu, price in self.gpus.items()}
        if name.lower() not in known:
            raise UserMistake(f"the price list has no GPU called `{name}`; it has {', '.join(self.gpus)}.")
        return known[name.lower()]


def read_prices(path: Path | None) -> Prices:
    """Raises `UserMistake` for a file that is no price list."""
    path = path or SHIPPED
    try:
        document = tomllib.loads(bytes_of(path).decode())
        gpus, apis = document.get("gpus", {}), document.get("apis", {})
        return Prices(
            {name: float(gpu["per_hour"]) for name, gpu in gpus.items()},
            {name: _source(gpu, path) for name, gpu in gpus.items()},
            {
                name: ApiPrice(
                    float(api["per_million_prompt_tokens"]), float(api["per_million_output_tokens"]), _source(api, path)
                )
                for name, api in apis.items()
            },
        )
    except OSError as error:
        raise UserMistake(f"the price list {path} cannot be read ({error.strerror}).") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise UserMistake(
            f"{path} is not a price list ({error!r}): it has tables such as [gpus.H100] with per_hour, and "
            "[apis.NAME] with per_million_prompt_tokens and per_million_output_tokens."
        ) from None


def _source(price: Mapping[str, Any], path: Path) -> Source:
    return Source(str(price.get("source", path.name)), price.get("as_of"), not price.get("unverified", False))


def check_labels(settings: PlanSettings, labels: Iterable[str]) -> None:
    """Raises `UserMistake` where something is given for an engine that has no run: it would have no effect."""
    known = {name: None for label in labels for name in (label, label.partition(" (")[0])}
    for option, pairs in (("price", settings.price), ("gpu", settings.gpu), ("gpus", settings.gpus)):
        for label, _ in pairs:
            if label and label not in known:
                raise UserMistake(
                    f"--{option} {label}=…: there is no run of `{label}`; choose from {', '.join(known)}."
                )


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
    gpus = int(named(settings.gpus, label) or 1)
    price, gpu = named(settings.price, label), named(settings.gpu, label)
    if price is not None:
        return gpus, float(price) / gpus
    return gpus, prices.gpu(gpu) if gpu is not None else None


@dataclass(frozen=True, slots=True)
class Hosted:
    """The same tokens from a hosted API. `break_even` is the number of requests a month from which the fleet costs
    less, if it can serve them; `cheaper` says whether the fleet costs less when it serves its peak all month."""

    name: str
    per_thousand_requests: float
    break_even: float
    cheaper: bool
    source: str  # of its price


@dataclass(frozen=True, slots=True)
class Bill:
    """US dollars of a fleet, and what its tokens and requests cost at the peak."""

    per_hour: float
    per_month: float
    per_million_output_tokens: float  # price per hour ÷ output tokens per hour
    per_thousand_requests: float
    requests_per_gpu_hour: float
    hosted: tuple[Hosted, ...]


def cost_per_million(per_hour: float, tokens_per_second: float) -> float:
    return MILLION * per_hour / (HOUR * tokens_per_second)


def bill(replicas: int, gpus: int, gpu_hour: float, busy: Attainment, prices: Prices) -> Bill:
    """`replicas` of `gpus` each are paid for; `busy` is what they do at the peak."""
    assert busy.rate, "objectives are met by requests"
    hourly, requests = replicas * gpus * gpu_hour, HOUR * busy.rate
    per_request = hourly / requests
    hosted = []
    for name, api in prices.apis.items():
        same = (busy.prompts * api.prompt + busy.output * api.output) / busy.rate / MILLION
        hosted.append(Hosted(name, 1000 * same, HOURS_A_MONTH * hourly / same, same > per_request, str(api.source)))
    return Bill(
        per_hour=hourly,
        per_month=HOURS_A_MONTH * hourly,
        per_million_output_tokens=cost_per_million(hourly, busy.output),
        per_thousand_requests=1000 * per_request,
        requests_per_gpu_hour=requests / (replicas * gpus),
        hosted=tuple(hosted),
    )


def dollars(amount: float) -> str:
    """$1,234 or $0.0123: three significant digits."""
    return f"${significant(amount)}"
