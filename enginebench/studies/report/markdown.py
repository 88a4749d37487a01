"""The report of a study as Markdown: what the page holds, with the numbers of each chart in the chart's place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from urllib.parse import quote

from enginebench.analysis.console import TextTable, escaped, inert
from enginebench.analysis.summary.remarks import Remark
from enginebench.studies.report.page import StudyPage
from enginebench.studies.report.section import Section, numbers_table


def markdown(page: StudyPage) -> str:
    screen = page.screen
    answer, limits = page.decision
    facts = " · ".join(page.facts)
    parts = [*map(inert, (f"# {page.study.source.title}", f"**{answer}**", limits, facts)), _findings(page.grave)]
    parts += [] if screen.table is None else [screen.table.markdown, inert(screen.table.caption)]
    parts += [_list([f"**{heading}**: {sentence}" for heading, sentence in screen.sentences])]
    parts += [] if page.first is None else list(_folded(numbers_table(page.first)))
    for section in page.sections:
        parts += _section(section)
    parts += ["## What speaks against the numbers", _findings(page.caveats)] if page.caveats else []
    return "\n\n".join(filter(None, parts)) + "\n"


def _findings(found: Sequence[Remark]) -> str:
    return _list([f"**{one.severity}** {one.text}. → {one.remedy}" for one in found])


def _section(section: Section) -> Iterator[str]:
    yield inert(f"## {section.title}")
    yield from map(inert, section.sentences)
    for figure in section.figures:
        yield from _folded(numbers_table(figure))
    for table in section.tables:
        yield from [inert(f"### {table.title}")] if table.title != section.title else []
        yield from (table.markdown, inert(table.caption))
    yield _list([f"**{heading}**: {sentence}" for heading, sentence in section.advice])
    for table in section.folded:
        yield from _folded(table)
    files = ", ".join(f"[{escaped(path)}]({quote(path)})" for path in section.links)
    yield f"Files: {files}" if files else ""
    yield "\n".join(["```sh", *section.code, "```"]) if section.code else ""


def _folded(table: TextTable) -> Iterator[str]:
    yield f"<details><summary>{escape(table.title, quote=False)}</summary>"
    yield from (inert(table.caption), table.markdown)
    yield "</details>"


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {inert(line)}" for line in lines)
