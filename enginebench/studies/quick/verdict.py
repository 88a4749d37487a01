"""What a minute has shown, in a few sentences: one user, the users within the objectives, a peak, the client's error.

    One user: first token after 43.0 ms [41.2, 44.9], then 203 tokens/s [198, 207].
    16 users get their first token within 500 ms (p95), 24 no longer (1.90 s [1.71, 2.02]): above 16, most of the added
    time is waiting for admission.
    Throughput no longer grows above 16 users (about 2,650 tokens/s).
    80 users: about 4 or 5 replicas.
    This client's own error: 0.05 ms.

A capacity is the bracket between two measured loads that `analysis.compare.capacity` gives to every report. Where the
intervals leave an end of it open, the measured values alone say which loads it lies between: the sentence then begins
with "Probably", and the next one says what is not decided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from enginebench.analysis.compare.capacity import LoadJudgement, SloCapacity, load_text, slo_capacity
from enginebench.analysis.compare.growth import saturated_from
from enginebench.analysis.compare.limit import limit_of
from enginebench.analysis.compare.tables import interval_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import column_unit, counted, format_error, format_seconds, format_share, in_words
from enginebench.records.rules import is_failure
from enginebench.records.slo import Objective
from enginebench.records.view import Estimate, Judgement, StageView


@dataclass(frozen=True, slots=True)
class QuickVerdict:
    """`sentences` in their order; `decided` when the crossing is shown to lie between two measured loads."""

    sentences: tuple[str, ...]
    decided: bool


@dataclass(frozen=True, slots=True)
class Bracket:
    """The heaviest load that is held, and the lightest that is not; `None` where none is known. `open_ends` are those
    that only the measured values show, and not their intervals."""

    capacity: SloCapacity
    held: LoadJudgement | None
    missed: LoadJudgement | None

    @staticmethod
    def of(capacity: SloCapacity) -> Bracket:
        least, most = capacity.met or 0.0, capacity.missed or math.inf
        held = [each for each in capacity.loads if least <= each.load < most and (each.load == least or _holds(each))]
        beyond = [each for each in capacity.loads if not held or each.load > held[-1].load]
        return Bracket(capacity, held[-1] if held else None, beyond[0] if beyond else None)

    @property
    def open_ends(self) -> list[LoadJudgement]:
        ends = [end for end in (self.held, self.missed) if end is not None]
        return [end for end in ends if end.answer == "not enough evidence"]

    @property
    def decided(self) -> bool:
        return self.held is not None and self.missed is not None and not self.open_ends


def verdict_of(summary: RunSummary, peak: int) -> QuickVerdict:
    """`peak` users are answered for by replicas."""
    capacity = slo_capacity([summary])
    alone = summary.at("1 user")
    sentences = [_one_user(alone)] if alone is not None else []
    if capacity is None or not capacity.loads:
        unknown = "How many users it holds is not known: no load could be judged; the next command decides."
        return QuickVerdict((*sentences, unknown, *_client(summary)), decided=False)
    bracket = Bracket.of(capacity)
    sentences.append(_capacity(summary, bracket))
    if bracket.open_ends:
        sentences.append(f"Not decided: {in_words(list(map(_open, bracket.open_ends)))}; the next command decides.")
    sentences += _saturation(summary)
    if bracket.held is not None:
        sentences.append(_replicas(bracket, peak))
    return QuickVerdict((*sentences, *_client(summary)), bracket.decided)


def _holds(load: LoadJudgement) -> bool:
    """By the measured shares, whatever their intervals are."""
    return all((each.share.value or 0.0) >= each.objective.q for each in load.objectives)


def _one_user(stage: StageView) -> str:
    first, speed = stage.estimate("ttft_user", "p50"), stage.estimate("user_throughput")
    if first.value is None or math.isinf(first.value):
        return "One user: no request was answered with a first token."
    text = f"One user: first token after {_number(first, 's')}"
    return f"{text}." if speed.value is None else f"{text}, then {_number(speed, 'tokens/s')}."


def _capacity(summary: RunSummary, bracket: Bracket) -> str:
    held, missed, objectives = bracket.held, bracket.missed, bracket.capacity.objectives
    if held is None:
        assert missed is not None
        users = "not even 1 user" if missed.load == 1 else f"fewer than {_users(missed.load)}"
        text = f"{users} {_promises(objectives, missed.load == 1)}{_measured(summary, missed)}."
    elif missed is None:
        tried = f"(the most that {'was' if held.load == 1 else 'were'} tried)"
        text = f"at least {_users(held.load)} {tried} {_promises(objectives, held.load == 1)}."
    else:
        no_longer = f"{load_text(missed.load)} no longer{_measured(summary, missed)}{_why(summary, bracket)}"
        text = f"{_users(held.load)} {_promises(objectives, held.load == 1)}, {no_longer}."
    return f"Probably {text}" if bracket.open_ends else text[0].upper() + text[1:]


def _promises(objectives: tuple[Objective, ...], one: bool) -> str:
    """What `one` user, or several, get."""
    gets: list[str] = []
    others: list[str] = []
    for objective in objectives:
        limit, q = format_seconds(objective.limit), objective.statistic
        if objective.judged is None:
            others.append(f"{'sees' if one else 'see'} at most {format_share(1 - objective.q)} of the requests fail")
        elif objective.metric == "ttft":
            gets.append(f"{'the' if one else 'their'} first token within {limit} ({q})")
        elif objective.metric == "tpot":
            gets.append(f"a further token every {limit} ({q})")
        else:
            others.append(f"{'keeps' if one else 'keep'} {objective.text}")
    verb = "gets" if one else "get"
    return in_words([*([f"{verb} {in_words(gets)}"] if gets else []), *others])


def _users(load: float | None) -> str:
    return "1 user" if load == 1 else f"{load_text(load)} users"


def _worst(load: LoadJudgement) -> Judgement:
    """Of the objective that is missed by most."""
    return min(load.objectives, key=lambda each: (each.share.value or 0.0) - each.objective.q)


def _measured(summary: RunSummary, load: LoadJudgement) -> str:
    """What was measured at a load that misses, of the objective that is missed by most."""
    objective, stage = _worst(load).objective, summary.at(load.label)
    assert stage is not None
    if objective.judged is None:
        return f" ({_number(stage.estimate('failure_share'), 'share')})"
    estimate = stage.estimate(objective.judged.name, objective.statistic)
    if estimate.value is None:
        return ""
    if math.isinf(estimate.value):
        return f" ({format_share(stage.value('failure_share'))} of the requests fail)"
    named = f"{objective.metric.upper()} {objective.statistic} " if len(load.objectives) > 1 else ""
    return f" ({named}{_number(estimate, 's')})"


def _why(summary: RunSummary, bracket: Bracket) -> str:
    """What changes from the load that is held to the one that is not, as far as it is known."""
    assert bracket.held is not None
    assert bracket.missed is not None
    above = f": above {load_text(bracket.held.load)}, "
    below, beyond = summary.at(bracket.held.label), summary.at(bracket.missed.label)
    assert below is not None
    assert beyond is not None
    failed = beyond.value("failure_share") or 0.0
    if failed > 1 - _worst(bracket.missed).objective.q:
        _, worst = max((count, outcome) for outcome, count in beyond.outcomes.items() if is_failure(outcome))
        return f"{above}requests fail, most of them as {worst.replace('_', ' ')}"
    part = limit_of(_worst(bracket.missed).objective, [below], [beyond]).part
    if part is not None:
        return f"{above}most of the added time is {part}"
    waiting = [stage.gauges["requests_waiting"].mean for stage in (below, beyond) if "requests_waiting" in stage.gauges]
    if len(waiting) == 2 and waiting[1] >= max(1.0, 2 * waiting[0]):
        return f"{above}requests wait at the server (about {waiting[1]:.0f} at a time)"
    return ""


def _open(end: LoadJudgement) -> str:
    """`20 users (97 % [93.1, 98.9] of the requests within, 95 % needed; about 20 s more would decide)`"""
    undecided = [each for each in end.objectives if each.answer == "not enough evidence"]
    worst = min(undecided, key=lambda each: (each.share.value or 0.0) - each.objective.q)
    if worst.share.value is None:
        return f"{_users(end.load)} ({worst.share.missing and worst.share.missing.value})"
    need = "" if end.seconds_needed is None else f"; about {math.ceil(end.seconds_needed)} s more would decide"
    within = f"{_number(worst.share, 'share')} of the requests within, {format_share(worst.objective.q)} needed"
    return f"{_users(end.load)} ({within}{need})"


def _saturation(summary: RunSummary) -> list[str]:
    stages = sorted(summary.stages, key=lambda stage: stage.load)
    rates = [(stage.label, stage.value("throughput")) for stage in stages]
    label = saturated_from([(label, rate) for label, rate in rates if rate])
    stage = summary.at(label) if label is not None else None
    if stage is None:
        return []
    return [f"Throughput no longer grows above {stage.label} ({_number(stage.estimate('throughput'), 'tokens/s')})."]


def _replicas(bracket: Bracket, peak: int) -> str:
    """As few as leave each replica fewer users than were missed, and as many as leave it no more than were held."""
    assert bracket.held is not None
    most = math.ceil(peak / bracket.held.load)
    least = 1
    while bracket.missed is not None and math.ceil(peak / least) >= bracket.missed.load:
        least += 1
    if bracket.missed is None:
        return f"{peak} users: 1 replica." if most == 1 else f"{peak} users: at most about {most} replicas."
    least = min(least, most)
    if least == most:
        return f"{peak} users: about {counted(most, 'replica')}."
    return f"{peak} users: about {least} {'or' if most == least + 1 else 'to'} {most} replicas."


def _client(summary: RunSummary) -> tuple[str, ...]:
    """By calibration, where there is one."""
    if summary.client_error is None:
        return ("This client's own error is not known: enginebench calibrate --quick measures it.",)
    return (f"This client's own error: {format_error(summary.client_error).removeprefix('± ')}.",)


def _number(estimate: Estimate, unit: str) -> str:
    """With its interval, or marked as rough."""
    assert estimate.value is not None
    column = column_unit(unit, [estimate.value])
    low, high = interval_of(estimate, column)
    text = f"{column.write(estimate.value)} {column.name}"
    return f"about {text}" if low is None else f"{text} [{low}, {high}]"
