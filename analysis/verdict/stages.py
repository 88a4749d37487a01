"""One stage of a run, over its steady window only: the numbers that tables, charts and verdicts are made of.

Latencies belong to the requests *scheduled* inside the window, whenever they ended. Throughput belongs to the tokens
that *arrived* inside it, whichever request they are from. A request that the run's own end cut off is counted apart:
how long it would have taken, nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from analysis.run.flow import chunk_gaps
from analysis.run.load import Run
from analysis.run.telemetry import GAUGES, Increase, Level
from analysis.run.windows import SECOND, Flows, Window
from analysis.verdict.slo import Attainment, Objective, judge
from analysis.verdict.statistics import (
    BATCHES,
    Estimate,
    mean_interval,
    nearest_rank,
    percentile,
    percentile_interval,
    share_interval,
)

PERCENTILES = (0.5, 0.9, 0.95, 0.99)
CURVE = (*(k / 100 for k in range(1, 100)), 0.995, 1.0)  # where the distribution of TTFT is drawn
LATENCIES = ("ttft", "ttft_user", "ttfo", "tpot", "ntpot", "e2e", "e2e_user")  # of the requests that ended well
LAGS = ("send_lag", "client_lag")  # of every request: the load generator is late for the failed ones too
LITTLE_WINDOWS = 5  # Little's law compares only windows that are so many times longer than the mean request


@dataclass(frozen=True, slots=True)
class Distribution:
    """Seconds, over `n` values. `p50` … `p99` are nearest-rank percentiles with their intervals."""

    n: int
    mean: float | None
    largest: float | None
    p50: Estimate
    p90: Estimate
    p95: Estimate
    p99: Estimate


@dataclass(frozen=True, slots=True)
class TtftParts:
    """Mean seconds of TTFT: waiting for admission, until the first token was there, and on the way to the client."""

    queue: float
    prefill: float
    delivery: float
    n: int  # requests whose server said so


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Requests in flight: their time-average, the same over equal parts of the window, and λW (Little's law).

    `little` is `None` where the window is too short, against the requests, for the two to be compared.
    """

    average: float
    batches: tuple[float, ...]
    little: float | None


@dataclass(frozen=True, slots=True)
class Tokens:
    """Means over the requests that ended well, and what speaks against the counts."""

    prompt: float | None
    output: float | None
    per_chunk: float | None
    fewer_than_chunks: int  # answers with fewer tokens than chunks, which cannot be
    by_tokenizer: int  # answers that the tokenizer counted, because the server did not
    uncounted: int  # answers that nobody counted
    uncounted_chunks: int  # chunks that arrived in the window and are missing from the throughput
    server_count: float | None  # between two scrapes inside the window, by the server's counter …
    client_count: float | None  # … and by this client


@dataclass(frozen=True, slots=True)
class StageSummary:
    """Numbers of one steady window; seconds, and tokens or requests per second. `None` is what nobody observed."""

    index: int
    users: int
    users_there: float | None  # time-average of the users that the load generator really had
    start: float  # the window, since the run's start
    end: float
    complete: bool  # False: the run was stopped inside the window
    requests: int  # scheduled in the window
    ok: int
    failed: int
    cut_off: int
    outcomes: Mapping[str, int]
    failure_details: Mapping[str, int]  # most frequent first
    failure_share: Estimate  # of ok and failed
    offered_rate: float
    achieved_rate: float
    throughput: Estimate  # output tokens per second
    throughput_batches: tuple[float, ...]  # of equal parts of the window
    user_throughput: float | None  # tokens per second that the median user sees
    latencies: Mapping[str, Distribution]
    ttft_curve: tuple[float, ...]  # percentiles of TTFT at `CURVE`
    ttft_batches: tuple[float, ...]  # mean TTFT of as many requests each, in time order: does it drift?
    ttft_parts: TtftParts | None
    concurrency: Concurrency
    tokens: Tokens
    reconnected: int
    merged_first: int
    telemetry: Mapping[str, Level]
    client_cpu: Level | None
    loop_lag: Level | None
    client_load: float | None  # streamed chunks per second, in the busiest part of the window
    client_error: float | None  # seconds by which this client's TTFT may be off at p99, by its calibration
    energy_per_token: float | None  # joules
    attainment: Attainment | None

    @property
    def seconds(self) -> float:
        return self.end - self.start


def summarise_stage(run: Run, window: Window, flows: Flows, objectives: tuple[Objective, ...]) -> StageSummary:
    """Raises `ValueError` when an objective cannot be judged by what was measured."""
    scheduled = window.scheduled(run.requests)
    ok = scheduled.filter(pl.col("outcome") == "ok")
    attempted = scheduled.filter(pl.col("outcome") != "cut_off")
    failed = attempted.filter(pl.col("outcome") != "ok")
    ended_here = pl.col("t_end").is_between(window.start, window.end, closed="left")
    completed = run.requests.filter((pl.col("outcome") == "ok") & ended_here)
    lengths = np.diff(window.batches) / SECOND
    rates = flows.tokens(window.batches) / lengths
    load = float((flows.chunks(window.batches) / lengths).max()) or None
    latencies = {name: _distribution(ok[name]) for name in LATENCIES}
    latencies |= {name: _distribution(scheduled[name]) for name in LAGS}
    latencies["icl"] = _pooled(run, window)
    tpot = latencies["tpot"].p50.value
    return StageSummary(
        index=window.index,
        users=window.users,
        users_there=run.telemetry.users(window.start, window.end, window.users),
        start=window.start / SECOND,
        end=window.end / SECOND,
        complete=window.complete,
        requests=len(scheduled),
        ok=len(ok),
        failed=len(failed),
        cut_off=len(scheduled) - len(attempted),
        outcomes=dict(sorted(scheduled["outcome"].value_counts().iter_rows())),
        failure_details=_details(failed),
        failure_share=share_interval(len(failed), len(attempted)),
        offered_rate=len(scheduled) / window.seconds,
        achieved_rate=len(completed) / window.seconds,
        throughput=_not_negative(mean_interval(rates)),
        throughput_batches=tuple(rates.tolist()),
        user_throughput=1 / tpot if tpot else None,
        latencies=latencies,
        ttft_curve=_curve(ok["ttft"]),
        ttft_batches=_batch_means(ok["ttft"]),
        ttft_parts=_ttft_parts(ok),
        concurrency=_concurrency(run, window, flows),
        tokens=_tokens(ok, window, flows),
        reconnected=int(scheduled["reconnected"].sum()),
        merged_first=int(ok["merged_first"].sum()),
        telemetry=_levels(run, window),
        client_cpu=run.telemetry.client_cpu(window.start, window.end),
        loop_lag=run.telemetry.loop_lag(window.start, window.end),
        client_load=load,
        client_error=None if load is None else run.meta.client_error_at(load),
        energy_per_token=_energy_per_token(window, flows),
        attainment=judge(attempted, objectives, window.seconds),
    )


def _not_negative(rate: Estimate) -> Estimate:
    """Few and uneven batches give a t interval that reaches below zero, where no rate is."""
    return rate if rate.low is None else replace(rate, low=max(rate.low, 0.0))


def _distribution(in_time_order: pl.Series) -> Distribution:
    values = in_time_order.drop_nulls().to_numpy()
    if len(values) == 0:
        return Distribution(0, None, None, *([Estimate(None, why="no samples")] * 4))
    estimates = [percentile_interval(values, q) for q in PERCENTILES]
    return Distribution(len(values), float(values.mean()), float(values.max()), *estimates)


def _pooled(run: Run, window: Window) -> Distribution:
    """Inter-chunk latency, token-weighted: every gap of every answer counts once."""
    gaps = chunk_gaps(run.table, window.start, window.end)
    n = len(gaps)
    if n == 0:
        return Distribution(0, None, None, *([Estimate(None, why="no samples")] * 4))
    ranks = [nearest_rank(n, q) - 1 for q in PERCENTILES]
    gaps.partition(ranks)
    # The gaps of one answer are too much alike for an interval that would treat them as independent.
    why = "gaps of one answer are alike"
    estimates = [Estimate(float(gaps[rank]) / SECOND, n=n, why=why) for rank in ranks]
    return Distribution(n, float(gaps.mean()) / SECOND, float(gaps.max()) / SECOND, *estimates)


def _curve(values: pl.Series) -> tuple[float, ...]:
    ordered = np.sort(values.drop_nulls().to_numpy())
    return tuple(percentile(ordered, q) for q in CURVE) if len(ordered) else ()


def _batch_means(in_time_order: pl.Series) -> tuple[float, ...]:
    values = in_time_order.drop_nulls().to_numpy()
    if len(values) < 2 * BATCHES:
        return ()
    return tuple(float(batch.mean()) for batch in np.array_split(values, BATCHES))


def _ttft_parts(ok: pl.DataFrame) -> TtftParts | None:
    """Means, because only means of parts add up to the mean of the whole."""
    told = ok.filter(pl.col("delivery").is_not_null())
    if told.is_empty():
        return None
    queue, prefill, delivery = (_mean(told[name]) or 0.0 for name in ("server_queue", "server_prefill", "delivery"))
    return TtftParts(queue, prefill, delivery, len(told))


def _concurrency(run: Run, window: Window, flows: Flows) -> Concurrency:
    (average,) = flows.in_flight.averages(np.array([window.start, window.end], dtype=np.int64))
    batches = flows.in_flight.averages(window.batches)
    arrived = run.requests.filter(pl.col("t_send").is_between(window.start, window.end, closed="left"))
    stay = _mean((arrived["t_end"] - arrived["t_send"]) / SECOND)
    little = None
    if stay is not None and window.seconds >= LITTLE_WINDOWS * stay:
        little = len(arrived) / window.seconds * stay  # L = λW (Little 1961)
    return Concurrency(float(average), tuple(batches.tolist()), little)


def _tokens(ok: pl.DataFrame, window: Window, flows: Flows) -> Tokens:
    streamed = ok.filter((pl.col("chunks") > 0) & pl.col("output_tokens").is_not_null())
    chunks = int(streamed["chunks"].sum())
    generated = window.generated
    return Tokens(
        prompt=_mean(ok["prompt_tokens"]),
        output=_mean(ok["output_tokens"]),
        per_chunk=int(streamed["output_tokens"].sum()) / chunks if chunks else None,
        fewer_than_chunks=int((streamed["output_tokens"] < streamed["chunks"]).sum()),
        by_tokenizer=int((ok["token_source"] == "tokenizer").sum()),
        uncounted=ok["output_tokens"].null_count(),
        uncounted_chunks=flows.uncounted(window.start, window.end),
        server_count=None if generated is None else generated.amount,
        client_count=None if generated is None else _between(flows, generated),
    )


def _between(flows: Flows, span: Increase) -> float:
    return float(flows.tokens(np.array([span.start, span.end], dtype=np.int64))[0])


def _energy_per_token(window: Window, flows: Flows) -> float | None:
    if window.energy is None:
        return None
    tokens = _between(flows, window.energy)
    return window.energy.amount / tokens if tokens > 0 else None


def _levels(run: Run, window: Window) -> dict[str, Level]:
    levels = {name: run.telemetry.level(name, window.start, window.end) for name in GAUGES}
    return {name: level for name, level in levels.items() if level is not None}


def _details(failed: pl.DataFrame) -> dict[str, int]:
    """The five most frequent ways to fail, in the server's words where it had any."""
    words = pl.format("{}: {}", "outcome", "detail").fill_null(pl.col("outcome"))
    counts = failed.select(words.alias("what")).group_by("what").len().sort(["len", "what"], descending=[True, False])
    return dict(counts.head(5).iter_rows())


def _mean(values: pl.Series) -> float | None:
    mean = values.mean()
    assert mean is None or isinstance(mean, float | int)
    return None if mean is None else float(mean)
