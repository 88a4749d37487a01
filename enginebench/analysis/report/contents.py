"""A whole report as a value. Terminal, page, Markdown, CSV and JSON each show all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from enginebench.analysis.compare.capacity import SloCapacity, capacities_of, capacity_matrix, objective_lines
from enginebench.analysis.compare.comparison import Comparison
from enginebench.analysis.compare.engine_runs import engine_runs_of
from enginebench.analysis.compare.growth import context_sentences, growth_sentences
from enginebench.analysis.compare.headline import headline
from enginebench.analysis.compare.tables import criteria
from enginebench.analysis.first_screen import Candidate, FirstScreen, candidates_of, first_screen
from enginebench.analysis.report.classes import judge_classes
from enginebench.analysis.report.decision import Decision, decide
from enginebench.analysis.summary.remarks import Remark, remarks
from enginebench.analysis.summary.run_summary import SCHEMA_VERSION, RunSummary
from enginebench.records.rules import SloAnswer, overall
from enginebench.records.slo import tiers_of


@dataclass(frozen=True, slots=True)
class Report:
    """Runs, what compares them, and the conclusions of both.

    `capacities` are those of each engine within the objectives of each tier, the first one first; `matrix` within each
    pair of limits of `enginebench.records.slo.CAPACITY_GRID`. `criteria` say what better and worse mean.
    `objectives` is about those of classes too, and `None` where there was none to judge.
    """

    schema: int
    headline: str
    screen: FirstScreen  # what was asked for: `--slo`, `--peak`, `--price`
    runs: tuple[RunSummary, ...]
    comparison: Comparison
    criteria: str
    capacities: tuple[SloCapacity, ...]
    matrix: tuple[SloCapacity, ...]
    growth: tuple[str, ...]  # which part of TTFT grew with the load, and what grew with the context
    decision: Decision  # what to deploy, and at what cost
    invalid: bool
    objectives: SloAnswer | None  # whether every load met every objective
    report: str | None  # where the page is

    @property
    def judged(self) -> list[tuple[SloAnswer, str]]:
        """A line for each engine and objective."""
        return [line for engine in engine_runs_of(self.runs) for line in objective_lines(engine)]

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """The findings, gravest first, merged for reading."""
        findings = [*self.comparison.findings, *(finding for run in self.runs for finding in run.findings)]
        return remarks(findings, (run.label for run in self.runs))

    @property
    def grave(self) -> list[Remark]:
        return [remark for remark in self.remarks if remark.severity == "invalid"]

    @property
    def caveats(self) -> list[Remark]:
        """Findings that do not invalidate."""
        return [remark for remark in self.remarks if remark.severity != "invalid"]


def report_of(
    summaries: Sequence[RunSummary], comparison: Comparison, decision: Decision | None = None, page: Path | None = None
) -> Report:
    engines, decision = engine_runs_of(summaries), decision or decide(summaries, comparison)
    sentence = headline(comparison, summaries)
    candidates = candidates_of(comparison, summaries, decision.replicas, decision.costs)
    tiers = tiers_of(objective for engine in engines for objective in engine.runs[0].objectives)
    compared = [] if any(finding.kind == "scenarios_differ" for finding in comparison.findings) else engines
    capacities = [capacity for tier in tiers for capacity in capacities_of(summaries, tier)] if compared else []
    judged = [load.answer for capacity in capacities for load in capacity.loads]
    others = [engine for engine in engines if engine.label not in {capacity.engine for capacity in capacities}]
    judged += [answer for engine in others for answer, _ in objective_lines(engine)]
    judged += [judgement.answer for engine in engines for judgement in judge_classes(engine)]
    return Report(
        schema=SCHEMA_VERSION,
        headline=sentence,
        screen=_screen(sentence, decision, candidates),
        runs=tuple(summaries),
        comparison=comparison,
        criteria=criteria(comparison) if comparison.others else "",
        capacities=tuple(capacities),
        matrix=tuple(capacity for engine in compared for capacity in capacity_matrix(engine).values()),
        growth=(*growth_sentences(summaries), *context_sentences(summaries)),
        decision=decision,
        invalid=comparison.invalid or any(summary.invalid for summary in summaries),
        objectives=overall(judged) if judged else None,
        report=None if page is None else str(page),
    )


def _screen(answer: str, decision: Decision, candidates: Sequence[Candidate]) -> FirstScreen:
    """It opens with the replicas for a peak, unless a plan among them is not reliable."""
    screen = first_screen(answer, candidates)
    if not decision.answer:
        return screen
    if all(planned.reliable for planned in decision.replicas):
        return replace(screen, answer=decision.answer)
    return replace(screen, sentences=(("the peak", decision.answer), *screen.sentences))
