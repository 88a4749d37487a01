"""The report as Markdown: for a pull request, a ticket or a wiki. It holds what the page holds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from urllib.parse import quote

from enginebench.analysis.compare.tables import tables_of as comparison_tables
from enginebench.analysis.console import TextTable, escaped, inert
from enginebench.analysis.report.classes import class_sentences, class_table
from enginebench.analysis.report.contents import Report
from enginebench.analysis.report.costs import cost_table
from enginebench.analysis.report.profiles import OUTSIDE, profiles_of
from enginebench.analysis.report.sections import tables_of, trend_lines
from enginebench.analysis.report.table import StageTable, stage_table
from enginebench.analysis.summary.remarks import Remark
from enginebench.records.formatting import counted, format_count


def markdown(report: Report) -> str:
    """The answer, the numbers by stage, the caveats, and then everything else."""
    title = " · ".join(dict.fromkeys(run.label for run in report.runs))
    results = stage_table(report.runs)
    screen = report.screen
    parts = [inert(f"# {title}: load test"), inert(f"**{screen.answer}**"), *_findings(report.grave)]
    parts += [] if screen.table is None else [screen.table.markdown, inert(screen.table.caption)]
    parts += [_list([f"**{heading}**: {sentence}" for heading, sentence in screen.sentences])]
    trend = [line.replace("`", "'") for line in trend_lines(report.runs)]
    parts += ["\n".join(["```text", *trend, "```"])] if trend else []
    parts += ["## Results by stage", _stages(results).markdown, *map(inert, results.notes())]
    if report.caveats:
        parts += [f"## {counted(len(report.caveats), 'caveat')}", *_findings(report.caveats)]
    parts += [_list([f"**{answer}**: {text}" for answer, text in report.judged])] if report.judged else []
    for table in tables_of(report):
        parts += _section(table)
    compared = comparison_tables(report.comparison)
    for table in compared:
        parts += _section(table)
    parts += [inert(report.criteria)] if compared else []
    classes = class_table(report.runs)
    parts += [] if classes is None else [*_section(classes), *map(inert, class_sentences(report.runs))]
    advice = [f"**{advice.heading}**: {advice.text}" for advice in report.decision.advice]
    parts += ["## Deployment recommendation", _list(advice)] if advice else []
    parts += [] if report.decision.costs is None else _section(cost_table(report.decision.costs))
    parts += map(inert, report.growth)
    profiles = profiles_of(report.runs)
    parts += ["## Profiles", OUTSIDE] if profiles else []
    for profile in profiles:
        files = ", ".join(f"[{escaped(name)}]({quote(path)})" for name, path in profile.files)
        parts += [
            inert(f"### {profile.title}"),
            inert(profile.sentence),
            "" if profile.table is None else profile.table.markdown,
            files,
        ]
    commands = dict.fromkeys(shlex.join(run.command) for run in report.runs)
    parts += ["## To repeat it", "\n".join(["```sh", *commands, "```"])]
    parts += [inert(report.decision.not_asked)] if report.decision.not_asked else []
    return "\n\n".join(filter(None, parts)) + "\n"


def _section(table: TextTable) -> list[str]:
    return [inert(f"## {table.title}"), table.markdown, inert(table.caption)]


def _findings(remarks: Sequence[Remark]) -> list[str]:
    lines = [f"**{remark.severity}** {remark.text}. → {remark.remedy}" for remark in remarks]
    return [_list(lines)] if lines else []


def _list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {inert(line)}" for line in lines)


def _stages(results: StageTable) -> TextTable:
    headers = [results.axis.title, "engine", "requests", *(["achieved, req/s"] if results.open_loop else []), "failed"]
    headers += [f"{name}, {unit}" if unit else name for name, unit in results.headers]
    rows = [
        (
            row.place.text,
            row.name,
            " ".join(filter(None, (format_count(row.requests), f"({row.remark})" if row.remark else ""))),
            *([row.achieved] if results.open_loop else []),
            " ".join(filter(None, (format_count(row.failed), f"({row.failed_share})" if row.failed else ""))),
            *(f"{cell.text} {cell.spread}".strip() for cell in row.cells),
        )
        for row in results.rows
    ]
    return TextTable("", tuple(headers), tuple(rows), (1,))
