"""The answer of a document as one sentence of at most 30 words, with the numbers in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from enginebench.analysis.answer import (
    Answer,
    BenchAnswer,
    BestAnswer,
    BurstAnswer,
    CalibrationAnswer,
    CapacityAnswer,
    Contender,
    GateAnswer,
    Lead,
    NoAnswer,
    RefereeAnswer,
    Replicas,
    ReplicasAnswer,
    SpeedAnswer,
    StartAnswer,
    TuneAnswer,
    TuneOutcome,
)
from enginebench.analysis.plan.not_planned import NotPlanned
from enginebench.analysis.verdict.capacity import Capacity
from enginebench.analysis.verdict.gate import MIN_RUNS
from enginebench.analysis.verdict.slo_verdict import Status
from enginebench.analysis.write.cells import MAX_NAMES, change_text, clean, load_number
from enginebench.records.formatting import (
    counted,
    format_error,
    format_money,
    format_ratio,
    format_seconds,
    format_share,
    in_words,
    significant,
)
from enginebench.records.metrics import OUTPUT_RATE, TTFT_PARTS, Quantity
from enginebench.records.slo import Objective
from enginebench.records.view import Estimate

DELAYS = ("the load generator", "the server's queue", "reading the prompt (prefill)", "delivery to the client")
UNSURE = " (not confirmed)"
GROWN = dict(zip(TTFT_PARTS, DELAYS, strict=True))
NO_ANSWER = {
    NoAnswer.NOTHING_MEASURED: "Nothing was measured.",
    NoAnswer.DIFFERENT_WORKLOADS: "The runs had different workloads, so their numbers are not compared.",
    NoAnswer.NO_COMMON_LOAD: "The engines have no load in common, so they are not compared.",
    NoAnswer.ALL_FAILED: "Every request failed.",
    NoAnswer.NONE_ENDED: "No request ended while it was measured.",
}

NOT_PLANNED = {
    NotPlanned.NOT_MEASURED: "the capacity was not measured",
    NotPlanned.MISSED: "every measured load misses the SLO",
    NotPlanned.OTHER_UNIT: "the capacity was measured in another unit",
}


def sentence(answer: Answer) -> str:
    match answer:
        case CapacityAnswer():
            return _capacity(answer)
        case BestAnswer():
            return _best(answer)
        case SpeedAnswer():
            return _speed(answer)
        case ReplicasAnswer():
            return _replicas(answer)
        case BurstAnswer():
            return _burst(answer)
        case GateAnswer():
            return _gate(answer)
        case BenchAnswer():
            return _bench(answer)
        case CalibrationAnswer():
            rate, error = significant(answer.chunk_rate), format_error(answer.error).removeprefix("± ")
            return f"Up to {rate} chunks/s the load generator's own error is at most {error} at p99."
        case StartAnswer():
            return _start(answer)
        case TuneAnswer():
            return _tune(answer)
        case RefereeAnswer():
            return _referee(answer)
        case NoAnswer():
            return NO_ANSWER[answer]


def load_text(load: float, unit: str) -> str:
    """`8 users`, `1 user`, `2.5 req/s`"""
    return f"{load_number(load)} {'user' if unit == 'users' and load == 1 else unit}"


def _capacity(answer: CapacityAnswer) -> str:
    capacity = answer.capacity
    load, beyond, unit = capacity.load, capacity.beyond, capacity.unit
    slo = capacity.objectives[0].text if len(capacity.objectives) == 1 else "the SLO"
    if load is None and beyond is None:
        if capacity.uncounted:
            return f"Whether any load meets {slo} cannot be judged: the tokens of the answers are unknown."
        return f"It is unknown whether any load meets {slo}: too few outcomes were measured."
    missed = _evidence(capacity, beyond, answer.beyond)
    unknown = "" if capacity.unknown is None else f"the outcome at {load_number(capacity.unknown)} is unknown"
    if load is None:
        text = f"{_verb(beyond or 0.0, unit, 'misses', 'miss')} {slo}{missed}"
        return f"{text}; {unknown or 'lower loads were not tested'}."
    pairs = zip(capacity.objectives, answer.at_load, strict=False)
    within = [None if value is None or value > objective.limit else value for objective, value in pairs]
    met = f"{_verb(load, unit, 'meets', 'meet')} {slo}{_evidence(capacity, load, within)}"
    if beyond is None:
        return f"{met}; {unknown or 'higher loads were not tested'}."
    pairs = zip(capacity.objectives, answer.beyond, strict=False)
    above = [None if value is None or value <= objective.limit else value for objective, value in pairs]
    values = in_words(_percentiles(capacity.objectives, above))
    remarks = ", ".join([*filter(None, [values]), *["not confirmed"] * (not capacity.missed_confirmed)])
    text = f"{met}; {load_number(beyond)} do{'es' if beyond == 1 else ''} not{f' ({remarks})' if remarks else ''}."
    if answer.bottleneck is None:
        return text
    return f"{text} At {load_number(beyond)} {GROWN[answer.bottleneck.name]} dominates TTFT."


def _verb(load: float, unit: str, one_load: str, several: str) -> str:
    return f"{load_text(load, unit)} {one_load if load == 1 else several}"


def _evidence(capacity: Capacity, load: float | None, values: Sequence[float | None]) -> str:
    """` (TTFT p95 80.3 ms, TPOT p95 27.1 ms, 46 of 46 requests, not confirmed)`"""
    verdict = capacity.at(load)
    parts = _percentiles(capacity.objectives, values)
    if verdict is not None and verdict.slo.share is not None:
        parts.append(f"{round(verdict.slo.share * verdict.slo.n):,} of {verdict.slo.n:,} requests")
    sure = capacity.certified or (verdict is not None and verdict.slo.confirmed)
    parts.append("confirmed" if sure else "not confirmed")
    return f" ({', '.join(parts)})" if parts else ""


def _percentiles(objectives: Sequence[Objective], values: Sequence[float | None]) -> list[str]:
    """Write the limited latencies: `80.3 ms`; if there are several, with names: `TTFT p95 80.3 ms`."""
    titles = [f"{objective.text.partition(' ≤')[0]} " if len(objectives) > 1 else "" for objective in objectives]
    pairs = zip(titles, values, strict=False)
    return [f"{title}{format_seconds(value)}" for title, value in pairs if value is not None]


def _best(answer: BestAnswer) -> str:
    best, following = answer.best, answer.next
    capacities = (best.capacity, following.capacity)
    if best.capacity is not None and following.capacity is not None:
        ends = best.capacity.load, following.capacity.load, following.capacity.beyond
        if ends[0] != ends[1] and ends != (answer.load, None, answer.load):
            return _by_capacity(answer)
    first, second = clean(best.name), clean(following.name)
    place, slo = f"At {clean(answer.stage)}", _both(best, following)
    sustained = None if best.capacity is None else best.capacity.load
    if sustained is not None and answer.load > sustained:  # higher than the load that both sustain
        sure = "" if all(capacity is not None and capacity.met_confirmed for capacity in capacities) else UNSURE
        place = f"Both meet the SLO up to {load_text(sustained, answer.unit)}{sure}; at {clean(answer.stage)}"
        slo = ""
    if answer.speed != OUTPUT_RATE:
        return f"{place} {_latencies(answer)}{slo}."
    tokens = [_tokens(contender.speed) for contender in (best, following)]
    if answer.significant is False:
        return f"{place} {first} and {second} serve {tokens[0]} and {tokens[1]}: no significant difference{slo}."
    if best.speed.value is None:
        return f"{place} no output tokens were measured for {first}{slo}."
    ratio = answer.ratio.value
    if ratio is None or math.isinf(ratio):
        return f"{place} {first} serves {tokens[0]}, {second}{_rank(answer, ',')} {tokens[1]}{slo}."
    lead = f"{_ratio(answer.ratio)} as many as {second}{_rank(answer)}{_runs(answer)}"
    return f"{place} {first} serves {tokens[0]}, {lead}{slo}."


def _rank(answer: BestAnswer, end: str = "") -> str:
    """Say that the second of several candidates is the next best; with two candidates, that is obvious."""
    return f", the next best{end}" if answer.candidates > 2 else ""


def _latencies(answer: BestAnswer) -> str:
    """Compare engines by a latency: `TTFT p50 of a is 833 ms, 27 % [11, 43] lower than that of b, the next best`."""
    contenders = (answer.best, answer.next)
    first, second = (clean(contender.name) for contender in contenders)
    values = [contender.speed.value for contender in contenders]
    ours, theirs = ("unknown" if value is None else format_seconds(value) for value in values)
    if answer.significant is False:
        return f"{answer.speed.title} of {first} and {second} is {ours} and {theirs}: no significant difference"
    text = f"{answer.speed.title} of {first} is {ours}"
    if answer.ratio.value is None or math.isinf(answer.ratio.value):
        return f"{text}, of {second}{_rank(answer, ',')} {theirs}"
    return f"{text}, {_lower(answer.ratio)} than that of {second}{_rank(answer)}{_runs(answer)}"


def _lower(change_by: Estimate, share: bool = False) -> str:
    """`27 % [11, 43] lower`"""
    change, interval = change_text(change_by, share)
    size, _, direction = change.rpartition(" ")
    return " ".join(filter(None, (size, interval, direction)))


def _by_capacity(answer: BestAnswer) -> str:
    best, following = answer.best, answer.next
    first, second = clean(best.name), clean(following.name)
    text = f"{first} meets the SLO at {_highest(best.capacity)}"
    capacity = following.capacity
    if capacity is not None and capacity.load is not None:
        tied = [second, *map(clean, answer.tied)]
        if answer.tied:
            named = in_words(tied) if len(tied) <= MAX_NAMES else f"{len(tied)} others"
            text += f" and {named} at {load_number(capacity.load)}"
        else:
            text += f" and {second}{_rank(answer, ',')} at {load_number(capacity.load)}{_remarks(capacity)}"
    elif capacity is not None and capacity.beyond is not None:
        text += f"; {second}{_rank(answer, ',')} misses it at {load_text(capacity.beyond, capacity.unit)}"
    if answer.ratio.value is None or math.isinf(answer.ratio.value):
        return f"{text}."
    text += f"; at {clean(answer.stage)}"
    if answer.significant is False:
        measure = "tokens/s have" if answer.speed == OUTPUT_RATE else f"{answer.speed.title} has"
        return f"{text} their {measure} no significant difference."
    if answer.speed != OUTPUT_RATE:
        return f"{text} {answer.speed.title} of {first} is {_lower(answer.ratio)}{_runs(answer)}."
    rank = _rank(answer) if answer.tied else ""
    return f"{text} {first} serves {_ratio(answer.ratio)} the tokens/s of {second}{rank}{_runs(answer)}."


def _highest(capacity: Capacity | None) -> str:
    if capacity is None or capacity.load is None:
        return "no load"
    return f"{load_text(capacity.load, capacity.unit)}{_remarks(capacity)}"


def _remarks(capacity: Capacity) -> str:
    """` (the highest tested, not confirmed)`"""
    open_ended = capacity.beyond is None and capacity.unknown is None
    remarks = ["the highest tested"] * open_ended + ["not confirmed"] * (not capacity.met_confirmed)
    return f" ({', '.join(remarks)})" if remarks else ""


def _both(best: Contender, following: Contender) -> str:
    verdicts = [contender.slo for contender in (best, following)]
    known = [verdict for verdict in verdicts if verdict is not None and verdict.status is not Status.NOT_MEASURED]
    if len(known) < 2:
        return ""
    remarks = ["" if verdict.confirmed else UNSURE for verdict in known]
    statuses = [verdict.status for verdict in known]
    if statuses[0] is statuses[1]:
        text = "both meet the SLO" if statuses[0] is Status.MET else "neither meets the SLO"
        return f"; {text}{max(remarks)}"
    names = [clean(contender.name) for contender in (best, following)]
    met = statuses.index(Status.MET)
    return f"; {names[met]} meets the SLO{remarks[met]}, {names[1 - met]} does not{remarks[1 - met]}"


def _tokens(estimate: Estimate) -> str:
    return "an unknown number of tokens/s" if estimate.value is None else f"{significant(estimate.value)} tokens/s"


def _ratio(estimate: Estimate) -> str:
    return format_ratio(estimate.value or 0.0, *estimate.ends)


def _runs(answer: BestAnswer) -> str:
    """Write the number of runs behind an untested ratio."""
    if answer.significant is not None:
        return ""
    return " (one run each)" if answer.repeats <= 1 else f" ({answer.repeats} runs each, not tested)"


def _speed(answer: SpeedAnswer) -> str:
    engine, title, ttft = clean(answer.engine), answer.latency.title, answer.ttft.value
    tokens = answer.user_tokens.value
    if ttft is None:
        parts = ["the first token was not measured"]
    else:
        parts = ["at least half of the requests fail" if math.isinf(ttft) else f"{title} is {format_seconds(ttft)}"]
    parts += [] if tokens is None else [f"each user gets {significant(tokens)} tokens/s"]
    text = f"At {clean(answer.stage)} {in_words(parts)}"
    if answer.tokens.value is not None:
        place = "" if answer.busiest == answer.stage else f" at {clean(answer.busiest)}"
        text += f"; {engine} serves {significant(answer.tokens.value)} tokens/s in all{place}"
    return f"{text}."


def _replicas(answer: ReplicasAnswer) -> str:
    peak = load_text(answer.peak.value, answer.peak.unit)
    planned = [candidate for candidate in answer.candidates if candidate.number is not None]
    without = [candidate for candidate in answer.candidates if candidate.number is None]
    if not planned:
        reasons = _by_reason(without)
        texts = [f"{reason} ({names})" if len(reasons) > 1 else reason for reason, names in reasons.items()]
        return f"No number of replicas for {peak} is known: {'; '.join(texts)}."
    first = planned[0]
    count = counted(first.number or 0, "replica")
    capacity = first.capacity if first.count is not None else None
    if capacity is not None and capacity.beyond is None and capacity.unknown is None:  # no higher load was tested
        count = f"up to {count}"
    if len(answer.candidates) == 1:
        return f"Plan {count} for {peak}{_month(first, ' a month')}{_unsure(first)}."
    equal = [candidate for candidate in planned if (candidate.number, candidate.month) == (first.number, first.month)]
    names = in_words([clean(candidate.name) for candidate in equal], "or")
    names = names if len(equal) <= MAX_NAMES else f"{clean(first.name)} or of {len(equal) - 1} others"
    text = f"Plan {count} of {names} for {peak}{_month(first, ' a month')}{_unsure(first)}"
    if len(planned) > len(equal) == 1:
        second = planned[1]
        rank = ", the next best," if len(planned) > 2 else ""
        remark = _unsure(second)
        if remark == UNSURE and not _unsure(first):
            remark = ", which is not confirmed"  # in brackets, it may be read as a remark on both plans
        text += f"; {clean(second.name)}{rank} needs {second.number:,}{_month(second)}{remark}"
    not_planned = [f"{names} cannot be planned: {reason}" for reason, names in _by_reason(without).items()]
    return f"{'; '.join([text, *not_planned])}."


def _by_reason(candidates: Sequence[Replicas]) -> dict[str, str]:
    """Return the names of the candidates without a number by the reason."""
    groups: dict[str, list[str]] = {}
    for candidate in candidates:
        groups.setdefault(NOT_PLANNED[candidate.missing or NotPlanned.NOT_MEASURED], []).append(clean(candidate.name))
    return {why: in_words(names) if len(names) <= 2 else f"{len(names)} others" for why, names in groups.items()}


def _month(candidate: Replicas, per: str = "") -> str:
    return "" if candidate.month is None else f", {format_money(candidate.month)}{per}"


def _unsure(candidate: Replicas) -> str:
    if candidate.count is None:
        return " (simulated; fewer may be enough)" if candidate.at_most else " (simulated)"
    return "" if candidate.confirmed else UNSURE


def _burst(answer: BurstAnswer) -> str:
    """Write the recovery; for an outage, which has no recorded end, it counts from the command."""
    kind = "outage" if answer.command else "burst"
    count, total = answer.total if answer.absorbed else answer.unabsorbed, answer.total
    both = f"both {kind}s" if total == 2 else f"all {total} {kind}s"
    disruptions = f"the {kind}" if total == 1 else both if count == total else f"{count} of the {total} {kind}s"
    felt = [] if answer.peak is None else [f"the first token takes up to {format_seconds(answer.peak)}"]
    felt += [counted(answer.failed, "request") + (" fails" if answer.failed == 1 else " fail")] * bool(answer.failed)
    peak = " and ".join(felt) or "the first token was not measured"
    if answer.absorbed:
        kept = "The SLO is met" if answer.judged else "Latency stays as it was"
        return f"{kept} in {disruptions}: {peak} (one run)."
    text = f"{'The SLO is missed' if answer.judged else 'Latency rises'} in {disruptions} ({peak}) and"
    if answer.recovered is None:
        never = "not met again" if answer.judged else "does not return to what it was"
        after = "" if answer.within is None else f"{format_share(answer.within)} within limits afterwards; "
        return f"{text} {never} ({after}one run)."
    again = "met again" if answer.judged else "is back to what it was"
    seconds = significant(answer.recovered, 2) if answer.recovered < 100 else f"{answer.recovered:.0f}"
    most, disruption = ("", "it") if total == 1 else ("up to ", "each")
    if answer.command:
        return f"{text} {again} {most}{seconds} s after {disruption} began (one run)."
    if answer.recovered == 0:
        return f"{text} not afterwards (one run)."
    return f"{text} for {most}{seconds} s after {disruption} (one run)."


def _gate(answer: GateAnswer) -> str:
    limit = format_share(answer.limit)
    made = answer.checks - answer.missing
    if answer.passed:
        marks = [counted(answer.warnings, "warning")] if answer.warnings else []
        marks += [f"{answer.unclear:,} unclear"] if answer.unclear else []
        marked = f"; {in_words(marks)}" if marks else ""
        return f"PASSED: no regression of more than {limit} in {counted(made, 'comparison')}{marked}."
    if not answer.regressions and min(answer.runs) < MIN_RUNS:
        now, before = answer.runs
        return f"FAILED: a gate needs {MIN_RUNS} runs of each version; there are {now}, and {before} of the baseline."
    if not answer.regressions:
        return f"FAILED: {counted(answer.missing, 'comparison')} could not be made; {made:,} passed."
    worst = answer.regressions[0]
    assert worst.column is not None, "a regression is of a metric"
    title = worst.column.full_title if isinstance(worst.column.measure, Quantity) else worst.column.title
    title += "" if worst.column.relative else " share"
    name = f"{title}{f' of {clean(worst.engine)}' if worst.engine else ''} at {clean(worst.stage)}"
    if math.isinf(worst.change.value or 0.0) and worst.baseline.value == 0:
        text = f"FAILED: {name} is up from 0"
    elif math.isinf(worst.change.value or 0.0):
        text = f"FAILED: {name} falls among failed requests"
    else:
        text = f"FAILED: {name} is {_lower(worst.change, not worst.column.relative)} than the baseline"
    failed, passed = len(answer.regressions), made - len(answer.regressions)
    more = f"; {failed - 1} more comparison{'s' if failed > 2 else ''} failed" if failed > 1 else ""
    return f"{text} (limit {limit}){more}. {counted(passed, 'other comparison')} passed."


def _bench(answer: BenchAnswer) -> str:
    decode, prefill = answer.decode, answer.prefill
    text = f"{clean(decode.best)} decodes {_lead(decode)}"
    if prefill is None:
        return f"{text}."
    other = "" if prefill.best == decode.best else f"; {clean(prefill.best)}"
    return f"{text}{other or ' and'} prefills prompts of {answer.prompt} tokens at {_lead(prefill)}."


def _lead(lead: Lead) -> str:
    """Write `21.1 tokens/s (1.9× [1.5, 2.4] transformers)`."""
    tokens = _tokens(lead.speed)
    if lead.next is None or lead.ratio.value is None:
        return tokens
    following = clean(lead.next)
    if lead.significant is False:
        return f"{tokens} (not significantly faster than {following})"
    return f"{tokens} ({_ratio(lead.ratio)} {following}{'' if lead.significant else ', not tested'})"


def _start(answer: StartAnswer) -> str:
    times = [f"{clean(name)} {format_seconds(seconds)}" for name, seconds in answer.seconds[:MAX_NAMES]]
    others = len(answer.seconds) - len(times)
    more = f"; {counted(others, 'other')} take{'s' if others == 1 else ''} longer" if others else ""
    return f"From the launch to the first answer it takes {in_words(times)}{more}."


def _tune(answer: TuneAnswer) -> str:
    winner, default = clean(answer.winner), clean(answer.default)
    variants = counted(answer.variants, "variant")
    if answer.ratio.value is None and answer.outcome is TuneOutcome.OPEN:
        if answer.winner:
            return f"{winner} leads {variants}; about {answer.more} more rounds may confirm it."
        return f"The race is not over: {answer.left} of {variants} are left."
    if not winner:
        return f"No variant beats {default}, which led {variants} in the race."
    ratio = f"{_ratio(answer.ratio)} the {answer.measure} of {default}"
    fresh = counted(answer.ratio.n, "fresh pair")
    if answer.outcome is TuneOutcome.CONFIRMED and answer.unmet:
        return f"{winner} serves requests within the SLO and {default} none, confirmed in {fresh} of runs."
    if answer.outcome is TuneOutcome.CONFIRMED:
        return f"{winner} has {ratio}, confirmed in {fresh} of runs."
    if answer.outcome is TuneOutcome.NONE:
        return f"No variant beats {default}: {winner}, the leader of the race, has {ratio} in {fresh} of runs."
    return f"{winner} has {ratio} in {fresh} of runs: not confirmed; about {answer.more} more rounds are needed."


def _referee(answer: RefereeAnswer) -> str:
    tool, true = clean(answer.tool), f"{answer.title} of {format_seconds(answer.true)}"
    if answer.exit_code != 0:
        tool += f" (exit code {answer.exit_code})"
    if answer.counted is None:
        return f"{tool} left no results with answered requests: compare what it printed with the true {true}."
    if answer.reported is None:
        text = f"{tool} reports no {answer.title}"
    else:
        error = answer.reported - answer.true
        size = f"{format_seconds(abs(error))} too {'low' if error < 0 else 'high'}"
        text = f"{tool} reports {answer.title} {size} (true: {format_seconds(answer.true)})"
    return f"{text} and counts {answer.counted:,} of {counted(answer.answered, 'answered request')}."
