"""Conversations turn by turn: whether a longer history makes the first token come later."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analysis.data.load import mean_of
from analysis.stats.estimate import Estimate
from analysis.summary.distributions import of_metric
from records.metrics import BY_NAME

FEWEST = 6  # requests of a turn: as many as the interval of a median needs


@dataclass(frozen=True, slots=True)
class TurnSummary:
    """One turn of all conversations of a stage, the first being 1. `ttft` is the median on the user's clock."""

    turn: int
    requests: int
    prompt_tokens: float | None  # mean
    ttft: Estimate


def turns_of(scheduled: pl.DataFrame) -> tuple[TurnSummary, ...]:
    """The turns with enough requests; nothing where requests belong to no conversation of several."""
    if scheduled["turn"].drop_nulls().n_unique() < 2:
        return ()
    found = []
    for (turn,), requests in scheduled.drop_nulls("turn").group_by("turn", maintain_order=True):
        if len(requests) >= FEWEST:
            ttft = of_metric(requests, BY_NAME["ttft_user"]).p50
            found.append(TurnSummary(int(str(turn)) + 1, len(requests), mean_of(requests["prompt_tokens"]), ttft))
    return tuple(sorted(found, key=lambda one: one.turn))
