from dataclasses import replace

import pytest

from enginebench.analysis.answer import NoAnswer
from enginebench.analysis.document import Code, Column, Number, Section, Table, Warning, Word
from enginebench.analysis.write.markdown import escaped, markdown, table
from enginebench.records.view import Estimate
from tests.support.analysis import documents

PARTS = (
    "# Load test\n\n**8 users meet the SLO (TTFT p95 80.3 ms, ",
    "28 Nov 2026  \nSLO: time to first token (TTFT) p95 ≤ 600 ms",
    "| users | status | within the SLO | TTFT p95 | TPOT p95 | output tokens/s |\n| ---: | ---: |",
    "|\n| 8 | met* | 46 of 46* | 80.3 ms | 27.1 ms | 277 |\n",
    "\n\\* not confirmed: a longer test or more repeats are needed; unmarked: confirmed",
    "\n![TTFT p95 by load](charts/ttft.svg)\n\n**Next:** Find the highest load of mock within the SLO",
    "\n```sh\nenginebench run capacity http://127.0.0.1:8300 --slo ttft_p95=600ms,tpot_p95=60ms\n```\n",
    "\n**Warning**\n\n- **warn** only 46 requests at 8 users (mock, 8 users) → measure longer\n",
    "\n## To repeat it\n\n```sh\nenginebench quick http://127.0.0.1:8300\n```\n",
    "\n<details><summary>How it was measured</summary>\n\n```sh\nuname -a\n```\n\n</details>\n",
)


def test_a_document() -> None:
    text = markdown(documents.quick(), {"ttft": "charts/ttft.svg"})
    places = [text.index(part) for part in PARTS]
    assert places == sorted(places)


def test_without_pictures_a_chart_is_a_table_if_it_is_short() -> None:
    assert "|  | load users | TTFT p95 s |\n| :--- | ---: | ---: |\n| mock | 1 | 48.0 ms |" in markdown(
        documents.quick()
    )
    assert "18.1 s" not in markdown(documents.burst()), "200 points are no table"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b*c`d|e", r"a\_b\*c\`d\|e"),
        ("[x](http://y)", r"\[x\](http\://y)"),
        ("www.example.org", r"www\.example.org"),
        ("<b>&amp;", r"\<b\>\&amp;"),
        ("@someone #12", "@\u2060someone \\#12"),
        ("a\nb\x1b", "a b"),
    ],
)
def test_labels_are_shown_literally(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_fences_are_longer_than_those_inside_and_typed_words_stay_code() -> None:
    warnings = (Warning("k", "note", "run `a_b` now", ""), Warning("k", "note", "a `_", ""))
    table = Table("t", "", (Column("engine", text=True),), ((Word("a|b"),),))
    section = Section("s", "S", (Code(("```", "x")), table))
    text = markdown(documents.document(NoAnswer.ALL_FAILED, warnings=warnings, sections=(section,)))
    assert "````sh\n```\nx\n````" in text
    assert "- **note** run `a_b` now\n- **note** a \\`\\_\n" in text
    assert "| a\\|b |" in text
    assert markdown(replace(documents.quick(), candidates=None)).startswith("# Load test\n\n**8 users")


def test_a_label_in_a_number_is_escaped() -> None:
    ratio = Number(Estimate(2.1, 1.7, 2.4, 3), style="ratio", significant=True, over="a|<b>")
    row = table(Table("t", "T", (Column("compared with the next row"),), ((ratio,),))).splitlines()[-1]
    assert row == r"| 2.1× a\|\<b\> [1.7, 2.4] |"
