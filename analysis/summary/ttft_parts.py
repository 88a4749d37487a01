"""Where a request's time to first token goes: client, queue, prefill, delivery."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

NAMES = {
    "client": "the load generator's own delay",
    "queue": "waiting for admission",
    "prefill": "prefill",
    "delivery": "delivery",
}


@dataclass(frozen=True, slots=True)
class TtftParts:
    """Mean seconds of TTFT as a user feels it: until the request was sent, until it was admitted, until the first token
    was there, and until that had reached the client. `n` requests have these durations."""

    client: float
    queue: float
    prefill: float
    delivery: float
    n: int

    @property
    def lengths(self) -> dict[str, float]:
        return {name: max(getattr(self, name), 0.0) for name in NAMES}

    @property
    def total(self) -> float:
        return sum(self.lengths.values())


def parts_of(ok: pl.DataFrame) -> TtftParts | None:
    """Means, because only means of parts add up to the mean of the whole. `None` where the server sent no durations."""
    client = pl.col("ttft_user") - pl.col("ttft")
    told = ok.select(client, "server_queue", "server_prefill", "delivery").drop_nulls("delivery")
    client_mean, queue, prefill, delivery = told.mean().row(0)
    return TtftParts(client_mean, queue, prefill, delivery, len(told)) if len(told) else None
