"""What a fleet costs: per hour, month and million tokens, against the prices of hosted APIs.

A fleet costs the same whether it is busy or not; costs per token are those of the peak, at which it is busiest.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from analysis.plan.engine.model import EngineModel
from analysis.plan.fleet.replicas import Attainment
from analysis.plan.simulation.replica import Lengths

SHIPPED = Path(__file__).with_name("prices.toml")
HOURS_A_MONTH = 730.0
MILLION = 1e6


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


@dataclass(frozen=True, slots=True)
class Hosted:
    """The same tokens from a hosted API. `break_even` is the number of requests a month from which the fleet costs
    less, if it can serve them; `cheaper` says whether the fleet costs less when it serves its peak all month."""

    name: str
    per_thousand_requests: float
    break_even: float
    cheaper: bool


@dataclass(frozen=True, slots=True)
class Bill:
    """US dollars. Prompt and output tokens share the cost by the engine time that they take."""

    per_hour: float
    per_month: float
    per_million_prompt_tokens: float | None
    per_million_output_tokens: float
    per_thousand_requests: float
    requests_per_gpu_hour: float
    hosted: tuple[Hosted, ...]


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


def bill(
    replicas: int, gpus: int, gpu_hour: float, busy: Attainment, model: EngineModel, lengths: Lengths, prices: Prices
) -> Bill:
    """`replicas` of `gpus` each are paid for; `busy` is what they do at the peak."""
    hourly = replicas * gpus * gpu_hour
    prompts, outputs, requests = (3600 * each for each in (busy.prompts, busy.output, busy.rate))
    share = prefill_share(model, lengths, busy.in_flight / busy.replicas)
    per_request = hourly / requests
    asked = prompts / requests, outputs / requests
    hosted = []
    for name, api in prices.apis.items():
        each = (asked[0] * api.prompt + asked[1] * api.output) / MILLION
        monthly = HOURS_A_MONTH * hourly
        hosted.append(Hosted(name, 1000 * each, monthly / each, each > per_request))
    return Bill(
        per_hour=hourly,
        per_month=HOURS_A_MONTH * hourly,
        per_million_prompt_tokens=MILLION * hourly * share / prompts if prompts else None,
        per_million_output_tokens=MILLION * hourly * (1 - share) / outputs,
        per_thousand_requests=1000 * per_request,
        requests_per_gpu_hour=requests / (replicas * gpus),
        hosted=tuple(hosted),
    )


def prefill_share(model: EngineModel, lengths: Lengths, in_flight: float) -> float:
    """The share of the engine's time that prompts take, with so many requests in flight on a replica."""
    cost = model.cost
    running = max(min(in_flight, model.slots or in_flight), 1.0)
    prefill = cost.per_token * float(lengths.prefilled.mean()) + cost.per_prompt
    steps = float(lengths.output.mean()) / model.tokens_per_step
    decode = steps * (cost.base + cost.per_running * running) / running
    if not model.synchronised:  # each request's steps overlap those of the others
        prefill = prefill / running
    return prefill / (prefill + decode)
