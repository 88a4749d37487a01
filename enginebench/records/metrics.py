"""Every metric, defined once for the live page, the table, the summaries, objectives, reports and documentation.

python -m enginebench.records.metrics        # the tables of docs/metrics.md
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Literal

from enginebench.records.formatting import in_words
from enginebench.records.formula import (
    Between,
    Field,
    FirstOf,
    Formula,
    Is,
    Known,
    Longest,
    Positive,
    Reader,
    When,
    reader,
)
from enginebench.records.request import NO_FAILURE
from enginebench.records.run import START_PHASES

Unit = Literal["s", "tokens/s", "req/s", "chunks/s", "requests", "tokens", "users", "cores", "share", "J", "B", ""]
Better = Literal["higher", "lower"]
Population = Literal["attempted", "answered", "sent", "chunks"]
"""The requests that a percentile is computed from. `attempted`: a failed request counts as +∞, a cut-off one as
censored. `answered`: only requests that ended `ok`. `sent`: every request that was sent, however it ended. `chunks`:
the gaps of all answers that ended `ok`, pooled, so that long answers weigh more."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The surfaces that show a metric or a quantity, each with its percentiles; a quantity has only the statistic
    `value`. All observed values are in the complete table of the page, in CSV and in JSON.

    Metrics with `live` or `exported`, and those that an objective limits, are counted during the run, and are in
    `live.json` with all their percentiles.
    """

    table: tuple[str, ...] = ()  # columns of the table of stages: terminal, page, Markdown
    compared: tuple[str, ...] = ()  # comparisons of engines, and gates
    chart: tuple[str, ...] = ()  # drawn over the loads
    live: tuple[str, ...] = ()  # columns of the progress line and of Locust's page
    curve: bool = False  # its distribution is drawn
    exported: bool = False  # by the exporter: a metric as histogram and percentiles, a quantity as a gauge


NOWHERE = Shown()
VALUE = ("value",)


@dataclass(frozen=True, slots=True)
class Metric:
    """A value of one request. `objective` is its name in an SLO.

    `since_due` names the same metric measured from the instant at which the request was due, without coordinated
    omission. It replaces this metric in an open loop, and if the two differ. An answered request without a value meets
    every limit if `absent_is_good`, else none; without the field `needs`, the request cannot be judged.
    """

    name: str
    title: str
    formula: Formula
    population: Population
    meaning: str
    unit: Unit = "s"
    better: Better = "lower"
    objective: str | None = None
    shown: Shown = NOWHERE
    since_due: str | None = None
    needs: str | None = None
    absent_is_good: bool = False
    read: Reader = field(init=False, repr=False, compare=False)
    """The value for one record; `None` if a part of it was not observed."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "read", reader(self.formula))

    @property
    def short_title(self) -> str:
        """Return the title without the clock: `TTFT` for `TTFT (user)`."""
        return self.title.partition(" (")[0]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value of a whole stage, over its steady window. The formula is text; for a mean over the answered requests that
    have a value, `mean` is that value. analysis/summary/quantities.py computes all other quantities;
    loadtests/harness/live/live_view.py computes those that are shown during the run.

    `better` says which values are better when engines are compared; `None` if neither is. Shares, which may be 0, are
    compared by their difference, other quantities by their ratio.
    """

    name: str
    title: str
    unit: Unit
    formula: str
    meaning: str
    better: Better | None = None
    shown: Shown = NOWHERE
    mean: Formula | None = None


SEEN_TOKENS = Field("output_tokens") - Field("unseen_tokens")
FIRST_TOKENS = FirstOf(Field("first_chunk_tokens"), SEEN_TOKENS / Positive(Field("chunks")))
"""Tokens of the first chunk; if the server does not report them, the mean tokens per chunk."""

T_SCHED, T_CONNECT, T_SEND = Field("t_sched"), Field("t_connect"), Field("t_send")
T_FIRST, T_FIRST_OUT, T_LAST = Field("t_first"), Field("t_first_out"), Field("t_last")
DELIVERY = Between(T_SEND, T_FIRST) - Field("server_queue") - Field("server_prefill")
KNOWN = Known(DELIVERY)  # all parts of TTFT are averaged over the same requests, so that the means add up
PROMPT, OUTPUT, PLANNED = Field("prompt_tokens"), Field("output_tokens"), Field("planned_output_tokens")
TAILS, TWO = ("p50", "p95", "p99"), ("p50", "p99")

# Names used in code. A metric that is only shown needs none.
TTFT, TTFT_SINCE_DUE, TPOT, NTPOT, E2E, E2E_SINCE_DUE = "ttft", "ttft_user", "tpot", "ntpot", "e2e", "e2e_user"
THROUGHPUT, USER_THROUGHPUT, GOODPUT, ATTAINMENT = "throughput", "user_throughput", "goodput", "attainment"
OFFERED_RATE, ACHIEVED_RATE, FAILURE_SHARE, FAILURE_RATE = (
    "offered_rate",
    "achieved_rate",
    "failure_share",
    "failure_rate",
)
CONCURRENCY, LITTLES_LAW, DISPERSION, USERS_RUNNING = "concurrency", "littles_law", "dispersion", "users_running"
PROMPT_TOKENS, OUTPUT_TOKENS, TOKENS_PER_CHUNK = "prompt_tokens", "output_tokens", "tokens_per_chunk"
ACCEPTANCE_LENGTH, ACCEPTANCE_RATE = "acceptance_length", "acceptance_rate"
CHUNK_RATE, CLIENT_ERROR, ENERGY, IN_FLIGHT = "chunk_rate", "client_error", "energy_per_token", "in_flight"
ROUND_TRIP, CORRECT, REQUESTS, GOOD_REQUESTS = "round_trip", "correct", "requests", "good_requests"
STAGE_INDEX, USERS, RECENT_OFFERED_RATE = "stage_index", "users", "recent_offered_rate"
TTFT_PARTS = ("ttft_client", "ttft_queue", "ttft_prefill", "ttft_delivery")
"""Quantities that add up to the mean TTFT from the due time."""

REQUEST_METRICS: tuple[Metric, ...] = (
    Metric(
        TTFT,
        "TTFT",
        Between(T_SEND, T_FIRST),
        "attempted",
        "time to first token",
        shown=Shown(table=TAILS, compared=TAILS, chart=("p95", "p99"), exported=True),
        since_due=TTFT_SINCE_DUE,
    ),
    Metric(
        TTFT_SINCE_DUE,
        "TTFT (user)",
        Between(T_SCHED, T_FIRST),
        "attempted",
        "time to first token since the request was due: includes the load generator's delay",
        objective="ttft",
        shown=Shown(live=TWO, curve=True, exported=True),
    ),
    Metric("ttfo", "TTFO", Between(T_SEND, T_FIRST_OUT), "attempted", "time to the first token that is not reasoning"),
    Metric(
        TPOT,
        "TPOT",
        Positive(Between(T_FIRST, T_LAST)) / Positive(SEEN_TOKENS - FIRST_TOKENS),
        "attempted",
        "time per output token after the first chunk",
        objective="tpot",
        shown=Shown(table=("p50",), compared=("p50", "p95"), chart=("p50", "p99"), live=TWO, curve=True, exported=True),
        needs="output_tokens",
        absent_is_good=True,  # an answer of one chunk has no time per token that could be long
    ),
    Metric(
        NTPOT,
        "NTPOT",
        Between(T_SEND, T_LAST) / Positive(Field("output_tokens")),
        "attempted",
        "time per output token, including the wait for the first one",
        since_due="ntpot_user",
    ),
    Metric(
        "ntpot_user",
        "NTPOT (user)",
        Between(T_SCHED, T_LAST) / Positive(Field("output_tokens")),
        "attempted",
        "the same since the request was due",
        objective="ntpot",
        needs="output_tokens",
    ),
    Metric(
        E2E,
        "E2E",
        Between(T_SEND, T_LAST),
        "attempted",
        "time to the whole answer",
        shown=Shown(compared=TAILS, chart=("p95",)),
        since_due=E2E_SINCE_DUE,
    ),
    Metric(
        E2E_SINCE_DUE,
        "E2E (user)",
        Between(T_SCHED, T_LAST),
        "attempted",
        "time to the whole answer since the request was due",
        objective="e2e",
        shown=Shown(curve=True, exported=True),
    ),
    Metric(
        "stall",
        "longest stall",
        Longest("icl"),
        "answered",
        "longest gap between two chunks of an answer",
        shown=Shown(curve=True),
    ),
    Metric(
        "send_lag",
        "send lag",
        Between(T_SCHED, FirstOf(T_CONNECT, T_SEND)),
        "sent",
        "how late the load generator sent the request, or began to connect",
        shown=Shown(exported=True),
    ),
    Metric(
        "connect",
        "connect",
        Between(T_CONNECT, T_SEND),
        "sent",
        "time to open a connection, if none was open",
    ),
    Metric(
        "client_lag",
        "client lag",
        When(Is("stamps", "kernel"), Between(T_FIRST, Field("read_first"))),
        "sent",
        "how late the load generator read the first token; unknown without kernel stamps",
        shown=Shown(exported=True),
    ),
    Metric(
        "delivery",
        "delivery",
        DELIVERY,
        "answered",
        "TTFT minus the server's own durations: HTTP layer, network and kernels",
    ),
)
ICL = Metric(
    "icl",
    "ICL, token-weighted",
    Field("icl"),
    "chunks",
    "inter-chunk latency: every gap between successive chunks of every answer counts once",
)
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
BY_NAME = {metric.name: metric for metric in REQUEST_METRICS}
OBJECTIVES = {metric.objective: metric for metric in REQUEST_METRICS if metric.objective}


def supported(statistic: str, requests: int) -> bool:
    """Return whether at least one of the requests is beyond the percentile, n·(1 − p) ≥ 1."""
    return round(requests * (1 - PERCENTILES[statistic]), 9) >= 1


def _mean(name: str, title: str, unit: Unit, mean: Formula, meaning: str) -> Quantity:
    return Quantity(name, title, unit, "mean over answered requests", meaning, mean=mean)


QUANTITIES: tuple[Quantity, ...] = (
    Quantity(OFFERED_RATE, "offered", "req/s", "requests scheduled ÷ window", "the load that was planned"),
    Quantity(
        ACHIEVED_RATE,
        "achieved",
        "req/s",
        "requests ended ok ÷ window",
        "the load that was served",
        "higher",
        Shown(compared=VALUE),
    ),
    Quantity(
        THROUGHPUT,
        "output",
        "tokens/s",
        "tokens whose stamps fall into the window ÷ window",
        "output tokens per second over all requests",
        "higher",
        Shown(table=VALUE, compared=VALUE, chart=VALUE, live=VALUE, exported=True),
    ),
    Quantity(USER_THROUGHPUT, "per user", "tokens/s", "1 ÷ median TPOT", "speed of one user's stream", "higher"),
    Quantity(
        GOODPUT,
        "goodput",
        "req/s",
        "requests that meet every objective ÷ window",
        "useful load",
        "higher",
        Shown(compared=VALUE, live=VALUE),
    ),
    Quantity(
        ATTAINMENT,
        "attainment",
        "share",
        "requests that meet every objective ÷ attempted",
        "failures count as missed",
        "higher",
        Shown(compared=VALUE, exported=True),
    ),
    Quantity(
        FAILURE_SHARE,
        "failed",
        "share",
        "failed ÷ attempted",
        f"every outcome but {in_words(NO_FAILURE)}",
        "lower",
        Shown(compared=VALUE, exported=True),
    ),
    Quantity(
        CORRECT,
        "correct",
        "share",
        "correct ÷ graded answers",
        "answers to questions with an exact answer",
        "higher",
        Shown(compared=VALUE),
    ),
    Quantity(FAILURE_RATE, "failed", "req/s", "failed ÷ window", "failures per second"),
    Quantity(CONCURRENCY, "in flight", "requests", "time-average of requests in flight", "checked by L = λW"),
    Quantity(LITTLES_LAW, "λW", "requests", "arrival rate × mean time in flight", "requests in flight by Little's law"),
    Quantity(
        DISPERSION, "dispersion", "", "variance ÷ mean of arrivals in tenths of a cycle", "1 for independent users"
    ),
    Quantity(USERS_RUNNING, "users running", "users", "time-average", "of the planned users"),
    _mean(PROMPT_TOKENS, "prompt", "tokens", PROMPT, "length of the prompts"),
    _mean("cached_tokens", "cached", "tokens", Field("cached_tokens"), "of the prompt, from a prefix cache"),
    _mean(OUTPUT_TOKENS, "answer", "tokens", OUTPUT, "length of the answers"),
    _mean("planned_tokens", "planned", "tokens", When(Known(OUTPUT), PLANNED), "planned length"),
    _mean("reasoning_tokens", "reasoning", "tokens", Field("reasoning_tokens"), "of the answer"),
    Quantity(
        ACCEPTANCE_LENGTH,
        "accepted",
        "tokens",
        "1 + accepted ÷ drafts",
        "tokens per step of speculative decoding, by the server's own count",
        "higher",
    ),
    Quantity(
        ACCEPTANCE_RATE,
        "acceptance",
        "share",
        "accepted ÷ drafted",
        "of the drafted tokens, by the server's own count",
        "higher",
    ),
    Quantity(TOKENS_PER_CHUNK, "per chunk", "tokens", "tokens ÷ chunks", "of streamed answers"),
    _mean("ttft_client", "TTFT: client", "s", When(KNOWN, Between(T_SCHED, T_SEND)), "until the request was sent"),
    _mean("ttft_queue", "TTFT: queue", "s", When(KNOWN, Field("server_queue")), "waiting for admission"),
    _mean(
        "ttft_prefill",
        "TTFT: prefill",
        "s",
        When(KNOWN, Field("server_prefill")),
        "from admission to the first token",
    ),
    _mean("ttft_delivery", "TTFT: delivery", "s", DELIVERY, "from the server to the client"),
    _mean(ROUND_TRIP, "round trip", "s", Field("round_trip"), "on an idle network, by the kernel: part of delivery"),
    Quantity(
        ENERGY,
        "energy",
        "J",
        "GPU energy ÷ output tokens",
        "joules per output token, by the GPUs' energy counters, else their power",
        "lower",
        Shown(compared=VALUE),
    ),
    Quantity(CHUNK_RATE, "chunks", "chunks/s", "in the busiest tenth of the window", "received by the load generator"),
    Quantity(CLIENT_ERROR, "TTFT ±", "s", "by calibration, at p99", "error of the load generator itself"),
)
COLD_START = "cold_start"
STARTS: tuple[Quantity, ...] = (
    Quantity(
        COLD_START,
        "cold start",
        "s",
        "launch until ready + first answer",
        "until the first token of the first request, if a single user sends it",
        "lower",
    ),
    *(
        Quantity(f"start_{phase}", f"start: {title}", "s", "seconds of the phase", "see docs/cold-start.md")
        for phase, title in START_PHASES.items()
    ),
)
"""Quantities of the first stage of a run that started its server."""
QUANTITY_BY_NAME = {quantity.name: quantity for quantity in (*QUANTITIES, *STARTS)}

# Further values of the load generator's exporter, from loadtests/harness/live/.
MOMENTARY: tuple[Quantity, ...] = (
    Quantity(STAGE_INDEX, "stage", "", "at this moment", "which stage is on, from 0"),
    Quantity(USERS, "users", "users", "at this moment", "of all processes; closed loops only"),
    Quantity(IN_FLIGHT, "in flight", "requests", "at this moment", "requests that are due and have not ended"),
    Quantity(
        RECENT_OFFERED_RATE,
        "offered",
        "req/s",
        "requests scheduled ÷ seconds, of the last ten",
        "the load that is planned at this moment; open loops only",
    ),
)
TOTALS: tuple[Quantity, ...] = (
    Quantity(REQUESTS, "requests", "requests", "since the run's start", "requests that have ended, by outcome"),
    Quantity(
        GOOD_REQUESTS,
        "good",
        "requests",
        "since the run's start",
        "requests that met every objective, their class's too; absent without objectives",
    ),
    Quantity(OUTPUT_TOKENS, "output", "tokens", "since the run's start", "of requests that have ended"),
)
"""Counters, exported with the suffix `_total`."""


Surface = Literal["table", "compared", "chart", "live"]


@dataclass(frozen=True, slots=True)
class Column:
    """A statistic of a metric or quantity, as surfaces show it."""

    measure: Metric | Quantity
    statistic: str  # a percentile, or `value`

    @property
    def name(self) -> str:
        return self.measure.name

    @property
    def key(self) -> str:
        """Return `ttft p95`, or `throughput`: unique, for programs."""
        return self.name if isinstance(self.measure, Quantity) else f"{self.name} {self.statistic}"

    @property
    def title(self) -> str:
        """Return `TTFT p95`, without the clock."""
        return (
            self.measure.title if isinstance(self.measure, Quantity) else f"{self.measure.short_title} {self.statistic}"
        )

    @property
    def full_title(self) -> str:
        """Return `TTFT (user) p95`, `output tokens/s`."""
        if isinstance(self.measure, Quantity):
            return f"{self.measure.title} {self.measure.unit}" if "/" in self.measure.unit else self.measure.title
        return f"{self.measure.title} {self.statistic}"

    @property
    def unit(self) -> Unit:
        return self.measure.unit

    @property
    def better(self) -> Better | None:
        return self.measure.better

    @property
    def relative(self) -> bool:
        """Return whether values are compared by ratio. Shares, which may be 0, are compared by difference."""
        return self.unit != "share"


def columns(surface: Surface, since_due: bool = False) -> tuple[Column, ...]:
    """Return the columns of a surface, in the order of declaration: latencies, then quantities.

    `since_due` replaces a metric by its variant that counts from when a request was due, if there is one.
    """
    return tuple(
        Column(BY_NAME[metric.since_due] if since_due and metric.since_due else metric, statistic)
        for metric in REQUEST_METRICS
        for statistic in getattr(metric.shown, surface)
    ) + tuple(Column(quantity, statistic) for quantity in QUANTITIES for statistic in getattr(quantity.shown, surface))


OUTPUT_RATE = Column(QUANTITY_BY_NAME[THROUGHPUT], "value")


def over_runs() -> frozenset[str]:
    """Return the names of metrics whose percentiles are shown over several runs."""
    surfaces: tuple[Surface, ...] = ("table", "compared", "chart")
    shown = {column.name for due in (False, True) for surface in surfaces for column in columns(surface, due)}
    return frozenset(shown & BY_NAME.keys())


def tables() -> str:
    """Return both tables of docs/metrics.md in Markdown."""
    rows = ["| metric | formula | unit | over | objective | meaning |", "|---|---|---|---|---|---|"]
    for metric in (*REQUEST_METRICS, ICL):
        named = f"`{metric.objective}`" if metric.objective else ""
        cells = (f"**{metric.title}**", f"`{metric.formula}`", metric.unit, metric.population, named, metric.meaning)
        rows.append(f"| {' | '.join(cells)} |")
    rows += ["", "| quantity | formula | unit | meaning |", "|---|---|---|---|"]
    rows += [f"| **{q.title}** | {q.formula} | {q.unit} | {q.meaning} |" for q in QUANTITIES]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(tables())
