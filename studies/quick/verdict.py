"""What a minute has shown, in a few sentences: one user, the users within the objectives, a peak, the client's error.

    One user: first token after 43.0 ms [41.2, 44.9], then 203 tokens/s [198, 207].
    16 users get their first token within 500 ms (p95), 20 no longer (1.90 s): above 16, waiting for admission grows
    most.
    80 users: about 5 replicas.
    This client's own error: 0.05 ms.

A capacity is the bracket between two measured loads that `analysis.compare.capacity` gives to every report. What the
intervals leave open is said to be undecided, with the command that would decide it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.compare.capacity import LoadJudgement, SloCapacity, load_text, slo_capacity
from analysis.report.table import interval_of
from analysis.summary.run_summary import RunSummary
from records.formatting import column_unit, format_error, format_seconds, format_share
from records.slo import Objective
from records.view import Estimate, StageView

ROUGH = "rough"  # beside a number without an interval


@dataclass(frozen=True, slots=True)
class QuickVerdict:
    """`sentences` in their order; `decided` when the crossing lies between two measured loads."""

    sentences: tuple[str, ...]
    decided: bool


def verdict_of(summary: RunSummary, peak: int, command: str) -> QuickVerdict:
    """`peak` users are answered for by replicas; `command` is what would decide what the run could not."""
    capacity = slo_capacity([summary])
    alone = [stage for stage in summary.stages if stage.load == 1]
    sentences = [_one_user(max(alone, key=lambda stage: stage.requests))] if alone else []
    if capacity is None:
        return QuickVerdict((*sentences, *_client(summary)), decided=False)
    sentences.append(_capacity(summary, capacity))
    undecided = [load for load in capacity.undecided if load > (capacity.met or 0.0)]
    if undecided:
        loads = ", ".join(map(load_text, undecided))
        sentences.append(f"A minute does not decide {loads} users; this does: {command}")
    elif capacity.missed is None:
        sentences.append(f"More than that was not tried; this finds the limit: {command}")
    if capacity.met is not None:
        sentences.append(_replicas(capacity.met, peak, capacity.missed is not None))
    return QuickVerdict((*sentences, *_client(summary)), capacity.met is not None and capacity.missed is not None)


def _one_user(stage: StageView) -> str:
    first, speed = stage.estimate("ttft_user", "p50"), stage.estimate("user_throughput")
    if first.value is None or math.isinf(first.value):
        return "One user: no request was answered with a first token."
    text = f"One user: first token after {_number(first, 's')}"
    return f"{text}." if speed.value is None else f"{text}, then {_number(speed, 'tokens/s')}."


def _capacity(summary: RunSummary, capacity: SloCapacity) -> str:
    met, missed = capacity.met, capacity.missed
    if met is None and missed is None:
        return f"No number of users is shown to keep {capacity.slo}."
    if met is None:
        verb = "misses" if missed == 1 else "miss"
        return f"Already {_users(missed)} {verb} {capacity.slo}{_worst(summary, capacity)}."
    held = f"{_users(met)} {' and '.join(_promise(objective, met == 1) for objective in capacity.objectives)}"
    if missed is None:
        return f"{held}, the most that was decided."
    part = capacity.limit.part if capacity.limit is not None else None
    above = f": above {load_text(met)}, {part} grows most" if part else ""
    return f"{held}, {load_text(missed)} no longer{_worst(summary, capacity)}{above}."


def _promise(objective: Objective, one: bool) -> str:
    """What `one` user, or several, get."""
    if objective.judged is None:
        return f"{'sees' if one else 'see'} at most {format_share(1 - objective.q)} of the requests fail"
    limit, q = format_seconds(objective.limit), objective.statistic
    match objective.metric:
        case "ttft":
            return f"{'gets the' if one else 'get their'} first token within {limit} ({q})"
        case "tpot":
            return f"{'gets' if one else 'get'} a further token every {limit} ({q})"
        case _:
            return f"{'keeps' if one else 'keep'} {objective.text}"


def _users(load: float | None) -> str:
    return "1 user" if load == 1 else f"{load_text(load)} users"


def _worst(summary: RunSummary, capacity: SloCapacity) -> str:
    """What was measured at the lowest load that misses: of the objective that is missed by most."""
    judgement = next(load for load in capacity.loads if load.load == capacity.missed and load.answer == "missed")
    objective = _missed(judgement)
    stage = summary.at(judgement.label)
    value = _measured(stage, objective)
    return f" ({value})" if value else ""


def _missed(judgement: LoadJudgement) -> Objective:
    missed = [each for each in judgement.objectives if each.answer == "missed"]
    return min(missed, key=lambda each: (each.share.value or 0.0) - each.objective.q).objective


def _measured(stage: StageView | None, objective: Objective) -> str:
    if stage is None:
        return ""
    if objective.judged is None:
        return format_share(stage.value("failure_share"))
    value = stage.value(objective.judged.name, objective.statistic)
    return "" if value is None else format_seconds(value)


def _replicas(met: float, peak: int, bracketed: bool) -> str:
    count = math.ceil(peak / met)
    if count == 1:
        return f"{peak} users: 1 replica."
    return f"{peak} users: {'about' if bracketed else 'at most'} {count} replicas."


def _client(summary: RunSummary) -> tuple[str, ...]:
    """By calibration where there is one; else what is known of every run: how late it noticed the first tokens."""
    if summary.client_error is not None:
        return (f"This client's own error: {format_error(summary.client_error).removeprefix('± ')}.",)
    lags = [stage.value("client_lag", "p99") for stage in summary.stages]
    known = [lag for lag in lags if lag is not None and math.isfinite(lag)]
    if not known:
        return ()
    return (
        f"This client read first tokens up to {format_seconds(max(known))} late (p99), which their times leave out.",
    )


def _number(estimate: Estimate, unit: str) -> str:
    """With its interval, or marked as rough."""
    assert estimate.value is not None
    column = column_unit(unit, [estimate.value])
    low, high = interval_of(estimate, column)
    spread = f" [{low}, {high}]" if low is not None else f" ({ROUGH})"
    return f"{column.write(estimate.value)} {column.name}{spread}"
