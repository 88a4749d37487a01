"""The stages of runs as the plan reads them: what was asked when, what came of it, and the engine's steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from analysis.data.chunks import chunks_within
from analysis.data.load import RunData, with_metrics
from analysis.data.windows import Window, windows_of
from analysis.plan.errors import CannotPlan
from analysis.plan.outcome import Requests, figures
from analysis.plan.steps import Floats, Steps, find_steps
from analysis.plan.work import Lengths
from analysis.summary.stage import FAILURES_BORNE
from records.formatting import format_share
from records.load import Load, Users
from records.stage import SECOND


@dataclass(frozen=True, slots=True)
class MeasuredStage:
    """One stage of one run. Seconds since the run's start."""

    name: str
    label: str  # what stages of one kind have in common
    load: Load
    begin: float
    start: float  # of the steady window
    end: float
    requests: Requests  # of the whole stage, those that ended well
    starts: Floats  # when each user first asked, after `begin`
    think: Floats  # from a user's answer to the next request
    failed: float  # share
    steps: tuple[Steps, ...]

    @property
    def figures(self) -> dict[str, float]:
        return figures(self.requests, self.start, self.end)

    @property
    def lengths(self) -> Lengths:
        """Of the requests due in the window."""
        return self.requests.between(self.start, self.end).lengths


def measured_stages(runs: Sequence[RunData]) -> list[MeasuredStage]:
    """The stages of all runs that can be planned from. Raises `CannotPlan` where there is none."""
    found = [_stage(run, window, len(runs) > 1) for run in runs for window in windows_of(run) if _streamed(run)]
    usable = [stage for stage in found if stage.failed <= FAILURES_BORNE and len(stage.lengths)]
    if not usable:
        raise CannotPlan(
            "these runs have no stage to plan from: it takes streamed answers with token counts, of which at most "
            f"{format_share(FAILURES_BORNE)} failed."
        )
    return usable


def _streamed(run: RunData) -> bool:
    return run.requests["t_first"].null_count() < len(run.requests)


def _stage(run: RunData, window: Window, several: bool) -> MeasuredStage:
    stage = window.stage
    stop = stage.end if stage.end is not None else window.end
    due = with_metrics(run.requests.filter(pl.col("t_sched").is_between(stage.start, stop, closed="left")))
    complete = pl.all_horizontal(pl.col("t_first", "e2e_user", "output_tokens").is_not_null())
    ok = due.filter((pl.col("outcome") == "ok") & complete)
    sched = ok["t_sched"].to_numpy() / SECOND
    prompt = ok["prompt_tokens"].fill_null(0).to_numpy().astype(np.float64)
    cached = ok["cached_tokens"].fill_null(0).to_numpy().astype(np.float64)
    lengths = Lengths(prompt - cached, prompt, ok["output_tokens"].to_numpy().astype(np.float64))
    requests = Requests(sched, ok["t_first"].to_numpy() / SECOND, sched + ok["e2e_user"].to_numpy(), lengths)
    closed = isinstance(window.load, Users)
    ended = window.scheduled(due).filter(pl.col("outcome") != "cut_off")
    return MeasuredStage(
        name=f"{window.key.label} of {run.meta.run_id}" if several else window.key.label,
        label=window.stage.plan.label,
        load=window.load,
        begin=stage.start / SECOND,
        start=window.start / SECOND,
        end=window.end / SECOND,
        requests=requests,
        starts=_starts(due, stage.start, window.start) if closed else np.zeros(0),
        think=_think(ok) if closed else np.zeros(0),
        failed=float((ended["outcome"] != "ok").sum()) / len(ended) if len(ended) else math.inf,
        steps=tuple(
            steps for piece in chunks_within(run.table, window.start, window.end) if (steps := find_steps(piece))
        ),
    )


def _starts(due: pl.DataFrame, begin: int, steady: int) -> Floats:
    """Of the users who stay: those of a larger load before may ask once more after `begin`, and leave."""
    asked = due.group_by("user").agg(first=pl.col("t_sched").min(), last=pl.col("t_sched").max())
    first = asked.filter(pl.col("last") >= steady)["first"].to_numpy()
    return np.sort((first - begin) / SECOND)


def _think(ok: pl.DataFrame) -> Floats:
    """Pauses from the last token of an answer to the same user's next request."""
    last = pl.col("t_sched") + pl.col("e2e_user") * SECOND
    pause = (pl.col("t_sched").shift(-1) - last).over("user", order_by="t_sched") / SECOND
    pauses: Floats = ok.select(pause=pause)["pause"].drop_nulls().to_numpy()
    return np.maximum(pauses, 0.0)
