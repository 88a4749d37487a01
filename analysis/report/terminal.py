"""The report in a terminal: one table, the findings, and a sentence that says what it means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from analysis.compare.engine_runs import Contender, contenders_of
from analysis.compare.knee import growth_sentences
from analysis.compare.winner import Comparison
from analysis.console import PIPE_WIDTH, ruled_table
from analysis.report.axis import axis_of
from analysis.report.classes import Classes, classes_of_runs
from analysis.report.remarks import remarks
from analysis.report.rows import Cell, Results, results_of
from analysis.report.search import Searches, searches_of
from analysis.stats.intervals import Answer, needed
from analysis.summary.finding import Finding
from analysis.summary.run_summary import RunSummary
from analysis.summary.slo import agreed, overall
from records.formatting import format_count, format_seconds, format_share, join_labels
from records.slo import Objective

STYLES = {"invalid": "bold red", "warn": "yellow", "note": "dim"}
ANSWERS: dict[Answer, str] = {"met": "green", "not enough evidence": "yellow", "missed": "bold red"}
SPREADS = (
    f"Second lines: 95 % intervals. 42 < {needed(0.99)}: the interval needs {needed(0.99)} requests, and there are 42. "
    "≈: effective sample size after correlation."
)
ANSWERED = (
    "failed: the percentile falls among failed requests, which had no answer; ok: the same of the answered requests."
)
UNBOUNDED = "∞: the upper end lies beyond the largest value observed."
Lines = tuple[str, str]  # a number, and under it its spread
Side = Literal["left", "right"]
Fact = tuple[str, str, list[Lines], Side]  # title, what its second lines are, the cells


def print_report(console: Console, summaries: Sequence[RunSummary], comparison: Comparison) -> None:
    """Table, findings, objectives and the closing sentence."""
    results = results_of(summaries)
    tables = (_wide_table(results), _narrow_table(results), _bare_table(results))
    room = console.options.update(width=10 * PIPE_WIDTH)  # to measure a table as wide as it would like to be
    widths = [console.measure(table, options=room).maximum for table in tables]
    fitting = next((index for index, width in enumerate(widths) if width <= console.width), None)
    if fitting is None:  # better broken by the terminal than cut off
        Console(file=console.file, highlight=False, markup=False, width=widths[-1]).print(tables[-1])
    else:
        console.print(tables[fitting])
    wider = f"A terminal of {min(widths[:2])} columns shows the 95 % intervals too; so does the HTML report."
    console.print(Text(SPREADS if fitting in {0, 1} else wider, style="dim"))
    if any(cell.answered for row in results.rows for cell in row.cells):
        console.print(Text(ANSWERED, style="dim"))
    if fitting in {0, 1} and any(cell.estimate.unbounded for row in results.rows for cell in row.cells):
        console.print(Text(UNBOUNDED, style="dim"))
    if results.accuracy:
        console.print(Text(results.accuracy, style="dim"))
    console.print()
    _print_classes(console, classes_of_runs(summaries))
    findings = [*comparison.findings, *(finding for s in summaries for finding in s.findings)]
    print_findings(console, findings, [summary.label for summary in summaries])
    _print_objectives(console, summaries)
    _print_search(console, searches_of(summaries))
    for sentence in growth_sentences(summaries):
        console.print(Text(sentence))
    console.print(Text(comparison.sentence, style="bold"))


def _wide_table(results: Results) -> Table:
    """Everything in columns of its own."""
    achieved: Fact = ("achieved", "req/s", [(row.achieved, "") for row in results.rows], "right")
    return _table(
        results,
        [
            _stages(results),
            ("engine", "", [(row.name, "") for row in results.rows], "left"),
            ("requests", "", [(format_count(row.requests), row.remark) for row in results.rows], "right"),
            *([achieved] if results.open_loop else []),
            ("failed", "", [(format_count(row.failed), row.failed_share) for row in results.rows], "right"),
        ],
        [[(cell.text, _bracketed(cell)) for cell in row.cells] for row in results.rows],
    )


def _bracketed(cell: Cell) -> str:
    return cell.spread if cell.low is not None and cell.answered is None else cell.narrow_spread


def _narrow_table(results: Results) -> Table:
    """For 80 columns: requests under the engine, stages beside it, and no brackets."""
    counts = [
        format_count(row.requests) + (f", {format_count(row.failed)} failed" if row.failed else "")
        for row in results.rows
    ]
    engines = [(row.name, count) for row, count in zip(results.rows, counts, strict=True)]
    return _table(
        results,
        [_stages(results), ("engine", "requests", engines, "left")],
        [[(cell.text, cell.narrow_spread) for cell in row.cells] for row in results.rows],
        gap=0,
    )


def _bare_table(results: Results) -> Table:
    """For less than that: the numbers alone."""
    return _table(
        results,
        [_stages(results), ("engine", "", [(row.name, "") for row in results.rows], "left")],
        [[(cell.text, "") for cell in row.cells] for row in results.rows],
    )


def _stages(results: Results) -> Fact:
    """Each stage is named on its first row only."""
    texts = [row.place.text for row in results.rows]
    once = [text if index == 0 or texts[index - 1] != text else "" for index, text in enumerate(texts)]
    side: Side = "right" if results.axis.quantitative else "left"
    return results.axis.title, "", [(text, "") for text in once], side


def _table(results: Results, facts: list[Fact], numbers: list[list[Lines]], gap: int = 1) -> Table:
    """Texts are padded here, not by Rich, which would strip the spaces that hold decimal points in line."""
    table = ruled_table(gap=gap)
    columns: list[list[Text]] = []
    for title, under, lines, side in facts:
        columns.append(_column(table, title, under, lines, side))
    for index, (title, unit) in enumerate(results.headers):
        columns.append(_column(table, title, unit, [row[index] for row in numbers], "right"))
    following = [*(row.place for row in results.rows[1:]), None]
    several = len({row.name for row in results.rows}) > 1
    for row, cells, place in zip(results.rows, zip(*columns, strict=True), following, strict=True):
        table.add_row(*cells, end_section=place is None or (several and row.place != place))
    return table


def _column(table: Table, title: str, unit: str, lines: list[Lines], side: Side) -> list[Text]:
    width = max(len(text) for pair in [(title, unit), *lines] for text in pair)

    def pad(text: str) -> str:
        return text.rjust(width) if side == "right" else text.ljust(width)

    head = Text.assemble((pad(title), "bold"), *([("\n" + pad(unit), "not bold dim")] if unit else []))
    table.add_column(head, no_wrap=True)
    return [
        Text.assemble(pad(first), ("\n" + pad(second), "dim")) if second else Text(pad(first))
        for first, second in lines
    ]


def _print_classes(console: Console, classes: Classes | None) -> None:
    """Where requests have classes: a line for each at every stage, and what each loses beside the others."""
    if classes is None:
        return
    numbered = ("requests", "failed", *(f"{name}\n{under}" for name, under in classes.headers))
    table = ruled_table(("class", "stage", "engine"), numbered, ("objectives",))
    for row in classes.rows:
        counts = (format_count(row.requests), format_count(row.failed))
        numbers = [number.text for number, _ in row.cells]
        answer = Text(row.answer or "", style=ANSWERS[row.answer] if row.answer else "")
        table.add_row(row.name, row.stage, row.engine, *counts, *numbers, answer)
    console.print(table)
    for sentence in classes.sentences:
        console.print(Text(sentence))
    console.print()


def print_findings(console: Console, findings: Sequence[Finding], labels: Sequence[str] = ()) -> None:
    """`labels` are those of all runs."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for remark in remarks(findings, labels):
        where = f"{remark.where}: " if remark.where else ""
        grid.add_row(Text(remark.severity, style=STYLES[remark.severity]), Text(f"{where}{remark.evidence}."))
        grid.add_row("", Text(f"→ {remark.remedy}", style="dim"))
    if findings:
        console.print(grid)
        console.print()


def _print_objectives(console: Console, summaries: Sequence[RunSummary]) -> None:
    lines = objective_lines(summaries)
    for answer, text in lines:
        console.print(Text.assemble((f"{answer}: ", ANSWERS[answer]), text))
    if lines:
        console.print()


def _print_search(console: Console, searches: Searches | None) -> None:
    """The probes of a search for capacity, and what it found."""
    if searches is None:
        return
    several = len({row.engine for row in searches.rows}) > 1
    table = ruled_table(["engine"] if several else [], ["probe", searches.unit], ["to"])
    for title in ("requests", *(f"{objective}\neffective" for objective in searches.objectives)):
        table.add_column(title, justify="right")
    table.add_column("found")
    for row in searches.rows:
        shares = [f"{share} {effective}" for share, effective in row.shares] or ["" for _ in searches.objectives]
        found = Text.assemble((row.answer, ANSWERS[row.answer]), f", {row.reason}")
        engine = [row.engine] if several else []
        table.add_row(*engine, f"{row.number}", row.load, row.purpose, format_count(row.requests), *shares, found)
    console.print(table)
    console.print(Text(searches.error_rate, style="dim"))
    console.print()


def objective_lines(summaries: Sequence[RunSummary]) -> list[tuple[Answer, str]]:
    """For each engine and objective: its answer over all stages, and a sentence on which stages gave which."""
    axis = axis_of(summaries)
    return [
        _objective(contender, axis.labels, index, objective)
        for contender in contenders_of(summaries)
        if contender.runs[0].search is None  # a search has a table of its own
        for index, objective in enumerate(contender.runs[0].objectives)
    ]


def _objective(contender: Contender, labels: Sequence[str], index: int, objective: Objective) -> tuple[Answer, str]:
    by_answer: dict[Answer, dict[str, float]] = {answer: {} for answer in ANSWERS}
    for label in labels:
        judged = [stage.attainment.verdicts[index] for stage in contender.at(label) if stage.attainment is not None]
        if judged:
            shares = [verdict.share.value or 0.0 for verdict in judged]
            by_answer[agreed(verdict.answer for verdict in judged)][label] = sum(shares) / len(shares)
    said = []
    for answer, shares_at in by_answer.items():
        if shares_at:
            within = f" ({format_share(list(shares_at.values())[-1])} within)" if answer != "met" else ""
            said.append(f"{answer} at {join_labels(list(shares_at))}{within}")
    most = format_share(1 - objective.q) if objective.column is None else format_seconds(objective.limit)
    limit = f"{objective.name} ≤ {most}"
    runs = f" ({len(contender.runs)} runs)" if len(contender.runs) > 1 else ""
    text = f"{contender.label}{runs}, {limit}: {'; '.join(said) or 'no requests to judge'}"
    found = [answer for answer, shares_at in by_answer.items() if shares_at]
    return overall(found) if found else "not enough evidence", text
