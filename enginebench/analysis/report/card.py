"""The share card: the answer, one chart, and what the numbers came from, as one SVG that needs no other file.

enginebench report RUNS -o card.svg
"""

from __future__ import annotations

import hashlib
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, takewhile
from pathlib import Path

from markupsafe import escape

from enginebench.analysis.compare.engine_runs import since_due
from enginebench.analysis.report.axis import axis_of
from enginebench.analysis.report.charts import Styles
from enginebench.analysis.report.contents import Report
from enginebench.analysis.report.figure import Figure, FigureSource
from enginebench.analysis.report.figures import figures_of
from enginebench.analysis.report.load_charts import column_figure
from enginebench.analysis.report.palette import styles_of, variables
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.files import parts_of
from enginebench.records.formatting import counted, format_bytes, in_words
from enginebench.records.metrics import columns

WIDTH, HEIGHT, MARGIN = 1200, 675, 48  # pixels: 16:9, as services crop pictures of links
CHART = 600  # pixels of its width
PICTURE = 480  # pixels of the height of one chart alone
BOTTOM = 76  # pixels of the lines that name command, commit and records
FONT = "Helvetica Neue, Helvetica, Arial, sans-serif"
DIGITS = 16  # of the hash
MOST_LINES = 5  # of the answer


def card(report: Report) -> str:
    screen = report.screen
    size = next(size for size in (34, 26, 20) if size == 20 or len(_wrapped(screen.answer, size)) <= 3)
    lines = _wrapped(_whole_sentences(screen.answer, size), size)[:MOST_LINES]
    parts = [_text(line, MARGIN, 76 + index * size * 1.25, size, "ink", bold=True) for index, line in enumerate(lines)]
    top = 76 + len(lines) * size * 1.25
    parts += _chart(report, top)
    left = 2 * MARGIN + CHART
    room = round(1.8 * (WIDTH - left - MARGIN) / 17)
    at = top + 24
    for heading, sentence in [*screen.sentences, *_setup(report.runs)]:
        parts.append(_text(heading, left, at, 14, "muted"))
        for line in textwrap.wrap(sentence, room, max_lines=4, placeholder=" …"):
            at += 22
            parts.append(_text(line, left, at, 17, "ink"))
        at += 34
    for index, line in enumerate(_provenance(report.runs)):
        parts.append(_text(line, MARGIN, HEIGHT - 46 + 20 * index, 13, "muted", mono=True))
    return _svg(parts, WIDTH, HEIGHT)


def _whole_sentences(answer: str, size: int) -> str:
    """As many as fit, but the first in any case."""
    sentences = answer.split(". ")
    fitting = [". ".join(sentences[:count]) for count in range(len(sentences), 0, -1)]
    shown = next((text for text in fitting if len(_wrapped(text, size)) <= MOST_LINES), fitting[-1])
    return shown if shown == answer else f"{shown}."


def _wrapped(answer: str, size: int) -> list[str]:
    return textwrap.wrap(answer, round(1.65 * (WIDTH - 2 * MARGIN) / size))


def _text(text: str, x: float, y: float, size: int, colour: str, bold: bool = False, mono: bool = False) -> str:
    font = "ui-monospace, Menlo, Consolas, monospace" if mono else FONT
    weight = ' font-weight="650"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-family="{font}" fill="var(--{colour})"{weight}>'
        f"{escape(text)}</text>"
    )


def _chart(report: Report, top: float) -> list[str]:
    """The first figure of the page, with its legend: what an SLO limits, else the p99 of its metric."""
    figures = figures_of(report.runs, report.comparison, axis_of(report.runs), report.decision.laws)
    first = next(figures, None)
    if first is None:
        return []
    figure, metric = first, first.key.rpartition("-")[0]
    if not any(run.objectives for run in report.runs):
        of_metric = takewhile(lambda each: each.key.rpartition("-")[0] == metric, chain([first], figures))
        figure = next((each for each in of_metric if each.key == f"{metric}-p99"), first)
    return _drawn(figure, styles_of(run.label for run in report.runs), top, HEIGHT - BOTTOM)


def _drawn(figure: Figure, styles: Styles, top: float, bottom: float) -> list[str]:
    """Title, legend and chart, between two heights."""
    parts, left = [], float(MARGIN)
    parts.append(_text(figure.title.partition(":")[0], MARGIN, top + 24, 17, "ink", bold=True))
    for name in figure.legend:
        width = 40 + 8.5 * len(name)
        if left > MARGIN and left + width > MARGIN + CHART:
            left, top = MARGIN, top + 22
        parts.append(f'<circle cx="{left + 5:g}" cy="{top + 47:g}" r="5" fill="{styles[name].colour}"/>')
        parts.append(_text(name, left + 16, top + 52, 15, "ink"))
        left += width
    svg = figure.chart.svg
    box = re.search(r'viewBox="[\d.]+ [\d.]+ ([\d.]+) ([\d.]+)"', svg)
    room = bottom - (top + 66)
    scale = 1.0 if box is None else min(CHART / float(box[1]), room / float(box[2]))
    inner = re.sub(r"^<svg[^>]*>|</svg>\s*$", "", svg.strip())
    return [*parts, f'<g transform="translate({MARGIN} {top + 66:g}) scale({scale:.4f})">{inner}</g>']


def rivals_picture(report: Report) -> str | None:
    """TTFT p99 against the load, of the best engine and the first that is shown to hold less, else the second, with the
    SLO's limit and what both hold within it, as an SVG. A rival has a p99 at several loads, where any has. `None` where
    nothing is held within objectives."""
    comparison = report.comparison
    first = comparison.capacity(comparison.engines[0])
    if first is None or first.met is None or len(comparison.engines) < 2:
        return None
    best, *others = comparison.engines
    column = next(each for each in columns("chart", since_due(report.runs)) if each.key.endswith(" p99"))
    source = FigureSource.of(report.runs, comparison, axis_of(report.runs))
    known = (each.label for each, place in source.measured if each.column(place.label, column).value is not None)
    loads = Counter(known)
    less = {each.engine for each in comparison.capacities if each.missed and each.missed <= first.met}
    pair = (best, min(others, key=lambda label: (loads[label] < 2, label not in less, others.index(label))))
    source = replace(
        source,
        engines=tuple(each for each in source.engines if each.label in pair),
        capacities=tuple(each for each in source.capacities if each.engine in pair),
    )
    figure = column_figure(source, column)
    if figure is None:
        return None
    held = figure.title.partition(": ")[2]
    note = _text(f"Bands: 95 % intervals. Dotted lines: {held}.", MARGIN, PICTURE - 16, 14, "muted")
    drawn = _drawn(replace(figure, legend=pair), source.styles, MARGIN / 4, PICTURE - 40)
    return _svg([*drawn, note], CHART + 2 * MARGIN, PICTURE)


def _svg(parts: Sequence[str], width: float, height: float) -> str:
    """Not every program that shows an SVG knows variables of CSS."""
    colours, body = variables("light"), "\n".join(parts)
    drawing = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<rect width="{width}" height="{height}" fill="var(--page)"/>\n{body}\n</svg>\n'
    )
    return re.sub(r"var\(--([\w-]+)\)", lambda match: colours[match[1]], drawing)


def _setup(summaries: Sequence[RunSummary]) -> list[tuple[str, str]]:
    """Hardware, model and how much was measured."""
    hosts = []
    for run in summaries:
        gpus = [str(gpu.get("name")) for gpu in run.host.get("gpus") or () if isinstance(gpu, dict)]
        memory = run.host.get("memory")
        machine = [run.host.get("cpu"), f"{run.host['cores']} cores" if run.host.get("cores") else None, *gpus]
        machine += [format_bytes(memory)] if isinstance(memory, int) else []
        hosts.append(", ".join(str(part) for part in machine if part))
    models = [run.model for run in summaries if run.model]
    requests = sum(stage.requests for run in summaries for stage in run.stages)
    measured = f"{counted(requests, 'request')} in {counted(len(summaries), 'run')}, {summaries[0].started_at[:10]}"
    facts = {"hardware": in_words(_distinct(hosts)), "model": in_words(_distinct(models)), "measured": measured}
    return [(name, fact) for name, fact in facts.items() if fact]


def _distinct(values: Sequence[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]


def _provenance(summaries: Sequence[RunSummary]) -> list[str]:
    """The command, the commit, and the hash of the records."""
    command = shlex.join(summaries[0].command)
    commits = _distinct([str(run.commit or "") for run in summaries])
    commit = f"commit {in_words([each[:12] for each in commits])}" if commits else "no commit"
    records = f"records sha256 {records_hash([run.folder for run in summaries])[:DIGITS]}"
    return [textwrap.shorten(command, 140, placeholder=" …"), f"{records} · {commit} · enginebench"]


def records_hash(folders: Sequence[Path]) -> str:
    """As `cat RUN/requests*.jsonl … | sha256sum` has it, with the runs in the order of their names."""
    digest = hashlib.sha256()
    for folder in sorted(folders, key=lambda path: path.name):
        for path in parts_of(folder, "requests*.jsonl"):
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()
