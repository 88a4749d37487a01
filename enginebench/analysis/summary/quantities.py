"""The quantities of a stage (`records/metrics.py`), each computed by the function of its name, and counts for findings.

Throughput counts the tokens that *arrived* inside the window, from any request; all other quantities cover the requests
*scheduled* inside it, whenever they ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from enginebench.analysis.data.flow import Flows
from enginebench.analysis.data.formulas import columns_of, expression
from enginebench.analysis.data.run_data import RunData, mean_of, rows_where, users_of
from enginebench.analysis.data.telemetry import Increase
from enginebench.analysis.data.windows import Window
from enginebench.analysis.stats.intervals import bin_by_user, rate_interval, share_interval
from enginebench.analysis.stats.steadiness import lock_step
from enginebench.analysis.summary.objectives import attainment, goodput
from enginebench.records.findings.load import LITTLE_WINDOWS
from enginebench.records.formula import Between, Field, FirstOf, Formula, Positive
from enginebench.records.load import Users
from enginebench.records.metrics import (
    ACCEPTANCE_LENGTH,
    ACCEPTANCE_RATE,
    ACHIEVED_RATE,
    ATTAINMENT,
    CHUNK_RATE,
    CLIENT_ERROR,
    COLD_START,
    CONCURRENCY,
    CORRECT,
    DISPERSION,
    ENERGY,
    FAILURE_RATE,
    FAILURE_SHARE,
    GOODPUT,
    LITTLES_LAW,
    OFFERED_RATE,
    OUTPUT,
    OUTPUT_TOKENS,
    PLANNED,
    PROMPT,
    QUANTITIES,
    REQUEST_METRICS,
    SEEN_TOKENS,
    THROUGHPUT,
    TOKENS_PER_CHUNK,
    TPOT,
    TTFT,
    TTFT_SINCE_DUE,
    USER_THROUGHPUT,
    USERS_RUNNING,
)
from enginebench.records.request import UNJUDGED
from enginebench.records.run import LISTENING, READY, START_PHASES, STARTED
from enginebench.records.slo import RunObjectives
from enginebench.records.stage import SECOND
from enginebench.records.view import Distribution, Estimate, Missing

STAY = Between(Field("t_send"), Field("t_end"))  # seconds in flight
ANSWER = FirstOf(*(Between(Field("t_send"), Field(end)) for end in ("t_first", "t_last")))  # to the first token
CURVES = {metric.name for metric in REQUEST_METRICS if metric.shown.curve}
MEANS = {quantity.name: quantity.mean for quantity in QUANTITIES if quantity.mean is not None}

STREAM_TOKENS = 8  # an answer of fewer tokens may come in one chunk
AT_ONCE = 1e-4  # seconds per token: faster than any model decodes, so the chunks were held back
PROMPT_TOLERANCE = 1  # tokens by which a prompt may deviate from its planned length
SHORT = 0.9  # share of the planned tokens below which an answer counts as cut short
STREAM = pl.col("streamed") & (expression(SEEN_TOKENS) >= STREAM_TOKENS)
MISSED = expression(PROMPT) - pl.col("planned_prompt_tokens")

COUNTED_REQUESTS: Mapping[str, pl.Expr] = {
    "retried": pl.col("attempt") > 0,
    "reconnected": pl.col("t_connect").is_not_null(),
    "resent": pl.col("resent"),
}
COUNTED_ANSWERS: Mapping[str, pl.Expr] = {
    "merged_first": pl.col("merged_first"),
    "usage_refused": pl.col("reported_tokens").is_not_null(),  # impossible: fewer tokens than were received
    "counted_by_tokenizer": pl.col("token_source") == "tokenizer",  # because the server did not count
    "uncounted": expression(OUTPUT).is_null(),
    "empty": (expression(OUTPUT) == 0) | (pl.col("streamed") & (pl.col("chunks") == 0)),
    "cut_short": expression(OUTPUT / Positive(PLANNED)) < SHORT,
    "missed_prompts": MISSED.abs() > PROMPT_TOLERANCE,
    "planned_prompts": MISSED.is_not_null(),
    "at_once": STREAM & ((pl.col("chunks") == 1) | (pl.col(TPOT) < AT_ONCE)),  # all tokens together …
    "streams": STREAM,  # … of the streamed answers long enough to tell
}
"""Flags of successful requests that findings count; an unknown value is not counted."""
ANSWERED = sorted(  # columns that are copied for the successful requests if others failed
    {name for flag in COUNTED_ANSWERS.values() for name in flag.meta.root_names()}
    | columns_of(MEANS.values())
    | CURVES
    | {TTFT, TTFT_SINCE_DUE, TPOT, "t_sched", "user", CORRECT}
)


@dataclass(frozen=True)
class StageData:
    """The data of one window. `scheduled` are the requests due in it, in order, with their metrics."""

    run: RunData
    window: Window
    flows: Flows
    scheduled: pl.DataFrame
    metrics: Mapping[str, Distribution]
    objectives: RunObjectives  # for the goodput

    @cached_property
    def ok(self) -> pl.DataFrame:
        return rows_where(self.scheduled.select("outcome", *ANSWERED), pl.col("outcome") == "ok")

    @cached_property
    def attempted(self) -> pl.DataFrame:
        """Return the requests that succeeded or failed."""
        ended = self.scheduled.select("outcome", "detail", "user").filter(~pl.col("outcome").is_in(UNJUDGED))
        return ended.with_columns(failed=pl.col("outcome") != "ok")

    @property
    def users(self) -> int | None:
        """Return the planned users of a closed loop."""
        return self.window.load.count if isinstance(self.window.load, Users) else None


def quantities_of(stage: StageData) -> dict[str, Estimate]:
    """Compute the quantities by name; unobserved ones are left out."""
    values = {name: formula(stage) for name, formula in FORMULAS.items()} | _start(stage)
    n = len(stage.scheduled)
    return {
        name: value if isinstance(value, Estimate) else Estimate(value, n=n)
        for name, value in values.items()
        if value is not None
    }


def _achieved_rate(stage: StageData) -> float:
    start, end = stage.window.start, stage.window.end
    completed = (pl.col("outcome") == "ok") & pl.col("t_end").is_between(start, end, closed="left")
    return int(stage.run.requests.select(completed.sum()).item()) / stage.window.seconds


def _throughput(stage: StageData) -> Estimate:
    """Count tokens by their stamps; the variance between users comes from whole requests, by their end.

    If no answer's tokens are known, the throughput is unknown, not 0.
    """
    window = stage.window
    tokens = stage.flows.tokens(window.bins)
    requests = stage.run.requests.select("t_end", "user", "outcome", OUTPUT_TOKENS)
    ended = requests.filter(pl.col("t_end").is_between(window.start, window.end, closed="left"))
    uncounted = ended.filter((pl.col("outcome") == "ok") & pl.col(OUTPUT_TOKENS).is_null())
    if not tokens.any() and (len(uncounted) or stage.flows.uncounted(window.start, window.end)):
        return Estimate(None, missing=Missing.UNCOUNTED)
    ended = ended.drop_nulls(OUTPUT_TOKENS)
    users, by_user = users_of(ended), None
    if users is not None and len(ended):
        by_user = bin_by_user(ended["t_end"].to_numpy(), users, window.start, window.end, ended[OUTPUT_TOKENS])
    return rate_interval(tokens, window.seconds, by_user)


def _user_throughput(stage: StageData) -> float | None:
    tpot = stage.metrics[TPOT].percentile("p50").value
    return 1 / tpot if tpot else None


def _concurrency(stage: StageData) -> float:
    (average,) = stage.flows.in_flight.averages(np.array([stage.window.start, stage.window.end], dtype=np.int64))
    return float(average)


def _littles_law(stage: StageData) -> float | None:
    """Compute L = λW (Little 1961), if the window is long enough compared with the requests."""
    window = stage.window
    sent_here = pl.col("t_send").is_between(window.start, window.end, closed="left")
    arrived = stage.run.requests.select("t_send", stay=expression(STAY)).filter(sent_here)
    stay = mean_of(arrived["stay"])
    if stay is None or window.seconds < LITTLE_WINDOWS * stay:
        return None
    return len(arrived) / window.seconds * stay


def _dispersion(stage: StageData) -> float | None:
    if stage.users is None:
        return None
    sent = stage.scheduled["t_send"].drop_nulls().to_numpy()
    return lock_step(sent, (stage.window.start, stage.window.end), stage.users)


def _users_running(stage: StageData) -> float | None:
    if stage.users is None:
        return None
    return stage.run.telemetry.users(stage.window.start, stage.window.end, stage.users)


def _mean(formula: Formula) -> Callable[[StageData], Estimate | None]:
    """Average the answered requests that have a value. Means of the parts of TTFT add up to the mean of the whole."""

    def mean(stage: StageData) -> Estimate | None:
        values = stage.ok.select(value=expression(formula).cast(pl.Float64))["value"].drop_nulls()
        average = mean_of(values)
        return None if average is None else Estimate(max(average, 0.0), n=len(values))

    return mean


def _correct(stage: StageData) -> Estimate | None:
    graded = stage.ok.drop_nulls(CORRECT)
    return share_interval(graded[CORRECT].to_numpy(), users_of(graded)) if len(graded) else None


def _tokens_per_chunk(stage: StageData) -> float | None:
    streamed = stage.ok.filter((pl.col("chunks") > 0) & pl.col(OUTPUT_TOKENS).is_not_null())
    chunks = int(streamed["chunks"].sum())
    return int((streamed[OUTPUT_TOKENS] - streamed["unseen_tokens"]).sum()) / chunks if chunks else None


def _acceptance_length(stage: StageData) -> float | None:
    """Return tokens per step of speculative decoding: the accepted draft tokens, and one of the model's own."""
    ratio = _increases(stage, "accepted_tokens", "drafts")
    return _published(stage, ACCEPTANCE_LENGTH) if ratio is None else 1 + ratio


def _acceptance_rate(stage: StageData) -> float | None:
    ratio = _increases(stage, "accepted_tokens", "drafted_tokens")
    return _published(stage, ACCEPTANCE_RATE) if ratio is None else ratio


def _increases(stage: StageData, counter: str, by: str) -> float | None:
    """Divide the increases of two of the server's counters in the window."""
    telemetry, window = stage.run.telemetry, stage.window
    part, whole = (telemetry.increase(name, window.start, window.end) for name in (counter, by))
    return part.amount / whole.amount if part is not None and whole is not None and whole.amount else None


def _published(stage: StageData, quantity: str) -> float | None:
    """Average the server's values while it drafted."""
    _, values = stage.run.telemetry.series(quantity, stage.window.start, stage.window.end)
    drafting = values[values > 0]
    return float(drafting.mean()) if len(drafting) else None


def _energy_per_token(stage: StageData) -> float | None:
    energy = stage.window.energy
    tokens = 0.0 if energy is None else stage.flows.tokens_of(energy)
    return energy.amount / tokens if energy is not None and tokens > 0 else None


def _chunk_rate(stage: StageData) -> float | None:
    window = stage.window
    return float((stage.flows.chunks(window.edges(10)) / (window.seconds / 10)).max()) or None


def _client_error(stage: StageData) -> float | None:
    rate, window = _chunk_rate(stage), stage.window
    if rate is None:
        return None
    delay = stage.run.telemetry.worst_process("run_delay", window.start, window.end)
    return stage.run.meta.client_error_at(rate, delay.mean if delay else 0.0)


def _start(stage: StageData) -> dict[str, float]:
    """Return the cold start, as observed from outside, and its phases, for the first stage of a run that started its
    server."""
    at = {event.what: event.t for event in stage.run.meta.events}
    if stage.window.key.index or not {STARTED, READY} <= at.keys():
        return {}
    ready, phases = (at[READY] - at[STARTED]) / SECOND, dict(stage.run.meta.startup)
    if not phases and LISTENING in at:
        phases["load"] = (at[READY] - at[LISTENING]) / SECOND
        phases["process"] = ready - phases["load"]
    quantities = {f"start_{phase}": phases[phase] for phase in START_PHASES if phase in phases}
    first = stage.run.requests.bottom_k(1, by="t_send")  # sorting ten million requests would copy them
    if stage.users == 1 and first["outcome"].to_list() == ["ok"]:
        answer = float(first.select(expression(ANSWER)).item())
        quantities |= {"start_answer": answer, COLD_START: ready + answer}
    return quantities


FORMULAS: Mapping[str, Callable[[StageData], Estimate | float | None]] = {
    OFFERED_RATE: lambda stage: len(stage.scheduled) / stage.window.seconds,
    ACHIEVED_RATE: _achieved_rate,
    THROUGHPUT: _throughput,
    USER_THROUGHPUT: _user_throughput,
    GOODPUT: lambda stage: goodput(stage.scheduled, stage.objectives, (stage.window.start, stage.window.end)),
    ATTAINMENT: lambda stage: attainment(stage.scheduled, stage.objectives),
    FAILURE_SHARE: lambda stage: share_interval(stage.attempted["failed"].to_numpy(), users_of(stage.attempted)),
    CORRECT: _correct,
    FAILURE_RATE: lambda stage: int(stage.attempted["failed"].sum()) / stage.window.seconds,
    CONCURRENCY: _concurrency,
    LITTLES_LAW: _littles_law,
    DISPERSION: _dispersion,
    USERS_RUNNING: _users_running,
    ACCEPTANCE_LENGTH: _acceptance_length,
    ACCEPTANCE_RATE: _acceptance_rate,
    TOKENS_PER_CHUNK: _tokens_per_chunk,
    **{name: _mean(mean) for name, mean in MEANS.items()},
    ENERGY: _energy_per_token,
    CHUNK_RATE: _chunk_rate,
    CLIENT_ERROR: _client_error,
}


def counts_of(stage: StageData) -> dict[str, int]:
    """Count requests, answers and chunks that are unusual, by kind."""
    window = stage.window
    counts = {
        "unserved_users": window.stage.unserved_users,  # no answer when the warm-up reached its bound
        "unanswered": window.stage.unanswered,  # requests without an answer when the hold reached its bound
        "uncounted_chunks": stage.flows.uncounted(window.start, window.end),  # missing from the throughput
    }
    for requests, flags in ((stage.scheduled, COUNTED_REQUESTS), (stage.ok, COUNTED_ANSWERS)):
        counts |= requests.select(**{name: flag.sum() for name, flag in flags.items()}).row(0, named=True)
    if window.generated is not None:  # between two scrapes inside the window
        counts["server_tokens"] = round(window.generated.amount)
        counts["client_tokens"] = round(_received(stage, window.generated))
    return counts


def _received(stage: StageData, span: Increase) -> float:
    """Return the tokens that this client received in `span`; hidden tokens count when their request ends."""
    ended_here = pl.col("t_end").is_between(span.start, span.end, closed="left")
    unseen = pl.col("unseen_tokens").filter(ended_here).cast(pl.Int64).sum()
    return stage.flows.tokens_of(span) + int(stage.run.requests.select(unseen).item())


def failures_of(stage: StageData) -> dict[str, int]:
    """Return the five most frequent failures, in the server's words if it sent any."""
    words = pl.format("{}: {}", "outcome", "detail").fill_null(pl.col("outcome"))
    failed = stage.attempted.filter("failed").select(words.alias("what"))
    counts = failed.group_by("what").len().sort(["len", "what"], descending=[True, False])
    return dict(counts.head(5).iter_rows())
