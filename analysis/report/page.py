"""The report as one HTML file: no network, for light and dark screens, paper and telephones.

enginebench report runs/<id> runs/<id>
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from analysis.compare.engine_runs import contenders_of, headline_ttft, stages_of
from analysis.compare.knee import growth_sentences
from analysis.compare.tables import contrasts_of, tables_of
from analysis.compare.winner import Comparison
from analysis.report.classes import classes_of_runs
from analysis.report.costs import table
from analysis.report.decision import Decision, decide
from analysis.report.details import details_of, setup_of
from analysis.report.drawing import Drawn
from analysis.report.figures import Number, duration, figures_of, rate, reading_of
from analysis.report.library import vega_script
from analysis.report.palette import styles_of, variables
from analysis.report.remarks import remarks
from analysis.report.rows import names_of, percentile_column, results_of
from analysis.report.search import searches_of
from analysis.report.templating import environment
from analysis.report.terminal import objective_lines
from analysis.stats.intervals import needed
from analysis.summary.run_summary import RunSummary
from records.formatting import counted, format_error, format_interval, format_seconds, format_share, join_labels
from records.metrics import BY_NAME, QUANTITIES

CARDS = 4  # engines that get a card; the table has all
EXPLAINED = ("ttft", "ttft_user", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Card:
    """One engine at the stage of the comparison."""

    name: str
    slot: int
    tokens: Number
    spread: str
    ttft: Number
    beside_ttft: str  # the error of the load generator, or the TTFT of the answered requests where others failed
    tpot: Number
    failures: str


def render(summaries: Sequence[RunSummary], comparison: Comparison, decision: Decision | None = None) -> str:
    styles = styles_of(summary.label for summary in summaries)
    engines = [Drawn(contender, styles[contender.label]) for contender in contenders_of(summaries)]
    labels = [summary.label for summary in summaries]
    findings = remarks([*comparison.findings, *(finding for s in summaries for finding in s.findings)], labels)
    results, ttft = results_of(summaries), headline_ttft(summaries)
    contrasts, decided = contrasts_of(summaries, comparison.margin), decision or decide(summaries, comparison)
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            title=" · ".join(styles),
            comparison=comparison,
            growth=growth_sentences(summaries),
            facts=_facts(summaries),
            grave=[remark for remark in findings if remark.severity != "note"],
            notes=[remark for remark in findings if remark.severity == "note"],
            cards=_cards(engines, comparison, ttft),
            ttft_title=BY_NAME[ttft].title,
            results=results,
            slots={label: style.slot for label, style in styles.items()},
            against=None if contrasts is None else (contrasts, tables_of(contrasts)),
            decision=decided,
            costs=None if decided.costs is None else table(decided.costs),
            objectives=objective_lines(summaries),
            classes=classes_of_runs(summaries),
            searches=searches_of(summaries),
            figures=figures_of(engines, results.axis, ttft, decided.laws),
            needed=needed(0.99),
            reading=reading_of(engines),
            details=[(name, details_of(s)) for name, s in zip(names_of(summaries), summaries, strict=True)],
            setup=setup_of(summaries),
            metrics=[BY_NAME[name] for name in EXPLAINED],
            quantities=QUANTITIES,
            commands=list(dict.fromkeys(shlex.join(summary.command) for summary in summaries)),
            folders=[str(summary.folder) for summary in summaries],
            light=variables("light"),
            dark=variables("dark"),
            vega=vega_script(),
        )
    )


def _facts(summaries: Sequence[RunSummary]) -> list[str]:
    """One line under the headline: what, where, when."""
    models = dict.fromkeys(summary.model for summary in summaries if summary.model)
    labels = [stage.label for stage in stages_of(summaries)]
    stages = join_labels(labels) if len(labels) <= 5 else f"{len(labels)} stages from {labels[0]} to {labels[-1]}"
    started = min(summary.started_at for summary in summaries)
    cpus = dict.fromkeys(str(s.host["cpu"]) for s in summaries if s.host.get("cpu"))
    requests = sum(stage.requests for summary in summaries for stage in summary.stages)
    runs = [f"{len(summaries)} runs"] if len(summaries) > 1 else []
    return [*models, stages, *runs, f"{counted(requests, 'request')} measured", _date(started), *cpus]


def _date(iso: str) -> str:
    try:
        started = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return f"{started.day} {started:%B %Y, %H:%M} UTC"


def _cards(engines: Sequence[Drawn], comparison: Comparison, ttft: str) -> list[Card]:
    label = comparison.stage
    if label is None:
        return []
    ranks = {standing.label: rank for rank, standing in enumerate(comparison.standings)}
    p95, tpot = percentile_column(ttft, "p95"), percentile_column("tpot", "p50")
    cards = []
    for one in sorted(engines, key=lambda one: ranks[one.name]):
        contender = one.contender
        tokens, tail = (contender.estimate(of, label) for of in (lambda stage: stage.throughput, p95.of))
        answered = contender.mean(p95.answered, label)
        errors = [stage.client.error for stage in contender.at(label)]
        known = [error for error in errors if error is not None]
        beside = format_error(max(known)) if len(known) == len(errors) else ""
        if tail.value == math.inf:
            beside = f"answered: {format_seconds(answered)}" if answered is not None else ""
        cards.append(
            Card(
                name=one.name,
                slot=one.style.slot,
                tokens=rate(tokens.value),
                spread=format_interval(tokens.low, tokens.high),
                ttft=duration(tail.value),
                beside_ttft=beside,
                tpot=duration(contender.estimate(tpot.of, label).value),
                failures=format_share(contender.mean(lambda stage: stage.failure_share.value, label)),
            )
        )
    return cards[:CARDS]
