"""What to deploy, as far as the runs support it: replicas and their cost at a peak, the cost of tokens, and sentences
written from their numbers. What was not asked for is one line, with the options that ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from enginebench.analysis.compare.comparison import Comparison
from enginebench.analysis.compare.engine_runs import EngineRuns, by_settings, engine_runs_of
from enginebench.analysis.first_screen import PlannedReplicas
from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.report.costs import NO_DIFFERENCE, Costs, costs_of, saved, stage_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import format_estimate, format_share, in_words

Topic = Literal["engine", "answers", "load", "limit", "replicas", "warning", "GPU", "cost"]


@dataclass(frozen=True, slots=True)
class Advice:
    """One sentence about one engine, or about all (`engine` is `None`)."""

    topic: Topic
    engine: str | None
    text: str

    @property
    def heading(self) -> str:
        return self.topic if self.engine is None else f"{self.engine}, {self.topic}"


@dataclass(frozen=True, slots=True)
class Decision:
    """`costs` is `None` where the runs have no stage to give them for. `replicas` are those of a peak, and `answer`
    says which engine needs the fewest or costs the least; empty where none could be planned."""

    advice: tuple[Advice, ...]
    costs: Costs | None
    replicas: tuple[PlannedReplicas, ...] = ()
    answer: str = ""
    not_asked: str = ""


def decide(
    summaries: Sequence[RunSummary],
    comparison: Comparison,
    settings: PlanSettings | None = None,
    replicas: Sequence[PlannedReplicas] = (),
    answer: str = "",
) -> Decision:
    """`replicas` and `answer` where a peak was given. Raises `UserMistake` for a GPU without a price."""
    settings, engines = settings or PlanSettings(), engine_runs_of(summaries)
    costs = costs_of(engines, comparison, settings)
    advice = [*_winner(comparison), *_answers(comparison)]
    for engine in engines:
        advice += [*_load(engine, comparison), *_gpu(engine, comparison)]
        names = by_settings(engine.runs)
        for planned in (each for each in replicas if each.engine in names):
            advice.append(Advice("replicas", planned.engine, planned.sentence))
            advice += [Advice("warning", planned.engine, f"{warning}.") for warning in planned.warnings]
        advice += [] if costs is None else _cost(engine.label, costs)
    topics = list(dict.fromkeys(each.topic for each in advice))
    ordered = sorted(advice, key=lambda each: topics.index(each.topic))
    not_asked = _not_asked(summaries, settings, costs)
    return Decision(tuple(ordered), costs, tuple(replicas), answer, not_asked)


def replicas_of(summaries: Sequence[RunSummary], settings: PlanSettings) -> tuple[list[PlannedReplicas], str]:
    """What `enginebench plan` says of each engine with each of its settings, the cheapest first, and its answer.

    Raises `UserMistake` for a price that cannot be read.
    """
    from enginebench.analysis.frame import frame_of
    from enginebench.analysis.plan import candidates
    from enginebench.analysis.write.sentence import sentence

    assert settings.peak is not None, "a peak was given"
    frame = frame_of(candidates.separated(summaries))
    answer = candidates.replicas_answer(settings.peak, candidates.replicas_of(frame, settings))
    planned = [
        PlannedReplicas(each.name, settings.peak.label, each.number, each.number, each.number, each.month, "")
        for each in answer.candidates
    ]
    return planned, sentence(answer)


def _winner(comparison: Comparison) -> list[Advice]:
    """Why none is named, the headline says."""
    return (
        [] if comparison.winner is None else [Advice("engine", comparison.winner, f"Serve with {comparison.winner}.")]
    )


def _answers(comparison: Comparison) -> list[Advice]:
    advice = []
    for same in comparison.answers:
        different = same.sentence(comparison.baseline)
        if same.why is None:
            text = f"{same.engine} gives the answers of {comparison.baseline} to all {same.prompts:,} prompts."
            if different:
                text = f"{different} Check their quality before its speed counts: enginebench run answers."
            advice.append(Advice("answers", same.engine, text))
    return advice


def _load(engine: EngineRuns, comparison: Comparison) -> list[Advice]:
    capacity = comparison.capacity(engine.label)
    return [] if capacity is None else [Advice("load", engine.label, capacity.sentence)]


def _gpu(engine: EngineRuns, comparison: Comparison) -> list[Advice]:
    stage = stage_of(engine, comparison)
    busy = None if stage is None else engine.gauge(stage, "gpu_utilisation")
    return (
        []
        if busy is None
        else [Advice("GPU", engine.label, f"The GPU is busy {format_share(busy)} of the time at {stage}.")]
    )


def _cost(engine: str, costs: Costs) -> list[Advice]:
    cost, parts = costs.of(engine), []
    if cost.cost.value is not None:
        price = format_estimate(cost.cost.value, cost.cost.low, cost.cost.high, "$")
        parts.append(f"a million output tokens cost {price} at {cost.stage}")
    if cost.against.low is not None:
        at = "" if parts else f" at {cost.stage}"
        subject, share = "that" if parts else "a token", saved(cost)
        if share == NO_DIFFERENCE:
            parts.append(f"no difference in cost to {costs.baseline} is shown{at}")
        else:
            parts.append(f"{subject} costs {share} than {costs.baseline}{at}")
    text = "; ".join(parts)
    return [Advice("cost", engine, f"{text[:1].upper()}{text[1:]}.")] if text else []


def _not_asked(summaries: Sequence[RunSummary], settings: PlanSettings, costs: Costs | None) -> str:
    """`Not asked for: users within an SLO (--slo ttft_p99=1), …`; empty where all was."""
    parts = []
    if not any(summary.objectives or summary.search for summary in summaries):
        parts.append("users within an SLO (--slo ttft_p99=1)")
    if settings.peak is None:
        parts.append("replicas for a peak (--peak 80users)")
    if costs is not None and all(cost.price is None for cost in costs.engines):
        parts.append("costs in dollars (--price 2.20 or --gpu H100)")
    return f"Not asked for: {in_words(parts)}." if parts else ""
