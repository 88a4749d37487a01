"""The report as one HTML file: no network, for light and dark screens, paper and telephones.

enginebench report runs/<id> runs/<id>
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from enginebench.analysis.compare.engine_runs import stages_of
from enginebench.analysis.compare.tables import overview_of
from enginebench.analysis.compare.tables import tables_of as comparison_tables
from enginebench.analysis.console import TextTable
from enginebench.analysis.report.axis import axis_of
from enginebench.analysis.report.charts import Styles, vega_script
from enginebench.analysis.report.classes import class_sentences, class_table
from enginebench.analysis.report.contents import Report
from enginebench.analysis.report.costs import cost_table
from enginebench.analysis.report.details import details_of, setup_of
from enginebench.analysis.report.figures import figures_of, reading_of
from enginebench.analysis.report.palette import styles_of, variables
from enginebench.analysis.report.profiles import OUTSIDE, profiles_of
from enginebench.analysis.report.sections import tables_of
from enginebench.analysis.report.table import names_of, stage_table
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import counted, join_labels
from enginebench.records.metrics import ICL, QUANTITIES, REQUEST_METRICS


def render(report: Report) -> str:
    summaries = report.runs
    styles, results = styles_of(run.label for run in summaries), stage_table(summaries)
    figures = list(figures_of(summaries, report.comparison, axis_of(summaries), {}))
    classes, costs = class_table(summaries), report.decision.costs
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            **shell(" · ".join(styles), "load test", styles),
            report=report,
            facts=facts_of(summaries),
            screen=report.screen,
            first=figures[0] if figures else None,
            figures=figures[1:],
            reading=reading_of(summaries),
            results=results,
            tables=tables_of(report),
            compared=comparison_tables(report.comparison),
            shown=len(overview_of(report.comparison)),
            classes=classes,
            class_sentences=class_sentences(summaries),
            costs=None if costs is None else cost_table(costs),
            details=details_of(summaries),
            names=names_of(summaries),
            setup=setup_of(summaries),
            metrics=(*REQUEST_METRICS, ICL),
            quantities=QUANTITIES,
            profiles=profiles_of(summaries, Path(report.report).parent if report.report else None),
            outside=OUTSIDE,
            commands=list(dict.fromkeys(shlex.join(run.command) for run in summaries)),
            folders=[str(run.folder) for run in summaries],
        )
    )


def shell(title: str, kind: str, styles: Styles) -> dict[str, Any]:
    """What `base.html.j2` and `parts.html.j2` need of every page."""
    return {
        "title": title,
        "kind": kind,
        "slots": {label: style.slot for label, style in styles.items()},
        "light": variables("light"),
        "dark": variables("dark"),
        "vega": vega_script(),
    }


def facts_of(summaries: Sequence[RunSummary]) -> list[str]:
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


def environment(*packages: str) -> Environment:
    """Templates of this package, and of others that extend them."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in ("enginebench.analysis.report", *packages)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"unbroken": _unbroken, "code": _code, "slug": _slug}
    return environment


def _code(text: str) -> Markup:
    """`what is typed` is set as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _unbroken(text: str) -> Markup:
    """A ratio and its interval stay on one line, as a limit and its unit do: 3.1× [2.9, 3.3], ≤ 300 ms."""
    return Markup(
        re.sub(r"\S+ \[[^\]]*\]|≤ [\d.,]+ [a-zµ]+", r'<span class="unbroken">\g<0></span>', str(escape(text)))
    )


def _slug(table: TextTable) -> str:
    """An anchor for a table."""
    return re.sub(r"\W+", "-", table.title.lower()).strip("-")
