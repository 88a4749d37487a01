from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from enginebench.analysis.answer import NoAnswer
from enginebench.analysis.document import Code, Column, Document, NextStep, Section, Table, Word
from enginebench.analysis.write.terminal import print_document
from tests.support.analysis import documents


def printed(document: Document, width: int = 80, **more: bool) -> str:
    console = Console(file=StringIO(), width=width, highlight=False, markup=False, **more)  # type: ignore[arg-type]
    print_document(console, document)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


QUICK = """\
Tested   mock at 127.0.0.1:8300 · 32-token prompts, 48-token answers · closed
         loop, 1, 4, 8 and 16 users · one run of 6 to 20 s per load · AMD EPYC,
         2 cores, no GPU · 28 Nov 2026
SLO      time to first token (TTFT) p95 ≤ 600 ms and time per output token
         (TPOT) p95 ≤ 60 ms

8 users meet the SLO (TTFT p95 80.3 ms, TPOT p95 27.1 ms, 46 of 46 requests, not
confirmed); 16 do not (TTFT p95 1.50 s). At 16 the server's queue dominates
TTFT.

                  within     TTFT     TPOT    output
users  status    the SLO      p95      p95  tokens/s
────────────────────────────────────────────────────
    1     met     9 of 9  48.0 ms  16.5 ms      60.1
    4     met   31 of 31  63.0 ms  21.2 ms       183
    8    met*  46 of 46*  80.3 ms  27.1 ms       277
   16  missed    3 of 52   1.50 s  30.2 ms       279

* not confirmed: a longer test or more repeats are needed; unmarked: confirmed,
with 95 % confidence

TTFT p95, SLO ≤ 600 ms
 1.50 s ┤                                                              ●
        ┤
 600 ms ┤┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
        ┤
        ┤
        ┤
        ┤                               ●              ●
48.0 ms ┤●
        └┬──────────────────────────────┬──────────────┬───────────────┬ users
         1                              4              8              16

Next     Find the highest load of mock within the SLO, between 8 and 16 users
         enginebench run capacity http://127.0.0.1:8300 --slo ttft_p95=600ms,tpot_p95=60ms

Warning
warn     only 46 requests at 8 users (mock, 8 users)
         → measure longer

To repeat it
  enginebench quick http://127.0.0.1:8300
"""


def test_a_first_screen() -> None:
    assert printed(documents.quick()) == QUICK


@pytest.mark.parametrize("width", [60, 80, 120])
def test_nothing_but_commands_is_wider_than_the_terminal(width: int) -> None:
    for document in (documents.quick(), documents.contenders(), documents.burst(), documents.gate()):
        lines = [line for line in printed(document, width).splitlines() if "enginebench " not in line]
        assert max(map(cell_len, lines)) <= width


def table_lines(width: int) -> list[str]:
    text = printed(documents.contenders(), width)
    return [line.rstrip() for line in text.split("\n\n")[2].splitlines()]


def test_intervals_stand_next_to_their_numbers_in_a_wide_terminal() -> None:
    assert "408 [405, 411]  1.46× a [1.45, 1.47]  210 ms" in table_lines(120)[-2]


def test_a_narrow_terminal_puts_intervals_below_and_names_the_columns_it_leaves_out() -> None:
    assert table_lines(80)[-6:] == [
        "b                   24   403 of 403         408  210 ms               5",
        "        (missed at 28)               [405, 411]          (simulated: 6)",
        "a                  10*  141 of 143*         279  2.97 s             12*",
        "        (missed at 12)               [278, 280]",
        "Left out: compared with the next row and a month (see a wider terminal, the page",
        "or --json).",
    ]
    narrow = printed(documents.contenders(), 60)
    assert "Left out: compared with the next row, TTFT p95, replicas and\na month (see a wider" in narrow


def test_without_colours_nothing_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[38" not in printed(documents.quick(), force_terminal=True)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[38" in printed(documents.quick(), force_terminal=True)


def test_labels_cannot_move_the_cursor_and_long_ones_are_broken() -> None:
    rows = ((Word("\x1b[2Jx" * 30), Word("met")),)
    table = Table("candidates", "", (Column("engine", text=True), Column("status")), rows)
    text = printed(documents.document(NoAnswer.NOTHING_MEASURED, table))
    assert "\x1b" not in text
    assert text.count("[2Jx") >= 28


def test_long_tables_say_how_many_rows_are_left_out() -> None:
    table = Table("all", "All loads", (Column("x"),), ((Word("1"),),) * 45)
    sections = (Section("all", "All", (table,)), Section("more", "Folded", (Code(("x",)),), True))
    text = printed(documents.document(NoAnswer.NOTHING_MEASURED, sections=sections))
    assert "Left out: 5 more rows (see a wider terminal, the page or --json)." in text
    assert "Folded" not in text


def test_a_command_is_one_line_however_long() -> None:
    step = NextStep("search", ("enginebench", *("run",) * 60))
    lines = printed(documents.document(NoAnswer.NOTHING_MEASURED, next=step)).splitlines()
    assert lines[-1].endswith("enginebench" + " run" * 60)
