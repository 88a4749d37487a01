"""One stage of a run, over its steady window only: the numbers that tables, charts and verdicts are made of.

Latencies belong to the requests *scheduled* inside the window, whenever they ended. Throughput belongs to the tokens
that *arrived* inside it, whichever request they are from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.data.formulas import expression
from analysis.data.load import RunData, mean_of, rows_where, users_of
from analysis.data.telemetry import Level
from analysis.data.windows import Flows, StageKey, Window
from analysis.stats.estimate import Estimate
from analysis.stats.intervals import bin_by_user, rate_interval, share_interval
from analysis.stats.steadiness import lock_step
from analysis.summary.answers import AnswerCounts, answers_of
from analysis.summary.client_use import ClientUse, client_use_of
from analysis.summary.distributions import Distribution, chunk_gaps, curves
from analysis.summary.request_classes import ClassSummary, classes_of
from analysis.summary.slo import Attainment, judge
from analysis.summary.ttft_parts import TtftParts, parts_of
from analysis.summary.turns import TurnSummary, turns_of
from records.formula import Between, Field
from records.load import Rate, Users
from records.slo import Objective
from records.stage import SECOND
from records.telemetry import GAUGES

STAY = Between(Field("t_send"), Field("t_end"))  # seconds in flight
ANSWERED = (  # what is asked of the requests that ended well, which are copied where others did not
    *("t_sched", "ttft", "ttft_user", "tpot", "e2e_user", "server_queue", "server_prefill", "delivery", "merged_first"),
    *("streamed", "chunks", "prompt_tokens", "cached_tokens", "output_tokens", "unseen_tokens", "reasoning_tokens"),
    *("planned_prompt_tokens", "planned_output_tokens", "token_source"),
)
LITTLE_WINDOWS = 5  # Little's law compares only windows that are so many times longer than the mean request
FAILURES_BORNE = 0.05  # share of failed requests above which a stage is no evidence that a load can be served


@dataclass(frozen=True, slots=True)
class Concurrency:
    """Requests in flight: their time-average, and λW (Little's law).

    `little` is `None` where the window is too short, against the requests, for the two to be compared.
    """

    average: float
    little: float | None


@dataclass(frozen=True, slots=True)
class StageSummary:
    """Numbers of one steady window; seconds, and tokens or requests per second. `None` is what was not observed."""

    index: int
    label: str
    load: float  # in `load_unit`
    load_unit: str
    is_open: bool  # requests arrived on schedule, however long the answers took
    varies: bool  # the rate of arrivals was meant to change within the window
    named: bool  # the label is a name of the stage's own and not that of its load
    users_there: float | None  # time-average of the users that the load generator really had
    start: float  # the window, since the run's start
    end: float
    complete: bool  # False: the run was stopped inside the window, or lost a process
    unserved_users: int  # had no answer when the warm-up reached its bound
    unanswered: int  # requests of the window without an answer when the hold reached its bound
    requests: int  # scheduled in the window
    ok: int
    failed: int
    cut_off: int
    outcomes: Mapping[str, int]
    failure_details: Mapping[str, int]  # most frequent first
    again: int  # of the requests, those that asked again what had failed before
    failure_share: Estimate  # of ok and failed
    failure_rate: float
    offered_rate: float
    achieved_rate: float
    throughput: Estimate  # output tokens per second
    user_throughput: float | None  # tokens per second of the median user
    latencies: Mapping[str, Distribution]
    curves: Mapping[str, tuple[float, ...]]  # percentiles at `CURVE`, by metric, of the requests that ended well
    ttft_parts: TtftParts | None
    series: Mapping[str, tuple[float | None, ...]]  # over equal parts of the window: was it steady?
    dispersion: float | None  # index of dispersion of arrivals in a closed loop
    concurrency: Concurrency
    answers: AnswerCounts
    reconnected: int
    merged_first: int
    telemetry: Mapping[str, Level]
    memory: Mapping[str, tuple[float, float]]  # bytes at the window's beginning and at its end, by whose memory it is
    client: ClientUse
    energy_per_token: float | None  # joules
    attainment: Attainment | None
    classes: tuple[ClassSummary, ...]  # where requests have classes
    turns: tuple[TurnSummary, ...]  # where they belong to conversations

    @property
    def key(self) -> StageKey:
        return StageKey(self.index, self.label)

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def telemetry_mean(self, quantity: str) -> float | None:
        level = self.telemetry.get(quantity)
        return None if level is None else level.mean

    @property
    def overloaded(self) -> bool:
        """Too many requests failed for the stage to count as served."""
        return self.failure_share.value is None or self.failure_share.value > FAILURES_BORNE


@dataclass(frozen=True, slots=True)
class _Population:
    """The requests that were scheduled in a window, by how they ended."""

    scheduled: pl.DataFrame
    ok: pl.DataFrame
    attempted: pl.DataFrame  # ended, well or not
    failed: pl.DataFrame
    failure_share: Estimate  # of those attempted

    @classmethod
    def of(cls, scheduled: pl.DataFrame) -> _Population:
        ok = rows_where(scheduled.select("outcome", *ANSWERED), pl.col("outcome") == "ok")
        attempted = scheduled.select("outcome", "detail", "user").filter(pl.col("outcome") != "cut_off")
        failed = attempted.filter(pl.col("outcome") != "ok")
        share = share_interval((attempted["outcome"] != "ok").to_numpy(), users_of(attempted))
        return cls(scheduled, ok, attempted, failed, share)

    @property
    def too_many_failed(self) -> str | None:
        """Why attainment is withheld, if it is."""
        many = (self.failure_share.value or 0) > FAILURES_BORNE
        return f"{len(self.failed)} of {len(self.attempted)} failed" if many else None


def summarise_stage(
    run: RunData,
    window: Window,
    flows: Flows,
    requests: pl.DataFrame,
    latencies: Mapping[str, Distribution],
    objectives: tuple[Objective, ...],
) -> StageSummary:
    """`requests` are those scheduled in the window, with every metric, and `latencies` theirs.

    Raises `UserMistake` when an objective cannot be judged by what was measured.
    """
    population = _Population.of(requests)
    scheduled, ok, failed = population.scheduled, population.ok, population.failed
    completed = (pl.col("outcome") == "ok") & pl.col("t_end").is_between(window.start, window.end, closed="left")
    tpot = latencies["tpot"].p50.value
    sent = scheduled["t_send"].drop_nulls()
    users = window.load.count if isinstance(window.load, Users) else None
    return StageSummary(
        index=window.key.index,
        label=window.key.label,
        load=window.load.value,
        load_unit=window.load.unit,
        is_open=isinstance(window.load, Rate),
        varies=isinstance(window.load, Rate) and window.load.varies,
        named=window.stage.plan.name is not None,
        users_there=None if users is None else run.telemetry.users(window.start, window.end, users),
        start=window.start / SECOND,
        end=window.end / SECOND,
        complete=window.complete,
        unserved_users=window.stage.unserved_users,
        unanswered=window.stage.unanswered,
        requests=len(scheduled),
        ok=len(ok),
        failed=len(failed),
        cut_off=len(scheduled) - len(population.attempted),
        outcomes=dict(sorted(scheduled["outcome"].value_counts().iter_rows())),
        failure_details=_details(failed),
        again=int((scheduled["attempt"] > 0).sum()),
        failure_share=population.failure_share,
        failure_rate=len(failed) / window.seconds,
        offered_rate=len(scheduled) / window.seconds,
        achieved_rate=run.requests.select(completed.sum()).item() / window.seconds,
        throughput=_throughput(run, window, flows),
        user_throughput=1 / tpot if tpot else None,
        latencies={**latencies, "icl": chunk_gaps(flows.gaps[window.key.index])},
        curves=curves(ok),
        ttft_parts=parts_of(ok),
        series=_series(window, flows, ok),
        dispersion=None if users is None else lock_step(sent.to_numpy(), (window.start, window.end), users),
        concurrency=_concurrency(run, window, flows),
        answers=answers_of(run, ok, window, flows),
        reconnected=scheduled["t_connect"].count(),
        merged_first=int(ok["merged_first"].sum()),
        telemetry=_levels(run, window),
        memory=_memory(run, window),
        client=client_use_of(run, window, flows),
        energy_per_token=_energy_per_token(window, flows),
        attainment=judge(scheduled, objectives, (window.start, window.end), population.too_many_failed),
        classes=classes_of(scheduled, run.meta.workload.get("class_objectives") or {}, window),
        turns=turns_of(scheduled),
    )


def _throughput(run: RunData, window: Window, flows: Flows) -> Estimate:
    """Tokens by their stamps; the variance between users from whole requests, each at the instant it ended."""
    ended = run.requests.select("t_end", "user", "output_tokens").filter(
        pl.col("t_end").is_between(window.start, window.end, closed="left") & pl.col("output_tokens").is_not_null()
    )
    users, by_user = users_of(ended), None
    if users is not None and len(ended):
        by_user = bin_by_user(ended["t_end"].to_numpy(), users, window.start, window.end, ended["output_tokens"])
    return rate_interval(flows.tokens(window.bins), window.seconds, by_user)


def _series(window: Window, flows: Flows, ok: pl.DataFrame) -> dict[str, tuple[float | None, ...]]:
    edges = window.parts
    seconds = np.diff(edges) / SECOND
    part = np.clip(np.searchsorted(edges, ok["t_sched"].to_numpy(), side="right") - 1, 0, len(seconds) - 1)
    ttft = "ttft_user" if isinstance(window.load, Rate) else "ttft"
    return {
        "throughput": tuple((flows.tokens(edges) / seconds).tolist()),
        "in_flight": tuple(flows.in_flight.averages(edges).tolist()),
        "ttft": _means_by_part(ok[ttft], part, len(seconds)),
        "tpot": _means_by_part(ok["tpot"], part, len(seconds)),
    }


def _means_by_part(values: pl.Series, part: npt.NDArray[np.intp], parts: int) -> tuple[float | None, ...]:
    """Of the known values, which are summed in their order: sums by threads differ in their last digits each time."""
    known = values.is_not_null().to_numpy()
    counts = np.bincount(part[known], minlength=parts)
    sums = np.bincount(part[known], values.drop_nulls().to_numpy(), minlength=parts)
    return tuple(float(total / count) if count else None for total, count in zip(sums, counts, strict=True))


def _concurrency(run: RunData, window: Window, flows: Flows) -> Concurrency:
    (average,) = flows.in_flight.averages(np.array([window.start, window.end], dtype=np.int64))
    sent_here = pl.col("t_send").is_between(window.start, window.end, closed="left")
    arrived = run.requests.select("t_send", stay=expression(STAY)).filter(sent_here)
    stay = mean_of(arrived["stay"])
    little = None
    if stay is not None and window.seconds >= LITTLE_WINDOWS * stay:
        little = len(arrived) / window.seconds * stay  # L = λW (Little 1961)
    return Concurrency(float(average), little)


def _energy_per_token(window: Window, flows: Flows) -> float | None:
    if window.energy is None:
        return None
    tokens = flows.tokens_of(window.energy)
    return window.energy.amount / tokens if tokens > 0 else None


def _levels(run: RunData, window: Window) -> dict[str, Level]:
    levels = {name: run.telemetry.level(name, window.start, window.end) for name in GAUGES}
    return {name: level for name, level in levels.items() if level is not None}


def _memory(run: RunData, window: Window) -> dict[str, tuple[float, float]]:
    """Means of the first and of the last tenth of the window."""
    tenths = window.edges(10)
    found = {}
    for name in ("engine_memory_bytes", "process_memory_bytes"):
        first = run.telemetry.level(name, int(tenths[0]), int(tenths[1]))
        last = run.telemetry.level(name, int(tenths[-2]), int(tenths[-1]))
        if first is not None and last is not None:
            found[name] = (first.mean, last.mean)
    return found


def _details(failed: pl.DataFrame) -> dict[str, int]:
    """The five most frequent ways to fail, in the server's words where it had any."""
    words = pl.format("{}: {}", "outcome", "detail").fill_null(pl.col("outcome"))
    counts = failed.select(words.alias("what")).group_by("what").len().sort(["len", "what"], descending=[True, False])
    return dict(counts.head(5).iter_rows())
