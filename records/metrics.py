"""Every metric, defined once: the live page, the table, the summaries, objectives, report and docs read it here.

python -m records.metrics        # the tables of docs/metrics.md
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Literal

from records.formula import Between, Field, FirstOf, Formula, Positive, Reader, Where, reader

Unit = Literal["s", "tokens/s", "req/s", "requests", "tokens", "share", "J"]
Population = Literal["attempted", "answered", "sent", "chunks"]
"""Whose values a percentile is made of. `attempted`: a failed request counts as +∞, a cut-off one as censored.
`answered`: only requests that ended `ok`. `sent`: every request that was sent, however it ended."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A value of one request. `objective` is the name under which an SLO may set a limit to it."""

    name: str
    title: str
    formula: Formula
    population: Population
    meaning: str
    unit: Unit = "s"
    objective: str | None = None
    of: Reader = field(init=False, repr=False, compare=False)
    """The value for one record or observation; `None` where a part of it was not observed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "of", reader(self.formula))


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value of a whole stage, over its steady window. The formula is in words; analysis/summary computes it.

    `better` says which values are better when engines are compared; `None` where neither is.
    """

    name: str
    title: str
    unit: Unit
    formula: str
    meaning: str
    better: Literal["higher", "lower"] | None = None


SEEN_TOKENS = Field("output_tokens") - Field("unseen_tokens")
FIRST_TOKENS = FirstOf(Field("first_chunk_tokens"), SEEN_TOKENS / Positive(Field("chunks")))
"""Tokens of the first chunk; where the server does not say, as many as in the mean chunk."""

REQUEST_METRICS: tuple[Metric, ...] = (
    Metric("ttft", "TTFT", Between(Field("t_send"), Field("t_first")), "attempted", "time to first token"),
    Metric(
        "ttft_user",
        "TTFT (user)",
        Between(Field("t_sched"), Field("t_first")),
        "attempted",
        "time to first token since the request was due: includes the load generator's delay",
        objective="ttft",
    ),
    Metric(
        "ttfo",
        "TTFO",
        Between(Field("t_send"), Field("t_first_out")),
        "attempted",
        "time to the first token that is not reasoning",
    ),
    Metric(
        "tpot",
        "TPOT",
        Positive(Between(Field("t_first"), Field("t_last"))) / Positive(SEEN_TOKENS - FIRST_TOKENS),
        "attempted",
        "time per output token after the first chunk",
        objective="tpot",
    ),
    Metric(
        "ntpot",
        "NTPOT",
        Between(Field("t_send"), Field("t_last")) / Positive(Field("output_tokens")),
        "attempted",
        "time per output token, including the wait for the first one",
        objective="ntpot",
    ),
    Metric("e2e", "E2E", Between(Field("t_send"), Field("t_last")), "attempted", "time to the whole answer"),
    Metric(
        "e2e_user",
        "E2E (user)",
        Between(Field("t_sched"), Field("t_last")),
        "attempted",
        "time to the whole answer since the request was due",
        objective="e2e",
    ),
    Metric(
        "send_lag",
        "send lag",
        Between(Field("t_sched"), FirstOf(Field("t_connect"), Field("t_send"))),
        "sent",
        "how late the load generator sent the request, or began to connect",
    ),
    Metric(
        "connect",
        "connect",
        Between(Field("t_connect"), Field("t_send")),
        "sent",
        "time to open a connection, if none was open",
    ),
    Metric(
        "client_lag",
        "client lag",
        Where("stamps", "kernel", Between(Field("t_first"), Field("read_first"))),
        "sent",
        "how late the load generator read the first token; unknown without kernel stamps",
    ),
    Metric(
        "delivery",
        "delivery",
        Between(Field("t_send"), Field("t_first")) - Field("server_queue") - Field("server_prefill"),
        "answered",
        "TTFT minus the server's own durations: HTTP layer, network and kernels",
    ),
)
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
BY_NAME = {metric.name: metric for metric in REQUEST_METRICS}
OBJECTIVES = {metric.objective: metric for metric in REQUEST_METRICS if metric.objective}

QUANTITIES: tuple[Quantity, ...] = (
    Quantity("offered_rate", "offered", "req/s", "requests scheduled ÷ window", "the load that was planned"),
    Quantity("achieved_rate", "achieved", "req/s", "requests ended ok ÷ window", "the load that was served", "higher"),
    Quantity(
        "throughput",
        "output",
        "tokens/s",
        "tokens whose stamps fall into the window ÷ window",
        "output tokens per second over all requests",
        "higher",
    ),
    Quantity("user_throughput", "per user", "tokens/s", "1 ÷ median TPOT", "speed of one user's stream", "higher"),
    Quantity("goodput", "goodput", "req/s", "requests that meet every objective ÷ window", "useful load", "higher"),
    Quantity(
        "attainment",
        "attainment",
        "share",
        "requests that meet every objective ÷ attempted",
        "failures count as missed",
        "higher",
    ),
    Quantity("concurrency", "in flight", "requests", "time-average of requests in flight", "checked by L = λW"),
    Quantity("failure_share", "failed", "share", "failed ÷ attempted", "every outcome but ok and cut_off", "lower"),
    Quantity(
        "energy_per_token",
        "energy",
        "J",
        "∫ power dt ÷ output tokens",
        "joules per output token, from GPU telemetry",
        "lower",
    ),
)


def tables() -> str:
    """Both tables in Markdown, as docs/metrics.md shows them."""
    rows = ["| metric | formula | unit | over | objective | meaning |", "|---|---|---|---|---|---|"]
    for metric in REQUEST_METRICS:
        named = f"`{metric.objective}`" if metric.objective else ""
        cells = (f"**{metric.title}**", f"`{metric.formula}`", metric.unit, metric.population, named, metric.meaning)
        rows.append(f"| {' | '.join(cells)} |")
    rows += ["", "| quantity | formula | unit | meaning |", "|---|---|---|---|"]
    rows += [f"| **{q.title}** | {q.formula} | {q.unit} | {q.meaning} |" for q in QUANTITIES]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(tables())
