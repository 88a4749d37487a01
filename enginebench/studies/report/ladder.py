"""The engines against the baseline with one request at a time: what was measured beside what the brief expects, and why
the two differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from enginebench.analysis.compare.engine_runs import DECIDING, EngineRuns
from enginebench.analysis.compare.likeness import number_format
from enginebench.analysis.compare.tables import ratio_text, verdict_text
from enginebench.analysis.console import TextTable
from enginebench.analysis.stats.repeats import REPEATS
from enginebench.records.formatting import MISSING, format_interval, format_seconds, in_words, significant
from enginebench.records.view import Estimate, StageView
from enginebench.studies.report.contents import MeasuredPart, StudyReport
from enginebench.studies.report.expected import Expected, ExpectedEngine, brief
from enginebench.studies.report.section import Section, of_model

SCENARIO = "single"  # whose question it is how fast one request is


@dataclass(frozen=True, slots=True)
class OneRequest:
    """The stages of one user alone, by the length of the answers: `short` for the time of a short request, `long` for
    tokens per second and speed-up."""

    measured: MeasuredPart
    short: str
    long: str


def ladder(study: StudyReport) -> Section:
    """A table for each model with which some part asks one request at a time."""
    expected, tables, sentences = brief().expected, [], []
    for model in dict.fromkeys(each.model for each in study.measured):
        found = one_request([each for each in study.measured if each.model == model])
        if found is None or not found.measured.comparison.others:
            continue
        if any(_name(engine) in expected.engines for engine in found.measured.engines):
            tables.append(_table(found, expected, study))
            sentences.append(f"{of_model(found.measured, study)}{why_they_differ(found, expected, study)}")
    why = "" if tables else "the brief expects nothing of these engines with one request at a time"
    return Section("Against the baseline, measured and expected", tuple(sentences), tables=tuple(tables), why=why)


def one_request(measured: Sequence[MeasuredPart]) -> OneRequest | None:
    """Of the part that is made for it, else of the one with a stage of one user that has the most engines; first of
    all of one with enough repeats to say what is faster."""

    def rank(part: MeasuredPart) -> tuple[bool, bool, int]:
        few = min(len(engine.runs) for engine in part.engines) < REPEATS
        return few, part.scenario != SCENARIO, -len(part.styles)

    for each in sorted(measured, key=rank):
        stages = [stage for stage in _stages(each) if stage.label in each.comparison.stages]
        if stages:
            by_length = sorted(stages, key=_tokens)
            return OneRequest(each, by_length[0].label, by_length[-1].label)
    return None


def _tokens(stage: StageView) -> tuple[float, float]:
    return stage.value("output_tokens") or 0.0, stage.value("prompt_tokens") or 0.0


def _stages(measured: MeasuredPart) -> Iterator[StageView]:
    """Those of one user alone."""
    for stage in measured.runs[0].stages:
        if stage.load == 1 and stage.load_unit == "users":
            yield stage


def _table(found: OneRequest, expected: Expected, study: StudyReport) -> TextTable:
    comparison = found.measured.comparison
    headers = (
        *("engine", "number format", "short request", "expected", "tokens/s", "expected"),
        *("speed-up", "expected", "verdict"),
    )
    engines = {engine.label: engine for engine in found.measured.engines}
    order = [comparison.baseline, *comparison.others]
    rows = tuple(_row(found, engines[label], expected.engines.get(_name(engines[label]))) for label in order)
    caption = (
        f"Measured: {found.measured.title}. Short request: median time of a whole answer at {found.short}. Tokens/s "
        f"and speed-up (output tokens/s over those of {comparison.baseline}, with the 95 % interval over runs): at "
        f"{found.long}. Expected: {brief().source}, {brief().dated}."
    )
    title = f"{of_model(found.measured, study)}One request at a time"
    table = TextTable(title, headers, rows, (0, 1, 8), caption)
    return table if len({row[1] for row in rows}) > 1 else table.without(["number format"])


def _name(engine: EngineRuns) -> str:
    """In the registry; a label may name options too."""
    return str((engine.runs[0].engine or {}).get("name") or engine.label)


def _row(found: OneRequest, engine: EngineRuns, wanted: ExpectedEngine | None) -> tuple[str, ...]:
    comparison = found.measured.comparison
    tokens = engine.estimate(found.long, DECIDING)
    compared = comparison.of(found.long, engine.label, DECIDING)
    is_base = engine.label == comparison.baseline
    ratio = Estimate(1.0) if is_base else Estimate(None) if compared is None else compared.ratio
    return (
        engine.label,
        number_format(engine.runs[0]) or MISSING,
        format_seconds(engine.value(found.short, "e2e", "p50")),
        MISSING if wanted is None else format_seconds(wanted.seconds),
        MISSING
        if tokens.value is None
        else f"{significant(tokens.value)} {format_interval(tokens.low, tokens.high)}".strip(),
        MISSING if wanted is None else f"{wanted.tokens_per_second:g}",
        "1" if is_base else ratio_text(ratio),
        MISSING if wanted is None else f"{_speed_up(wanted)}{_against(ratio, wanted)}",
        "baseline" if is_base else MISSING if compared is None else verdict_text(comparison, compared),
    )


def _speed_up(wanted: ExpectedEngine) -> str:
    if wanted.speed_up_range is None:
        return f"{wanted.speed_up:g}×"
    low, high = wanted.speed_up_range
    return f"{wanted.speed_up:g}× ({low:g} to {high:g})"


def _against(ratio: Estimate, wanted: ExpectedEngine) -> str:
    """Where the interval, or without one the value, lies beside the range that is expected."""
    if wanted.speed_up_range is None or ratio.value is None:
        return ""
    low, high = wanted.speed_up_range
    least, most = (ratio.low or ratio.value, ratio.high or ratio.value)
    if most < low:
        return ", below"
    if least > high:
        return ", above"
    return ", within" if least >= low and most <= high else ", partly within"


def why_they_differ(found: OneRequest, expected: Expected, study: StudyReport) -> str:
    """What is not as the brief has it: of other conditions its numbers say nothing."""
    conditions, machine = expected.conditions, study.machine
    formats = list(dict.fromkeys(name for run in found.measured.runs if (name := number_format(run))))
    there = f"{conditions.model} in {conditions.format} on {' or '.join(conditions.hardware)}"
    here = f"{found.measured.model} in {in_words(formats) or 'an unknown format'} on {machine}"
    alike = {
        "model": all(word in _plain(found.measured.model) for word in _plain(conditions.model).split()),
        "number format": [_plain(name) for name in formats] == [_plain(conditions.format)],
        "hardware": any(gpu in machine for gpu in conditions.hardware),
    }
    apart = [what for what, same in alike.items() if not same]
    if not apart:
        return f"Measured under the brief's conditions: {there}, one request at a time."
    verb = "differs" if len(apart) == 1 else "differ"
    others = " Engines of different number formats read different amounts of memory." if len(formats) > 1 else ""
    return (
        f"The brief expects its numbers of {there}; measured was {here}. The {in_words(apart)} {verb}: seconds and "
        f"tokens/s are not comparable with the expected ones, and a speed-up on one machine is none on another.{others}"
    )


def _plain(text: str) -> str:
    return text.lower().replace(".", "").replace("_", "")
