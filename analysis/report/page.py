"""The report as one HTML file: no script, no network, readable by day and by night, on paper and on a telephone.

enginebench report runs/<id> runs/<id>
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from analysis.report.charts import Named
from analysis.report.figures import Number, duration, figures_of, rate
from analysis.report.palette import CHART_COLOURS, ENGINES, styles_of
from analysis.report.remarks import remarks
from analysis.report.rows import names_of, results_of
from analysis.report.terminal import objective_lines
from analysis.report.units import (
    MISSING,
    format_bytes,
    format_count,
    format_error,
    format_interval,
    format_seconds,
    format_share,
    in_words,
    significant,
)
from analysis.verdict.comparison import Comparison
from analysis.verdict.stages import StageSummary
from analysis.verdict.statistics import Estimate
from analysis.verdict.summary import RunSummary

CARDS = 4  # engines that get a card; the table has all


@dataclass(frozen=True, slots=True)
class Card:
    """One engine at the step of the comparison."""

    name: str
    slot: int
    tokens: Number
    spread: str
    ttft: Number
    error: str  # of TTFT, by the load generator's calibration
    tpot: Number
    failures: str


def write_report(summaries: Sequence[RunSummary], comparison: Comparison, path: Path) -> None:
    """Raises `OSError` where `path` cannot be written."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(render(summaries, comparison), encoding="utf-8")
    partial.replace(path)


def render(summaries: Sequence[RunSummary], comparison: Comparison) -> str:
    styles = styles_of(summary.label for summary in summaries)
    runs = [Named(name, styles[s.label], s) for name, s in zip(names_of(summaries), summaries, strict=True)]
    findings = remarks([*comparison.findings, *(finding for s in summaries for finding in s.findings)])
    environment = Environment(
        loader=PackageLoader("analysis"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["unbroken"] = _unbroken
    return environment.get_template("report.html.j2").render(
        title=" · ".join(dict.fromkeys(summary.label for summary in summaries)),
        comparison=comparison,
        facts=_facts(summaries),
        grave=[remark for remark in findings if remark.severity != "note"],
        notes=[remark for remark in findings if remark.severity == "note"],
        cards=_cards(runs, comparison),
        results=results_of(summaries),
        slots={summary.label: styles[summary.label].slot for summary in summaries},
        objectives=objective_lines(summaries),
        figures=figures_of(runs),
        details=[(run.name, _details(run.summary)) for run in runs],
        setup=_setup(runs),
        commands=list(dict.fromkeys(shlex.join(summary.command) for summary in summaries)),
        folders=[str(summary.folder) for summary in summaries],
        engine_colours=ENGINES,
        chart_colours=CHART_COLOURS,
        swapped=[*ENGINES, *CHART_COLOURS.values()],
    )


def _unbroken(text: str) -> Markup:
    """A ratio and its interval stay on one line: 3.1× [2.9, 3.3]."""
    return Markup(re.sub(r"\S+ \[[^\]]*\]", r'<span class="unbroken">\g<0></span>', str(escape(text))))


def _facts(summaries: Sequence[RunSummary]) -> list[str]:
    """One line under the headline: what, where, when."""
    models = dict.fromkeys(summary.model for summary in summaries if summary.model)
    users = sorted({stage.users for summary in summaries for stage in summary.stages})
    started = min(summary.started_at for summary in summaries)
    cpus = dict.fromkeys(str(s.host["cpu"]) for s in summaries if s.host.get("cpu"))
    steps = in_words([str(step) for step in users]) if len(users) <= 5 else f"{users[0]} to {users[-1]}"
    requests = sum(stage.requests for summary in summaries for stage in summary.stages)
    return [*models, f"{steps} users", f"{format_count(requests)} requests counted", _date(started), *cpus]


def _date(iso: str) -> str:
    try:
        started = datetime.fromisoformat(iso)
    except ValueError:
        return iso
    return f"{started.day} {started:%B %Y, %H:%M} UTC"


def _cards(runs: Sequence[Named], comparison: Comparison) -> list[Card]:
    ranks = {standing.label: rank for rank, standing in enumerate(comparison.standings)}
    cards = []
    for run in sorted(runs, key=lambda run: ranks.get(run.summary.label, 0)):
        stage = run.summary.at(comparison.users) if comparison.users is not None else None
        if stage is None:
            continue
        tokens = stage.throughput
        cards.append(
            Card(
                name=run.name,
                slot=run.style.slot,
                tokens=rate(tokens.value),
                spread=format_interval(tokens.low, tokens.high),
                ttft=duration(stage.latencies["ttft"].p95.value),
                error="" if stage.client_error is None else format_error(stage.client_error),
                tpot=duration(stage.latencies["tpot"].p50.value),
                failures=format_share(stage.failure_share.value),
            )
        )
    return cards[:CARDS]


def _details(summary: RunSummary) -> dict[str, Any]:
    """Everything else, step by step: (what, one number per step)."""
    stages = summary.stages
    names = {
        "ttft": "TTFT",
        "ttft_user": "TTFT (user)",
        "ttfo": "TTFO",
        "tpot": "TPOT",
        "ntpot": "NTPOT",
        "icl": "ICL, token-weighted",
        "e2e": "E2E",
        "e2e_user": "E2E (user)",
        "send_lag": "send lag",
        "client_lag": "client lag",
    }
    latencies = [
        (f"{title} {p}", [_interval(getattr(stage.latencies[name], p)) for stage in stages])
        for name, title in names.items()
        for p in ("p50", "p90", "p95", "p99")
        if any(stage.latencies[name].n for stage in stages)
    ]
    return {"steps": [stage.users for stage in stages], "rows": [*_loads(stages), *latencies]}


def _interval(estimate: Estimate) -> tuple[Number, str]:
    if estimate.low is None:
        return duration(estimate.value), f"{MISSING}, {estimate.why}" if estimate.why else ""
    return duration(estimate.value), f"{format_seconds(estimate.low)} to {format_seconds(estimate.high)}"


def _loads(stages: Sequence[StageSummary]) -> list[tuple[str, list[tuple[Number, str]]]]:
    """Rates, concurrency, counts and telemetry, where anybody observed them."""

    def plain(value: float | None) -> tuple[Number, str]:
        return rate(value), ""

    rows = [
        ("window, seconds", [plain(stage.seconds) for stage in stages]),
        ("users there, mean", [plain(stage.users_there) for stage in stages]),
        ("requests scheduled per second", [plain(stage.offered_rate) for stage in stages]),
        ("requests completed per second", [plain(stage.achieved_rate) for stage in stages]),
        ("requests in flight", [plain(stage.concurrency.average) for stage in stages]),
        ("the same by Little's law, λW", [plain(stage.concurrency.little) for stage in stages]),
        ("tokens per second for the median user", [plain(stage.user_throughput) for stage in stages]),
        (
            "good requests per second",
            [plain(stage.attainment.goodput if stage.attainment else None) for stage in stages],
        ),
        ("prompt tokens, mean", [plain(stage.tokens.prompt) for stage in stages]),
        ("output tokens, mean", [plain(stage.tokens.output) for stage in stages]),
        ("tokens per chunk", [plain(stage.tokens.per_chunk) for stage in stages]),
        ("joules per output token", [plain(stage.energy_per_token) for stage in stages]),
        ("load generator, cores", [plain(stage.client_cpu.mean if stage.client_cpu else None) for stage in stages]),
        ("chunks per second, at most", [plain(stage.client_load) for stage in stages]),
        ("TTFT ±, by calibration", [(duration(stage.client_error), "") for stage in stages]),
        *_telemetry(stages),
    ]
    return [(what, cells) for what, cells in rows if any(number.value is not None for number, _ in cells)]


def _telemetry(stages: Sequence[StageSummary]) -> list[tuple[str, list[tuple[Number, str]]]]:
    rows = []
    for quantity in dict.fromkeys(name for stage in stages for name in stage.telemetry):
        write = format_bytes if quantity.endswith("_bytes") else _number
        cells = []
        for stage in stages:
            level = stage.telemetry.get(quantity)
            mean = None if level is None else level.mean
            cells.append((Number(mean, write(mean)), "" if level is None else f"peak {write(level.peak)}"))
        rows.append((f"server: {quantity.replace('_bytes', '').replace('_', ' ')}", cells))
    return rows


def _number(value: float | None) -> str:
    return MISSING if value is None else significant(value)


def _setup(runs: Sequence[Named]) -> list[tuple[str, list[tuple[str, list[str], bool]]]]:
    """Sections of (setting, one value per run, whether they differ)."""
    sections = []
    sources: tuple[tuple[str, Callable[[RunSummary], Mapping[str, Any]]], ...] = (
        ("Engine", lambda s: s.engine or {}),
        ("Workload", lambda s: s.workload),
        ("Load generator", lambda s: s.host),
        (
            "Versions",
            lambda s: dict(s.versions) | {"commit": s.commit, "url": s.url, "run": s.run_id, "workers": s.workers},
        ),
    )
    for title, of in sources:
        given: list[Mapping[str, Any]] = [of(run.summary) for run in runs]
        rows = []
        for key in dict.fromkeys(key for one in given for key in one):
            values = [_plain(key, one.get(key)) for one in given]
            rows.append((key.replace("_", " "), values, len(set(values)) > 1))
        if rows:
            sections.append((title, rows))
    return sections


def _plain(key: str, value: Any) -> str:
    """A setting as a person would write it."""
    if value is None or value in ([], {}, ""):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key == "memory" and isinstance(value, int):
        return format_bytes(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_plain(name, one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(key, one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
