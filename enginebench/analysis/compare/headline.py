"""The sentence of a report: what was served, which engine holds more users within the objectives or serves more tokens,
by how much, and whether that may be claimed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from enginebench.analysis.compare.capacity import load_text
from enginebench.analysis.compare.comparison import Comparison, same_bracket
from enginebench.analysis.compare.engine_runs import DECIDING, EngineRuns, engine_runs_of, since_due
from enginebench.analysis.compare.likeness import number_format
from enginebench.analysis.compare.metric_comparison import MetricComparison
from enginebench.analysis.compare.tables import estimate_text, ratio_text
from enginebench.analysis.stats.repeats import REPEATS
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import (
    counted,
    format_estimate,
    format_ratio,
    format_share,
    in_words,
    significant,
)
from enginebench.records.rules import FAILURES_BORNE
from enginebench.records.view import Estimate

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
        sentences = _capacities(comparison)
    elif comparison.capacities:
        sentences = [f"No engine is known to meet {comparison.capacities[0].slo} at any load"]
        sentences[0] += f"; {_tokens(comparison, engines)}" if comparison.stage is not None else ""
        sentences[0] += f"{_repeated(comparison)}."
    elif (tokens := _no_difference(comparison)) is not None:
        verdict = "Both are alike" if tokens.verdict == "alike" else "No difference is shown"
        sentences = [f"{verdict}: {_tokens(comparison, engines)}{_repeated(comparison)} ({tokens.why})."]
        return " ".join([*sentences, *_first_tokens(comparison, engines), *_answers(comparison)])
    else:
        sentences = [f"{_tokens(comparison, engines)}{_repeated(comparison)}."]
    no_winner = [] if comparison.why is None else [f"No winner is named: {comparison.why}."]
    return " ".join([*sentences, *_first_tokens(comparison, engines), *no_winner, *_answers(comparison)])


def _no_difference(comparison: Comparison) -> MetricComparison | None:
    """The tokens of two engines that were repeated often enough and do not differ, where that is all that speaks
    against a winner."""
    best, *others = comparison.engines
    if len(others) > 1 or comparison.unlike or min(comparison.runs.values()) < REPEATS:
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
    metric, statistics = ("e2e_user", ("p50",)) if whole else (ttft, ("p50", "p95"))
    latencies = {statistic: engine.estimate(stage, metric, statistic) for statistic in statistics}
    parts = [f"{statistic} {_latency(found)}" for statistic, found in latencies.items() if found.value is not None]
    return f"{served}, with {'E2E' if whole else 'TTFT'} {in_words(parts)}." if parts else f"{served}."


def _answers(comparison: Comparison) -> list[str]:
    """Of one engine that does not give the baseline's answers how they differ, of several how many do."""
    different = [each for each in comparison.answers if each.sentence(comparison.baseline) is not None]
    if len(different) > NAMED:
        names = in_words([each.engine for each in different])
        return [f"{names} give other answers than {comparison.baseline}."]
    if len(different) > 1:
        counts = [f"{each.engine} {each.prompts - each.identical:,} of {each.prompts:,}" for each in different]
        return [f"Answers that differ from those of {comparison.baseline}: {in_words(counts)}."]
    return [sentence for each in different if (sentence := each.sentence(comparison.baseline)) is not None]


def _capacities(comparison: Comparison) -> list[str]:
    """`a holds 20 users within TTFT p95 ≤ 500 ms (24 miss it); b holds 10 (12 miss it): 2.0× [1.7, 2.4], over 3
    repeats.` Engines of one bracket share a sentence, and tokens decide between them."""
    best, *others = comparison.engines
    first = comparison.capacity(best)
    assert first is not None, "the best one meets the objectives somewhere"
    tied = [other for other in others if same_bracket(comparison, best, other)]
    behind = [other for other in others if other not in tied]
    held = f"{load_text(first.met, first.unit)} within {first.slo} ({first.beyond})"
    names = in_words([best, *tied]) if len(tied) <= NAMED else f"{best} and {len(tied)} others"
    sentence = f"{names} {_verb('hold', [best, *tied])} {held}"
    served = _served_more(comparison, best, tied if len(tied) <= NAMED else tied[:1])
    if served:
        sentences = [f"{sentence}.", f"{served}{_repeated(comparison)}."]
    elif len(others) == 1 and not tied:
        held = f"{sentence}; {_held(comparison, behind)}{_factor(comparison, best, behind[0])}"
        return [f"{held}{_repeated(comparison)}."]
    else:
        sentences = [f"{sentence}{_repeated(comparison)}."]
    groups: dict[str, list[str]] = {}
    for other in behind:
        capacity = comparison.capacity(other)
        groups.setdefault("" if capacity is None else capacity.bracket, []).append(other)
    parts = [_held(comparison, group) for group in list(groups.values())[:NAMED]]
    rest = sum(len(group) for group in list(groups.values())[NAMED:])
    parts += [f"the other {counted(rest, 'engine')} no more"] if rest else []
    return [*sentences, *([f"{'; '.join(parts)}."] if parts else [])]


def _held(comparison: Comparison, engines: Sequence[str]) -> str:
    """Of engines of one bracket: `b and c hold 10 (14 undecided)`"""
    names, capacity = in_words(engines), comparison.capacity(engines[0])
    them = comparison.capacities[0].them
    if capacity is not None and capacity.met is not None:
        return f"{names} {_verb('hold', engines)} {load_text(capacity.met)} ({capacity.beyond})"
    if capacity is None or capacity.missed is None:
        return f"{names} {'is' if len(engines) == 1 else 'are'} not shown to meet {them} at any load"
    below = f"{in_words([load_text(load) for load in capacity.undecided])} undecided" if capacity.undecided else ""
    return f"{names} {_verb('miss', engines)} {them} at {load_text(capacity.missed)} ({below or 'the least measured'})"


def _factor(comparison: Comparison, best: str, other: str) -> str:
    """Of two capacities; empty where their brackets leave every ratio open."""
    found = comparison.capacity_ratio(best, other)
    if found is None or found.ratio.value is None or (not found.ratio.low and found.ratio.high == math.inf):
        return ""
    return f": {ratio_text(found.ratio)}"


def _verb(verb: str, subjects: Sequence[str]) -> str:
    return verb if len(subjects) > 1 else f"{verb}{'es' if verb.endswith('s') else 's'}"


def _served_more(comparison: Comparison, best: str, tied: Sequence[str]) -> str:
    """`At 8 users, a serves 2.6× [2.1, 3.4] the tokens of b`; empty where that was not compared."""
    stage = comparison.stage
    tokens = {other: comparison.of(stage, best, DECIDING, other) for other in tied}
    compared = {
        other: each.ratio for other, each in tokens.items() if each is not None and each.ratio.value is not None
    }
    parts = [
        f"{ratio_text(ratio)} {'those of' if index else 'the tokens of'} {other}"
        for index, (other, ratio) in enumerate(compared.items())
    ]
    return f"At {stage}, {best} serves {in_words(parts)}" if parts else ""


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
    tails = {label: engines[label].estimate(comparison.stage, ttft, "p95") for label in (best, others[0])}
    if any(tail.value is None or math.isinf(tail.value) for tail in tails.values()):
        return []
    return [f"TTFT p95: {', '.join(f'{label} {_latency(tail)}' for label, tail in tails.items())}."]


def _latency(estimate: Estimate) -> str:
    """With its interval, or marked as rough."""
    return f"{'about ' if None in estimate.ends else ''}{estimate_text(estimate, 's')}"


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


def _repeated(comparison: Comparison) -> str:
    """How many runs of each the sentence rests on."""
    runs = min(comparison.runs.values())
    if runs >= REPEATS:
        return f", over {runs} repeats"
    return " in this run" if runs == 1 else f" in these {runs} runs"
