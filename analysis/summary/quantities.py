"""The quantities of a stage (`records/metrics.py`), each computed by the function of its name, and what findings count.

Throughput belongs to the tokens that *arrived* inside the window, whichever request they are from; everything else to
the requests *scheduled* inside it, whenever they ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from analysis.data.formulas import expression
from analysis.data.load import RunData, mean_of, rows_where, users_of
from analysis.data.telemetry import Increase
from analysis.data.windows import Flows, Window
from analysis.stats.intervals import bin_by_user, rate_interval, share_interval
from analysis.stats.steadiness import lock_step
from analysis.summary.objectives import attainment, goodput
from records.formula import Between, Field
from records.load import Users
from records.metrics import REQUEST_METRICS
from records.rules import UNJUDGED
from records.slo import Objective
from records.view import Distribution, Estimate

STAY = Between(Field("t_send"), Field("t_end"))  # seconds in flight
LITTLE_WINDOWS = 5  # Little's law compares only windows that are so many times longer than the mean request
STREAM_TOKENS = 8  # an answer of fewer tokens may come in one chunk
AT_ONCE = 1e-4  # seconds per token: faster than any model decodes, so the chunks had been held back
PROMPT_TOLERANCE = 1  # tokens by which a prompt may miss its planned length
SHORT = 0.9  # share of the planned tokens below which an answer counts as cut short
CURVES = {metric.name for metric in REQUEST_METRICS if metric.shown.curve}
ANSWERED = (  # what is asked of the requests that ended well, which are copied where others did not
    *sorted(CURVES | {"ttft", "ttft_user", "tpot", "delivery"}),
    *("t_sched", "server_queue", "server_prefill"),
    *("merged_first", "streamed", "chunks", "prompt_tokens", "cached_tokens", "output_tokens", "unseen_tokens"),
    *("reasoning_tokens", "planned_prompt_tokens", "planned_output_tokens", "token_source"),
)


@dataclass(frozen=True)
class StageData:
    """What the numbers of one window are made of. `scheduled` are its requests, in order, with their metrics."""

    run: RunData
    window: Window
    flows: Flows
    scheduled: pl.DataFrame
    metrics: Mapping[str, Distribution]
    objectives: tuple[Objective, ...]

    @cached_property
    def ok(self) -> pl.DataFrame:
        return rows_where(self.scheduled.select("outcome", *ANSWERED), pl.col("outcome") == "ok")

    @cached_property
    def attempted(self) -> pl.DataFrame:
        """Ended, well or not."""
        ended = self.scheduled.select("outcome", "detail", "user").filter(~pl.col("outcome").is_in(UNJUDGED))
        return ended.with_columns(failed=pl.col("outcome") != "ok")

    @property
    def users(self) -> int | None:
        """Planned, in a closed loop."""
        return self.window.load.count if isinstance(self.window.load, Users) else None


def quantities_of(stage: StageData) -> dict[str, Estimate]:
    """By name; what was not observed is left out."""
    values = {name: formula(stage) for name, formula in FORMULAS.items()}
    n = len(stage.scheduled)
    return {
        name: value if isinstance(value, Estimate) else Estimate(value, n=n)
        for name, value in values.items()
        if value is not None
    }


def _failure_share(stage: StageData) -> Estimate:
    return share_interval(stage.attempted["failed"].to_numpy(), users_of(stage.attempted))


def _achieved_rate(stage: StageData) -> float:
    start, end = stage.window.start, stage.window.end
    completed = (pl.col("outcome") == "ok") & pl.col("t_end").is_between(start, end, closed="left")
    return int(stage.run.requests.select(completed.sum()).item()) / stage.window.seconds


def _throughput(stage: StageData) -> Estimate:
    """Tokens by their stamps; the variance between users from whole requests, each at the instant it ended.

    Where no answer's tokens are known, neither is the throughput: it is not 0.
    """
    window = stage.window
    tokens = stage.flows.tokens(window.bins)
    requests = stage.run.requests.select("t_end", "user", "outcome", "output_tokens")
    ended = requests.filter(pl.col("t_end").is_between(window.start, window.end, closed="left"))
    uncounted = ended.filter((pl.col("outcome") == "ok") & pl.col("output_tokens").is_null())
    if not tokens.any() and (len(uncounted) or stage.flows.uncounted(window.start, window.end)):
        return Estimate(None, why="the tokens of the answers are unknown")
    ended = ended.drop_nulls("output_tokens")
    users, by_user = users_of(ended), None
    if users is not None and len(ended):
        by_user = bin_by_user(ended["t_end"].to_numpy(), users, window.start, window.end, ended["output_tokens"])
    return rate_interval(tokens, window.seconds, by_user)


def _user_throughput(stage: StageData) -> float | None:
    tpot = stage.metrics["tpot"].percentile("p50").value
    return 1 / tpot if tpot else None


def _goodput(stage: StageData) -> Estimate | None:
    return goodput(stage.scheduled, stage.objectives, (stage.window.start, stage.window.end))


def _concurrency(stage: StageData) -> float:
    (average,) = stage.flows.in_flight.averages(np.array([stage.window.start, stage.window.end], dtype=np.int64))
    return float(average)


def _littles_law(stage: StageData) -> float | None:
    """L = λW (Little 1961), where the window is long enough against the requests to be compared."""
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


def _mean(column: str) -> Callable[[StageData], Estimate | None]:
    def of(stage: StageData) -> Estimate | None:
        mean = mean_of(stage.ok[column])
        return None if mean is None else Estimate(mean, n=len(stage.ok))

    return of


def _planned_tokens(stage: StageData) -> float | None:
    return mean_of(_with_planned_length(stage)["planned_output_tokens"])


def _with_planned_length(stage: StageData) -> pl.DataFrame:
    return stage.ok.filter(pl.col("planned_output_tokens").is_not_null() & pl.col("output_tokens").is_not_null())


def _tokens_per_chunk(stage: StageData) -> float | None:
    streamed = _streamed(stage)
    chunks = int(streamed["chunks"].sum())
    return int((streamed["output_tokens"] - streamed["unseen_tokens"]).sum()) / chunks if chunks else None


def _streamed(stage: StageData) -> pl.DataFrame:
    return stage.ok.filter((pl.col("chunks") > 0) & pl.col("output_tokens").is_not_null())


def _ttft_part(part: pl.Expr) -> Callable[[StageData], Estimate | None]:
    """Means, because only means of parts add up to the mean of the whole. `None` where the server sent no durations."""

    def of(stage: StageData) -> Estimate | None:
        known = stage.ok.select("delivery", part=part).drop_nulls("delivery")["part"]
        mean = mean_of(known)
        return None if mean is None else Estimate(max(mean, 0.0), n=len(known))

    return of


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
    delay = stage.run.telemetry.of_worst_process("run_delay", window.start, window.end)
    return stage.run.meta.client_error_at(rate, delay.mean if delay else 0.0)


FORMULAS: Mapping[str, Callable[[StageData], Estimate | float | None]] = {
    "offered_rate": lambda stage: len(stage.scheduled) / stage.window.seconds,
    "achieved_rate": _achieved_rate,
    "throughput": _throughput,
    "user_throughput": _user_throughput,
    "goodput": _goodput,
    "attainment": lambda stage: attainment(stage.scheduled, stage.objectives),
    "failure_share": _failure_share,
    "failure_rate": lambda stage: int(stage.attempted["failed"].sum()) / stage.window.seconds,
    "concurrency": _concurrency,
    "littles_law": _littles_law,
    "dispersion": _dispersion,
    "users_running": _users_running,
    "prompt_tokens": _mean("prompt_tokens"),
    "cached_tokens": _mean("cached_tokens"),
    "output_tokens": _mean("output_tokens"),
    "planned_tokens": _planned_tokens,
    "reasoning_tokens": _mean("reasoning_tokens"),
    "tokens_per_chunk": _tokens_per_chunk,
    "ttft_client": _ttft_part(pl.col("ttft_user") - pl.col("ttft")),
    "ttft_queue": _ttft_part(pl.col("server_queue")),
    "ttft_prefill": _ttft_part(pl.col("server_prefill")),
    "ttft_delivery": _ttft_part(pl.col("delivery")),
    "energy_per_token": _energy_per_token,
    "chunk_rate": _chunk_rate,
    "client_error": _client_error,
}


def counts_of(stage: StageData) -> dict[str, int]:
    """Of requests, answers and chunks, by what is unusual about them."""
    scheduled, ok, window = stage.scheduled, stage.ok, stage.window
    streamed, planned = _streamed(stage), _with_planned_length(stage)
    seen = streamed["output_tokens"] - streamed["unseen_tokens"]
    long = ok.filter(pl.col("streamed") & (pl.col("output_tokens") - pl.col("unseen_tokens") >= STREAM_TOKENS))
    counted = ok.filter(pl.col("planned_prompt_tokens").is_not_null() & pl.col("prompt_tokens").is_not_null())
    off = (counted["prompt_tokens"] - counted["planned_prompt_tokens"]).abs()
    empty = (pl.col("output_tokens") == 0) | (pl.col("streamed") & (pl.col("chunks") == 0))
    counts = {
        "retried": int((scheduled["attempt"] > 0).sum()),
        "reconnected": scheduled["t_connect"].count(),
        "merged_first": int(ok["merged_first"].sum()),
        "unserved_users": window.stage.unserved_users,  # no answer when the warm-up reached its bound
        "unanswered": window.stage.unanswered,  # requests without an answer when the hold reached its bound
        "fewer_tokens_than_chunks": int((seen < streamed["chunks"]).sum()),  # which cannot be
        "counted_by_tokenizer": int((ok["token_source"] == "tokenizer").sum()),  # because the server did not count
        "uncounted": ok["output_tokens"].null_count(),
        "uncounted_chunks": stage.flows.uncounted(window.start, window.end),  # missing from the throughput
        "empty": len(ok.filter(empty)),
        "cut_short": len(planned.filter(pl.col("output_tokens") < SHORT * pl.col("planned_output_tokens"))),
        "missed_prompts": int((off > PROMPT_TOLERANCE).sum()),  # whose tokens are not those planned …
        "planned_prompts": len(counted),  # … of those with a plan and a count
        "at_once": len(long.filter((pl.col("chunks") == 1) | (pl.col("tpot") < AT_ONCE))),  # all tokens together …
        "streams": len(long),  # … of the streamed answers long enough to tell
    }
    if window.generated is not None:  # between two scrapes inside the window
        counts["server_tokens"] = round(window.generated.amount)
        counts["client_tokens"] = round(_received(stage, window.generated))
    return counts


def _received(stage: StageData, span: Increase) -> float:
    """Tokens that this client received meanwhile; those that no chunk showed count as their request ends."""
    ended_here = pl.col("t_end").is_between(span.start, span.end, closed="left")
    unseen = pl.col("unseen_tokens").filter(ended_here).cast(pl.Int64).sum()
    return stage.flows.tokens_of(span) + int(stage.run.requests.select(unseen).item())


def failures_of(stage: StageData) -> dict[str, int]:
    """The five most frequent ways to fail, in the server's words where it had any."""
    words = pl.format("{}: {}", "outcome", "detail").fill_null(pl.col("outcome"))
    failed = stage.attempted.filter("failed").select(words.alias("what"))
    counts = failed.group_by("what").len().sort(["len", "what"], descending=[True, False])
    return dict(counts.head(5).iter_rows())
