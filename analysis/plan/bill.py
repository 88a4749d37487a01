"""What a fleet costs: per hour, month and million tokens, against the prices of hosted APIs.

A fleet costs the same whether it is busy or not; costs per token are those at the peak.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.plan.model import EngineModel
from analysis.plan.prices import Prices
from analysis.plan.replicas import Attainment
from analysis.plan.work import Lengths

HOURS_A_MONTH = 730.0
MILLION = 1e6


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
    """US dollars. Prompt and output tokens share the cost by the engine time that they take."""

    per_hour: float
    per_month: float
    per_million_prompt_tokens: float | None
    per_million_output_tokens: float
    per_thousand_requests: float
    hosted: tuple[Hosted, ...]


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
        hosted.append(Hosted(name, 1000 * each, monthly / each, each > per_request, str(api.source)))
    return Bill(
        per_hour=hourly,
        per_month=HOURS_A_MONTH * hourly,
        per_million_prompt_tokens=MILLION * hourly * share / prompts if prompts else None,
        per_million_output_tokens=MILLION * hourly * (1 - share) / outputs,
        per_thousand_requests=1000 * per_request,
        hosted=tuple(hosted),
    )


def prefill_share(model: EngineModel, lengths: Lengths, in_flight: float) -> float:
    """The share of the engine's time that prompts take, with so many requests in flight on a replica."""
    cost = model.cost
    running = max(min(in_flight, model.slots or in_flight), 1.0)
    prefill = cost.per_token * float(lengths.prefilled.mean()) + cost.per_prompt
    steps = float(lengths.output.mean()) / model.tokens_per_step
    decode = steps * cost.seconds(running) / running
    if not model.synchronised:  # each request's steps overlap those of the others
        prefill = prefill / running
    return prefill / (prefill + decode)
