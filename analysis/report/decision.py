"""What to deploy, as far as the runs support it: sentences written from their numbers, each with what it rests on.

What the runs do not support is n/a, with the reason and the way to find out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from analysis.compare.contrasts import Contrasts
from analysis.compare.engine_runs import Contender, by_load, contenders_of
from analysis.compare.tables import contrasts_of
from analysis.compare.winner import Comparison
from analysis.plan.measured import load_points
from analysis.plan.safe_load import safe_load
from analysis.plan.scalability import Scalability, scalability
from analysis.plan.settings import PlanSettings
from analysis.report.costs import Costs, costs_of, saved
from analysis.stats.estimate import Estimate
from analysis.summary.run_summary import RunSummary
from records.formatting import MISSING, format_interval, format_share, in_words, significant

Topic = Literal["engine", "answers", "load", "limit", "replicas", "GPU", "cost"]
NO_PEAK = "no peak was given: --peak 80users --slo ttft_p99=1 plans for one"


@dataclass(frozen=True, slots=True)
class Advice:
    """One sentence about one engine, or about all (`engine` is `None`); without one, `why` not."""

    topic: Topic
    engine: str | None
    text: str | None
    why: str | None = None

    @property
    def heading(self) -> str:
        return self.topic if self.engine is None else f"{self.engine}, {self.topic}"

    @property
    def said(self) -> str:
        return self.text or (f"{MISSING}: {self.why}." if self.why else f"{MISSING}.")


@dataclass(frozen=True, slots=True)
class Law:
    """The Universal Scalability Law fitted to one engine's stages."""

    engine: str
    fit: Scalability


@dataclass(frozen=True, slots=True)
class Decision:
    """`costs` is `None` where the runs have no stage in common."""

    advice: tuple[Advice, ...]
    costs: Costs | None
    laws: tuple[Law, ...]

    @property
    def for_reading(self) -> tuple[Advice, ...]:
        """Topic by topic; what is n/a for several engines for the same reason is said once."""
        engines = {one.engine for one in self.advice if one.engine is not None}
        alike: dict[tuple[str, str | None], list[str]] = {}
        for one in self.advice:
            if one.text is None and one.engine is not None:
                alike.setdefault((one.topic, one.why), []).append(one.engine)
        said: dict[tuple[str, str | None, str | None], Advice] = {}
        for one in self.advice:
            named = alike.get((one.topic, one.why), []) if one.text is None else []
            if len(named) < 2:
                said[one.topic, one.engine, None] = one
            else:
                of = "" if len(named) == len(engines) else f" ({in_words(named)})"
                said.setdefault(
                    (one.topic, None, one.why), Advice(one.topic, None, None, f"{one.why or 'unknown'}{of}")
                )
        topics = [one.topic for one in self.advice]
        return tuple(sorted(said.values(), key=lambda one: topics.index(one.topic)))


def decide(
    summaries: Sequence[RunSummary],
    comparison: Comparison,
    settings: PlanSettings | None = None,
    plans: Mapping[str, Advice] | None = None,
) -> Decision:
    """`plans`, by label, where a peak was given. Raises `UserMistake` for a GPU without a price."""
    engines = contenders_of(summaries)
    contrasts = contrasts_of(summaries, comparison.margin)
    stage, laws = comparison.stage, laws_of(engines)
    costs = None if stage is None else costs_of(engines, stage, contrasts, settings or PlanSettings())
    said = [*_choice(comparison, len(engines)), *_answers(contrasts)]
    for one in engines:
        law = next((law for law in laws if law.engine == one.label), None)
        said += [_load(one), _limit(one.label, law), _gpu(one, stage)]
        said += [Advice("replicas", one.label, None, NO_PEAK) if plans is None else plans[one.label]]
        said += [_cost(one.label, costs)]
    return Decision(tuple(said), costs, laws)


def _choice(comparison: Comparison, engines: int) -> list[Advice]:
    if engines == 1:
        return []
    if comparison.winner is None:
        why = comparison.why or comparison.sentence.rstrip(".")
        return [Advice("engine", None, None, f"none is recommended over the others, because {why}")]
    return [Advice("engine", comparison.winner, f"Serve with {comparison.winner}. {comparison.sentence}")]


def _answers(contrasts: Contrasts | None) -> list[Advice]:
    if contrasts is None:
        return []
    found = []
    for one in contrasts.answers:
        told = one.sentence(contrasts.baseline)
        same = f"{one.engine} gives the answers of {contrasts.baseline} to all {one.prompts:,} prompts."
        check = f"{told} Check their quality before its speed counts: enginebench answers."
        text = None if one.why else check if told else same
        found.append(Advice("answers", one.engine, text, one.why))
    return found


def _load(one: Contender) -> Advice:
    """The load that a replica bears, by the objectives."""
    stages = [stage for run in one.runs for stage in run.stages]
    if all(stage.attainment is None for stage in stages):
        return Advice("load", one.label, None, "no objective was given: --slo ttft_p99=1 judges every load")
    if not by_load(one.runs):
        return Advice("load", one.label, None, "its stages differ in more than their load")
    safe = safe_load(stages)
    if safe is None or safe.load.value is None or safe.load.low is None:
        return Advice("load", one.label, None, None if safe is None else safe.load.why)
    beyond = f" ({safe.load.why})" if safe.load.why else ""
    most = f"{_load_text(safe.load.value)} {safe.unit} {_ends(safe.load)}{beyond}"
    limit = "" if safe.limit is None else f", limited by {safe.limit.sentence}"
    least = math.floor(safe.load.low) if safe.unit == "users" else safe.load.low
    if least <= 0:
        return Advice("load", one.label, None, f"every objective is met up to {most}: the interval reaches no load")
    text = f"Give a replica at most {_load_text(least)} {safe.unit}: every objective is met up to {most}{limit}."
    return Advice("load", one.label, text)


def _load_text(load: float) -> str:
    return f"{load:g}" if float(load).is_integer() else significant(load)


def laws_of(engines: Sequence[Contender]) -> tuple[Law, ...]:
    """Of the engines with three loads or more that differ in nothing else."""
    found = []
    for one in engines:
        stages = [stage for run in one.runs for stage in run.stages]
        if len(stages) < 3 or not by_load(one.runs):
            continue
        fit = scalability(load_points(stages))
        if fit is not None:
            found.append(Law(one.label, fit))
    return tuple(found)


def _limit(label: str, law: Law | None) -> Advice:
    """Where more load brings no more."""
    if law is None:
        return Advice("limit", label, None, "it takes three loads that differ in nothing else")
    most, peak = law.fit.most, law.fit.peak
    if most.value is None or math.isinf(most.value):
        return Advice("limit", label, None, "throughput grew in proportion to the load: measure higher loads")
    text = f"{significant(most.value)} tokens/s {_ends(most)}"
    if peak.value is None or peak.high is None or math.isinf(peak.high):
        return Advice("limit", label, f"Throughput of a replica levels off at {text}.")
    where = f"{significant(peak.value)} requests in flight {_ends(peak)}"
    return Advice("limit", label, f"Throughput of a replica is highest, {text}, with {where}.")


def _ends(estimate: Estimate) -> str:
    """An end that is not bounded is said to be so."""
    low, high = (
        "no bound" if one is None or math.isinf(one) else _load_text(one) for one in (estimate.low, estimate.high)
    )
    return f"[{low}, {high}]"


def _gpu(one: Contender, stage: str | None) -> Advice:
    busy = None if stage is None else one.mean(lambda at: at.telemetry_mean("gpu_utilisation"), stage)
    if busy is None:
        return Advice("GPU", one.label, None, "no GPU telemetry")
    return Advice("GPU", one.label, f"The GPU is busy {format_share(busy)} of the time at {stage}.")


def _cost(label: str, costs: Costs | None) -> Advice:
    if costs is None:
        return Advice("cost", label, None, "these runs have no stage in common")
    found = next(one for one in costs.engines if one.engine == label)
    said = []
    if found.cost.value is not None:
        interval = format_interval(found.cost.low, found.cost.high)
        said.append(f"A million output tokens cost ${significant(found.cost.value)} {interval}".rstrip())
    if found.against.low is not None:
        said.append(f"{'that' if said else 'a token'} costs {saved(found.against)} against {costs.baseline}")
    if not said:
        return Advice("cost", label, None, found.against.why or found.cost.why or "too few runs")
    text = "; ".join(said)
    return Advice("cost", label, f"{text[:1].upper()}{text[1:]}.")
