"""The sentence of a report: what was served, which engine holds more users within the objectives or serves more tokens,
by how much, and whether that may be claimed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from analysis.compare.capacity import load_text
from analysis.compare.comparison import Comparison, same_bracket
from analysis.compare.engine_runs import DECIDING, EngineRuns, engine_runs_of, since_due
from analysis.compare.likeness import number_format
from analysis.compare.metric_comparison import MetricComparison
from analysis.compare.tables import ratio_text
from analysis.stats.repeats import REPEATS
from analysis.summary.run_summary import RunSummary
from records.formatting import format_estimate, format_ratio, format_seconds, format_share, in_words, significant
from records.rules import FAILURES_BORNE

NAMED = 3  # engines behind the best one that a headline names; the table has all


def headline(comparison: Comparison, summaries: Sequence[RunSummary]) -> str:
    engines = {engine.label: engine for engine in engine_runs_of(summaries)}
    scenarios = next((each for each in comparison.findings if each.kind == "scenarios_differ"), None)
    if scenarios is not None and not comparison.loads:
        return f"Nothing is compared: {scenarios.evidence.partition(', and')[0]}."
    if len(engines) == 1:
        return _alone(comparison, next(iter(engines.values())))
    if comparison.stage is None and not comparison.capacities:
        return "These runs have no stage in common, so nothing is compared."
    if any(capacity.met is not None for capacity in comparison.capacities):
        sentence = _capacities(comparison)
    elif comparison.capacities:
        sentence = f"No engine is known to meet {comparison.capacities[0].slo} at any load"
        sentence += f"; {_tokens(comparison, engines)}" if comparison.stage is not None else ""
    else:
        sentence = _tokens(comparison, engines)
    if (tokens := _no_difference(comparison)) is not None:
        verdict = "Both are alike" if tokens.verdict == "alike" else "No difference is shown"
        claim = f", over {min(comparison.runs.values())} repeats ({tokens.why})."
        sentence = f"{verdict}: {sentence}"
    else:
        claim = _claim(comparison)
    return " ".join([f"{sentence}{claim}", *_first_tokens(comparison, engines), *_answers(comparison)])


def _no_difference(comparison: Comparison) -> MetricComparison | None:
    """The tokens of two engines that were repeated often enough and do not differ, where that is all that speaks
    against a winner."""
    best, *others = comparison.engines
    if comparison.capacities or len(others) > 1 or comparison.unlike or min(comparison.runs.values()) < REPEATS:
        return None
    tokens = comparison.of(comparison.stage, best, DECIDING, others[0])
    if comparison.why is None or tokens is None or tokens.why is None or tokens.why not in comparison.why:
        return None
    return tokens if tokens.verdict in {"alike", "not shown"} else None


def _alone(comparison: Comparison, engine: EngineRuns) -> str:
    """A single engine has no rival: say what it served, and how long its users waited."""
    capacity = comparison.capacity(engine.label)
    search = engine.runs[0].search
    if search is not None and len(engine.runs) == 1:
        return f"{engine.label}: {search.sentence}"
    if comparison.stage is None:
        return f"{engine.label} was measured in stages that its runs do not share."
    served = _served(engine, comparison.stage)
    return f"{capacity.sentence} {served}" if capacity is not None else served


def _served(engine: EngineRuns, stage: str) -> str:
    view = engine.at(stage)[-1]
    if not view.ok:
        return f"{engine.label} answered no request at {stage}."
    rate = engine.estimate(stage, DECIDING)
    if rate.value is None:
        served = f"{engine.label} answered {significant(view.value('achieved_rate') or 0.0)} requests/s at {stage}"
    else:
        served = f"{engine.label} served {format_estimate(rate.value, rate.low, rate.high)} output tokens/s at {stage}"
    share = view.value("failure_share")
    if share is None or share > FAILURES_BORNE:
        return f"{served}, and {format_share(share)} of the requests failed."
    ttft = "ttft_user" if since_due(engine.runs) else "ttft"
    whole = view.metrics[ttft].n == 0
    metric, came = ("e2e_user", "answers were complete") if whole else (ttft, "first tokens came")
    median, tail = (engine.value(stage, metric, p) for p in ("p50", "p95"))
    if median is None:
        return f"{served}."
    rest = "" if whole or tail is None else f", 95 % within {format_seconds(tail)}"
    return f"{served}; half of the {came} within {format_seconds(median)}{rest}."


def _answers(comparison: Comparison) -> list[str]:
    """A sentence for each engine that does not give the baseline's answers; of many only who they are."""
    sentences = {each.engine: each.sentence(comparison.baseline) for each in comparison.answers}
    different = [engine for engine, sentence in sentences.items() if sentence is not None]
    if len(different) > NAMED:
        return [f"{in_words(different)} give other answers than {comparison.baseline}."]
    return [sentence for sentence in sentences.values() if sentence is not None]


def _capacities(comparison: Comparison) -> str:
    """`a holds 20 users within TTFT p95 ≤ 500 ms; b 14 (1.43× [1, 1.71])`"""
    best, *others = comparison.engines
    first = comparison.capacity(best)
    assert first is not None, "the best one meets the objectives somewhere"
    sentence = f"{best} holds {load_text(first.met, first.unit)} within {first.slo}"
    if first.missed is None:
        sentence += f" ({first.between})" if first.between else ", the most that was measured"
    alike = [other for other in others if same_bracket(comparison, best, other)]
    if len(alike) >= NAMED:  # one of them says it for all: the next in tokens
        sentence += f", and so do {len(alike)} others"
        others = [alike[0], *(other for other in others if other not in alike)]
    rest = [_behind(comparison, best, other) for other in others[:NAMED]]
    rest += [f"the other {len(others) - NAMED} no more"] if len(others) > NAMED else []
    return f"{sentence}; {'; '.join(rest) if any(', and ' in part for part in rest) else in_words(rest)}"


def _behind(comparison: Comparison, best: str, other: str) -> str:
    capacity, ratio = comparison.capacity(other), comparison.capacity_ratio(best, other)
    if capacity is None or capacity.met is None:
        missed = None if capacity is None else capacity.missed
        them = comparison.capacities[0].them
        if missed is None:
            return f"{other} is not shown to meet {them} at any load"
        least = capacity is not None and missed == min(judgement.load for judgement in capacity.loads)
        where = ", the least that was measured" if least else f" and is not shown to meet {them} at less"
        return f"{other} misses {them} at {load_text(missed)}{where}"
    held = f"{other} {load_text(capacity.met)}"
    tokens = comparison.of(comparison.stage, best, DECIDING, other)
    if same_bracket(comparison, best, other) and tokens is not None and tokens.ratio.value is not None:
        served = f"{best} serves {ratio_text(tokens.ratio)} its tokens at {comparison.stage}"
        return f"{other} as many ({served})"
    if ratio is None or ratio.ratio.value is None:
        return held
    if not ratio.ratio.low and ratio.ratio.high == math.inf:  # nothing is known of the loads between
        return f"{other} is shown to hold {load_text(capacity.met)}"
    return f"{held} ({ratio_text(ratio.ratio)})"


def _tokens(comparison: Comparison, engines: Mapping[str, EngineRuns]) -> str:
    """`a served 1.6× [1.4, 1.8] the tokens of b at 8 users`"""
    stage = comparison.stage
    best, *others = comparison.engines
    assert stage is not None, "the engines have a stage in common"
    if not engines[best].value(stage, DECIDING):
        return f"None of them served a token at {stage}"
    if len(others) == 1:
        sentence = f"{best} served {_times(comparison, best, others[0], 'the tokens of ')} at {stage}"
    else:
        sentence = f"{best} served the most tokens at {stage}: {in_words(_margins(comparison, best, others))}"
    formats = {name for engine in engines.values() if (name := number_format(engine.runs[0]))}
    return sentence + (f" ({' against '.join(sorted(formats))})" if len(formats) > 1 else "")


def _first_tokens(comparison: Comparison, engines: Mapping[str, EngineRuns]) -> list[str]:
    """What the users of two engines wait for, where tokens decide."""
    best, *others = comparison.engines
    if comparison.capacities or len(others) > 1 or comparison.stage is None:
        return []
    ttft = "ttft_user" if since_due([run for engine in engines.values() for run in engine.runs]) else "ttft"
    ours, theirs = (engines[label].value(comparison.stage, ttft, "p95") for label in (best, others[0]))
    if ours is None or theirs is None or math.inf in (ours, theirs):
        return []
    times = f"{format_seconds(ours)}, those of {others[0]} within {format_seconds(theirs)}"
    return [f"95 % of its first tokens came within {times}."]


def _margins(comparison: Comparison, best: str, others: Sequence[str]) -> list[str]:
    """How far each lies behind the first; of many the nearest ones, and the range of the rest."""
    rest = [comparison.of(comparison.stage, best, DECIDING, other) for other in others[NAMED:]]
    ratios = [tokens.ratio.value for tokens in rest if tokens is not None and tokens.ratio.value is not None]
    if len(ratios) < 2 or len(ratios) < len(rest):
        return [_times(comparison, best, other, "those of ") for other in others]
    ends = " to ".join(format_ratio(ratio, None, None) for ratio in (min(ratios), max(ratios)))
    named = [_times(comparison, best, other, "those of ") for other in others[:NAMED]]
    return [*named, f"{ends} those of the other {len(rest)}"]


def _times(comparison: Comparison, best: str, other: str, of: str) -> str:
    tokens = comparison.of(comparison.stage, best, DECIDING, other)
    if tokens is None or tokens.ratio.value is None or math.isinf(tokens.ratio.value):
        return f"all tokens and {other} none" if of.startswith("the") else f"{other} none"
    return f"{ratio_text(tokens.ratio)} {of}{other}"


def _claim(comparison: Comparison) -> str:
    runs = min(comparison.runs.values())
    if comparison.why is None:
        return f", over {runs} repeats."
    if runs >= REPEATS:
        return f". No winner is named: {comparison.why}."
    which = " in this run" if runs == 1 else f" in these {runs} runs"
    return f"{which}. No winner is named: {comparison.why}."
