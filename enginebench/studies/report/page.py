"""The report of a study as one HTML file: the answer and one chart on the first screen, then all of `SECTIONS`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from enginebench.analysis.first_screen import FirstScreen
from enginebench.analysis.report.figure import Figure
from enginebench.analysis.report.page import environment, shell
from enginebench.analysis.report.profiles import OUTSIDE, shown_profile
from enginebench.analysis.report.trade_off_charts import pareto_figure
from enginebench.analysis.summary.remarks import Remark
from enginebench.records.formatting import counted
from enginebench.studies.report import criteria, deployment, ladder, lengths, over_loads, quality, repeating
from enginebench.studies.report.contents import StudyReport, distinct
from enginebench.studies.report.section import Section, of_part
from engines.bench.tables import sentence_of


@dataclass(frozen=True, slots=True)
class StudyPage:
    """What HTML and Markdown set: the answer and one chart, then the sections, then what speaks against the numbers."""

    study: StudyReport
    screen: FirstScreen
    facts: tuple[str, ...]
    first: Figure | None
    sections: tuple[Section, ...]
    grave: tuple[Remark, ...]  # findings that invalidate
    caveats: tuple[Remark, ...]

    @property
    def decision(self) -> tuple[str, str]:
        return split(self.screen.answer)


def split(answer: str) -> tuple[str, str]:
    """The first sentence, and what limits it: why no winner is named, and whose answers differ."""
    first, _, rest = answer.partition(". ")
    return (f"{first}." if rest else first), rest


def page_of(study: StudyReport) -> StudyPage:
    found = repeating.study_remarks(study)
    return StudyPage(
        study=study,
        screen=screen_of(study),
        facts=tuple(facts_of(study)),
        first=picture_of(study),
        sections=tuple(sections_of(study)),
        grave=tuple(remark for remark in found if remark.severity == "invalid"),
        caveats=tuple(remark for remark in found if remark.severity != "invalid"),
    )


def render(page: StudyPage) -> str:
    study = page.study
    fields = {field.name: getattr(page, field.name) for field in dataclasses.fields(page)} | {"decision": page.decision}
    template = environment("enginebench.studies.report").get_template("study.html.j2")
    return template.render(**shell(study.source.title, "study", study.styles), **fields)


def screen_of(study: StudyReport) -> FirstScreen:
    """The decision, with a row for each engine, and what the other parts with several requests at a time say, which
    may be another answer; of a study without load what its first bench shows."""
    if study.head is None:
        return FirstScreen(_without_load(study), None, ())
    screen = study.head.report.screen
    others = [each for each in study.measured if each is not study.head and not each.alone]
    if not others:
        return screen
    sentences = tuple((of_part(each, study), each.report.headline) for each in others)
    answer = f"{of_part(study.head, study)}: {screen.answer}"
    return dataclasses.replace(screen, answer=answer, sentences=(*screen.sentences, *sentences))


def _without_load(study: StudyReport) -> str:
    if study.benches:
        return f"{study.benches[0].model}: {sentence_of(study.benches[0].result)}"
    return "Nothing was measured: every part was skipped or failed, as the reasons below say."


def picture_of(study: StudyReport) -> Figure | None:
    """Output against each user's speed; of one request at a time TTFT against the prompt's length."""
    if study.head is None:
        return None
    return (
        pareto_figure(study.head.figures) if study.head.over_loads else next(lengths.length_figures(study.head), None)
    )


def facts_of(study: StudyReport) -> list[str]:
    """One line under the answer: what, how much, when, where."""
    runs = study.runs
    models = distinct([*(each.model for each in study.measured), *(bench.model for bench in study.benches)])
    requests = sum(stage.requests for run in runs for stage in run.stages)
    started = min([run.started_at for run in runs] or [bench.result.made_at for bench in study.benches] or [""])
    return [
        *models,
        counted(len(study.styles), "engine"),
        *([f"{counted(requests, 'request')} measured in {counted(len(runs), 'run')}"] if runs else []),
        *([_date(started)] if started else []),
        study.machine,
    ]


def _date(iso: str) -> str:
    day = datetime.fromisoformat(iso)
    return f"{day.day} {day:%B %Y}"


def profiles(study: StudyReport) -> Section:
    """What profilers saw of the engines, after all cells and in no number of the study. Links lead from its folder."""
    shown = [shown_profile(each, run.folder, run.folder.parents[1]) for run in study.runs for each in run.profiles]
    return Section(
        "Profiles",
        (OUTSIDE, *(f"{one.title}. {one.sentence}" for one in shown)) if shown else (),
        tables=tuple(one.table for one in shown if one.table is not None),
        links=tuple(path for one in shown for _, path in one.files),
    )


SECTIONS: tuple[Callable[[StudyReport], Section], ...] = (
    over_loads.pareto,
    over_loads.latency,
    ladder.ladder,
    over_loads.scaling,
    deployment.memory,
    lengths.lengths,
    lengths.kernels,
    over_loads.matrix,
    quality.quality,
    deployment.own_servers,
    deployment.cost,
    deployment.recommendation,
    criteria.criteria,
    repeating.comparisons,
    profiles,
)


def sections_of(study: StudyReport) -> list[Section]:
    """Those that have something to show, then what was not measured, and how to repeat it."""
    made = [section(study) for section in SECTIONS]
    empty = [section for section in made if section.empty and section.why]
    shown = [section for section in made if not section.empty]
    return [*shown, repeating.not_measured(study, empty), repeating.repeating(study)]
