"""What each engine predicts of a fixed text beside the study's baseline, as a section and by the brief's criteria, and
whether greedy answers are alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from enginebench.analysis.compare.likeness import number_format
from enginebench.analysis.compare.quality import FLOAT32, PERPLEXITY_DIGITS, perplexity_text, table_of_quality
from enginebench.analysis.console import TextTable
from enginebench.records.formatting import MISSING
from enginebench.records.quality import Quality, QualityAgainst, against
from enginebench.records.view import Estimate
from enginebench.studies.report.contents import MeasuredPart, StudyReport, distinct
from enginebench.studies.report.criterion import UNKNOWN, Judged, Value, answer_of, worst_first
from enginebench.studies.report.expected import BriefLimit
from enginebench.studies.report.section import Section, of_model

TITLE = "Quality"
NOT_ASKED = "no part asked for log-probabilities of a fixed text"


@dataclass(frozen=True, slots=True)
class ModelQuality:
    """Of one model: the study's baseline, then every other engine, those behind their own servers too."""

    model: str
    baseline: QualityAgainst
    others: tuple[QualityAgainst, ...]

    @property
    def engines(self) -> tuple[QualityAgainst, ...]:
        return (self.baseline, *self.others)

    @property
    def known(self) -> bool:
        """Whether any engine gave log-probabilities."""
        return any(each.perplexity is not None for each in self.engines)

    @property
    def reasons(self) -> list[str]:
        return distinct(each.why for each in self.engines)


def qualities_of(study: StudyReport) -> list[ModelQuality]:
    """Of each model with which an engine was asked, under load or without HTTP."""
    found: dict[str, dict[str, Quality | None]] = {}
    for model, label, quality in _asked(study):
        engines = found.setdefault(model, {})
        engines[label] = _fuller(engines.get(label), quality)
    baseline = study.source.baseline
    return [
        ModelQuality(
            model,
            against(baseline, engines.get(baseline), engines.get(baseline)),
            tuple(against(label, own, engines.get(baseline)) for label, own in engines.items() if label != baseline),
        )
        for model, engines in found.items()
        if any(engines.values())
    ]


def _asked(study: StudyReport) -> Iterator[tuple[str, str, Quality | None]]:
    for part in study.source.parts:
        for run in (*part.runs, *(run for runs in part.own.values() for run in runs)):
            yield part.model, run.label, run.quality
    for bench in study.benches:
        for result in bench.result.measured:
            yield bench.model, result.label, result.quality


def _fuller(known: Quality | None, other: Quality | None) -> Quality | None:
    """The first with log-probabilities, else the first with a reason."""
    return next((each for each in (known, other) if each is not None and each.logprobs), known or other)


def quality(study: StudyReport) -> Section:
    fixed = qualities_of(study)
    several = len(fixed) > 1
    places = study.over_loads or study.measured
    tables = [_fixed_text(each, several) for each in fixed if each.known]
    tables += [table for each in places if (table := _greedy(each, study)) is not None]
    lacking = [_why_none(each, several) for each in fixed if not each.known] if fixed else [NOT_ASKED]
    if not any(same.prompts for each in places for same in each.comparison.answers):
        found = distinct(same.why for each in places for same in each.comparison.answers)
        lacking += [f"answers are not compared: {why}" for why in found]
    if not tables:
        return Section(TITLE, why="; ".join(lacking))
    sentences = [_furthest(each, several) for each in fixed] + [f"{why[:1].upper()}{why[1:]}." for why in lacking]
    return Section(TITLE, tuple(filter(None, sentences)), tables=tuple(tables))


def _why_none(of: ModelQuality, several: bool) -> str:
    where = f" with {of.model}" if several else ""
    return f"no engine{where} gave log-probabilities of the fixed text ({'; '.join(of.reasons)})"


def _furthest(of: ModelQuality, several: bool) -> str:
    """Of which perplexity is known beside the baseline's; empty where there is none."""
    compared = {each: over for each in of.others if (over := each.perplexity_over) is not None}
    if not compared:
        return ""
    engine, over = max(compared.items(), key=lambda pair: abs(pair[1]))
    where, baseline = f"{of.model}: " if several else "", of.baseline.engine
    if round(over, PERPLEXITY_DIGITS) == 0:
        which = f"all {len(compared)} engines have" if len(compared) > 1 else f"{engine.engine} has"
        return f"{where}{which} the perplexity of {baseline} on the fixed text, within 0.001 %."
    which = f"of {len(compared)} engines {engine.engine}" if len(compared) > 1 else engine.engine
    return (
        f"{where}{which} is furthest from {baseline} in the perplexity of the fixed text, by {perplexity_text(over)}."
    )


def _fixed_text(of: ModelQuality, several: bool) -> TextTable:
    table = table_of_quality(of.engines)
    return replace(table, title=f"{of.model}: {table.title.lower()}") if several else table


def _greedy(measured: MeasuredPart, study: StudyReport) -> TextTable | None:
    """Whether engines answer alike, at the load that decides."""
    formats = {engine.label: number_format(engine.runs[0]) or MISSING for engine in measured.engines}
    comparison = measured.comparison
    answers = {same.engine: same for same in comparison.answers}
    if not any(same.prompts for same in answers.values()):
        return None
    rows = tuple(
        (label, name, "baseline" if label == comparison.baseline else answers[label].text or MISSING)
        for label, name in formats.items()
    )
    headers = ("engine", "number format", f"same answers as {comparison.baseline}")
    caption = f"{measured.title}, at {comparison.stage}: greedy answers to the same prompts, of all repeats."
    return TextTable(f"{of_model(measured, study)}Greedy answers", headers, rows, (0, 1, 2), caption)


def logits(study: StudyReport, limit: BriefLimit) -> Judged:
    """In float32, of engine and baseline. A log-probability that differs by d: logits by d / 2 at least, and by d at
    most, but for what all logits of a position have in common, which no probability depends on."""
    values = []
    for each, engine, where in _qualities(study):
        if each.baseline.dtype == engine.dtype == FLOAT32 and engine.difference is not None:
            difference = engine.difference
            number = Estimate(difference, difference / 2, difference)
            values.append(Value(where, number, f"{difference:.1e}"))
    if not values:
        return Judged(UNKNOWN, _not_compared(study, in_float32=True))
    found = answer_of(limit, worst_first(limit, values), "")
    return Judged(found.answer, f"{found.evidence} (of a log-probability: at most twice that of a logit)")


def perplexity(study: StudyReport, limit: BriefLimit) -> Judged:
    values = []
    for _, engine, where in _qualities(study):
        if engine.perplexity_over is not None:
            over = round(engine.perplexity_over, PERPLEXITY_DIGITS)
            values.append(Value(where, Estimate(over), perplexity_text(over)))
    return answer_of(limit, worst_first(limit, values), _not_compared(study))


def _qualities(study: StudyReport) -> Iterator[tuple[ModelQuality, QualityAgainst, str]]:
    """Each engine but the baseline, and its name among all models."""
    found = qualities_of(study)
    for each in found:
        for engine in each.others:
            yield each, engine, f"{each.model}: {engine.engine}" if len(found) > 1 else engine.engine


def _not_compared(study: StudyReport, in_float32: bool = False) -> str:
    """Why no engine's log-probabilities stand beside the baseline's."""
    found = qualities_of(study)
    if not found:
        return NOT_ASKED
    baseline = found[0].baseline
    if baseline.why is not None:
        return f"{baseline.engine}: {baseline.why}"
    if in_float32 and baseline.dtype != FLOAT32:
        return f"{baseline.engine} computed in {baseline.dtype or 'an unknown format'}, not in {FLOAT32}"
    reasons = distinct(engine.why for each in found for engine in each.others)
    others = f" ({'; '.join(reasons)})" if reasons else ""
    return f"no other engine{f' in {FLOAT32}' if in_float32 else ''} gave log-probabilities of the fixed text{others}"
