"""The report in a terminal: the answer, one picture, the numbers, and then what speaks against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from enginebench.analysis.compare.tables import LEFT_OUT, STYLES, criteria, overview_of
from enginebench.analysis.console import CAUTION, GOOD, PIPE_WIDTH, TextTable, print_table, ruled_table, warning
from enginebench.analysis.first_screen import PlannedReplicas, print_first_screen
from enginebench.analysis.report.classes import class_sentences, class_table
from enginebench.analysis.report.contents import Report
from enginebench.analysis.report.costs import cost_table
from enginebench.analysis.report.profiles import profiles_of
from enginebench.analysis.report.sections import matrix_table, tables_of, trend_lines
from enginebench.analysis.report.table import Cell, StageTable, stage_table
from enginebench.analysis.summary.remarks import caveats_line, print_remarks
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import counted, format_count
from enginebench.records.rules import SloAnswer

ANSWERS: dict[SloAnswer, str] = {"met": GOOD, "not enough evidence": CAUTION, "missed": "bold red"}
COSTS_LEFT_OUT = (
    *("replica hours per 1M tokens", "requests per GPU-hour", "requests per replica-hour", "saving", "tokens/s"),
    *("price of an hour", "differs in"),
)
TABLE_ROWS = 12  # of the stages and of a capacity matrix, up to which a terminal shows them
Lines = tuple[str, str]  # a number, and under it its spread
Side = Literal["left", "right"]
Fact = tuple[str, str, list[Lines], Side]  # title, what its second lines are, the cells


def print_report(console: Console, report: Report) -> None:
    print_first_screen(console, report.screen)
    print_remarks(console, report.grave)
    stages, compared = stage_table(report.runs), overview_of(report.comparison)  # `enginebench compare` has all
    for line in trend_lines(report.runs):
        console.print(Text(line), no_wrap=True, overflow="ellipsis")
    if compared and len(stages.rows) > TABLE_ROWS:
        console.print()
        print_table(console, compared[-1], LEFT_OUT, STYLES)
        _print_caveats(console, report)
    else:
        _print_numbers(console, report, stages, compared)
    refused = [each for each in report.decision.replicas if each.count is None]
    _print_block(console, [f"{each.engine}: {each.sentence}" for each in refused])
    for profile in profiles_of(report.runs):
        hottest = profile.table.rows[0][:2] if profile.table is not None else ()
        text = f"Profile of {profile.title}: {' '.join(reversed(hottest)) or profile.sentence}"
        console.print(Text(f"{text}; {profile.files[0][1]}" if profile.files else text))
    for planned in report.decision.replicas:
        _print_warning(console, planned)
    if compared and len(stages.rows) > TABLE_ROWS:
        console.print(Text(_elsewhere(report)))
    if report.decision.not_asked:
        console.print(Text(report.decision.not_asked, style="dim"))


def _print_numbers(console: Console, report: Report, stages: StageTable, compared: Sequence[TextTable]) -> None:
    _print_stages(console, stages)
    _print_caveats(console, report)
    for judged, text in report.judged:
        console.print(Text.assemble((f"{judged}: ", ANSWERS[judged]), text))
    _print_block(console, [] if not report.judged else [""])
    matrix, holds = matrix_table(report), any(capacity.met is not None for capacity in report.matrix)
    for table in tables_of(report):
        if table != matrix or (holds and len(table.rows) <= TABLE_ROWS):
            print_table(console, table, ("because", "undecided", "to"), STYLES)
    for table in compared:
        print_table(console, table, LEFT_OUT, STYLES)
    _print_block(console, [criteria(report.comparison), ""] if compared else [])
    _print_classes(console, report.runs)
    if report.decision.costs is not None and any(cost.price is not None for cost in report.decision.costs.engines):
        print_table(console, cost_table(report.decision.costs), COSTS_LEFT_OUT)
    limits = [f"{each.engine}: {each.text}" for each in report.decision.advice if each.topic == "limit"]
    _print_block(console, [*report.growth, *limits])


def _elsewhere(report: Report) -> str:
    """What a terminal goes without where there are many engines and loads."""
    where = "The report" if report.report is not None else "A report in a file (-o report.html)"
    has = "TTFT, TPOT and the other metrics at every load, with charts, limits and costs"
    return f"{where} also has {has}; `enginebench compare` has all tests."


def _print_warning(console: Console, planned: PlannedReplicas) -> None:
    """The first one of a plan in full, and how many more the page has."""
    if planned.warnings:
        more = f" ({len(planned.warnings) - 1} more on the page)" if len(planned.warnings) > 1 else ""
        console.print(warning(f"{planned.engine}: {planned.warnings[0]}{more}."))


def _print_block(console: Console, lines: Sequence[str]) -> None:
    for line in lines:
        console.print(Text(line))


def _print_stages(console: Console, results: StageTable) -> None:
    tables = (_wide_table(results), _narrow_table(results), _bare_table(results))
    room = console.options.update(width=10 * PIPE_WIDTH)  # to measure a table as wide as it would like to be
    widths = [console.measure(table, options=room).maximum for table in tables]
    fitting = next((index for index, width in enumerate(widths) if width <= console.width), None)
    if fitting is None:  # better broken by the terminal than cut off
        Console(file=console.file, highlight=False, markup=False, width=widths[-1]).print(tables[-1])
    else:
        console.print(tables[fitting])
    spreads = fitting in {0, 1}
    wider = f"A terminal of {min(widths[:2])} columns shows the 95 % intervals too; so does the HTML report."
    for note in [*results.notes(spreads), *([] if spreads else [wider])]:
        console.print(Text(note, style="dim"))
    console.print()


def _wide_table(results: StageTable) -> Table:
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
    return cell.narrow_spread if cell.answered is not None else cell.spread


def _narrow_table(results: StageTable) -> Table:
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


def _bare_table(results: StageTable) -> Table:
    """For less than that: the numbers alone."""
    return _table(
        results,
        [_stages(results), ("engine", "", [(row.name, "") for row in results.rows], "left")],
        [[(cell.text, "") for cell in row.cells] for row in results.rows],
    )


def _stages(results: StageTable) -> Fact:
    """Each stage is named on its first row only."""
    texts = [row.place.text for row in results.rows]
    once = [text if index == 0 or texts[index - 1] != text else "" for index, text in enumerate(texts)]
    side: Side = "right" if results.axis.quantitative else "left"
    return results.axis.title, "", [(text, "") for text in once], side


def _table(results: StageTable, facts: list[Fact], numbers: list[list[Lines]], gap: int = 1) -> Table:
    """Texts are padded here, not by Rich, which would strip the spaces that hold decimal points in line."""
    table = ruled_table(gap=gap)
    cells: list[list[Text]] = []
    for title, under, lines, side in facts:
        cells.append(_column(table, title, under, lines, side))
    for index, (title, unit) in enumerate(results.headers):
        cells.append(_column(table, title, unit, [row[index] for row in numbers], "right"))
    following = [*(row.place for row in results.rows[1:]), None]
    several = len({row.name for row in results.rows}) > 1
    for row, of_row, place in zip(results.rows, zip(*cells, strict=True), following, strict=True):
        table.add_row(*of_row, end_section=place is None or (several and row.place != place))
    return table


def _column(table: Table, title: str, unit: str, lines: list[Lines], side: Side) -> list[Text]:
    width = max(len(text) for pair in [(title, unit), *lines] for text in pair)

    def pad(text: str) -> str:
        return text.ljust(width) if side == "left" else text.rjust(width)

    table.add_column(f"{pad(title)}\n{pad(unit)}", no_wrap=True)
    return [
        Text.assemble(pad(first), ("\n" + pad(second), "dim")) if second else Text(pad(first))
        for first, second in lines
    ]


def _print_classes(console: Console, summaries: Sequence[RunSummary]) -> None:
    """Where requests have classes: a line for each at every stage, and what each loses beside the others."""
    table = class_table(summaries, spreads=False)
    if table is None:
        return
    print_table(console, table, [""], STYLES)
    _print_block(console, [*class_sentences(summaries), ""])


def _print_caveats(console: Console, report: Report) -> None:
    """Findings that do not invalidate: how many, and in full only where there is no page to explain them."""
    if not report.caveats:
        return
    if report.report is None:
        console.print(Text(counted(len(report.caveats), "caveat"), style="bold"))
        print_remarks(console, report.caveats)
    else:
        console.print(Text(caveats_line(report.caveats, "report"), style="dim"))
        console.print()
