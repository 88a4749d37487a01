from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from enginebench.analysis.answer import NoAnswer
from enginebench.analysis.document import Code, Column, Document, Section, Table, Warning, Word
from enginebench.analysis.write.html import page
from enginebench.analysis.write.sentence import sentence
from tests.support.analysis import documents

VOID = {"meta", "input"}


class Reader(HTMLParser):
    """Checks that tags are closed in order, and collects the text that is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = dict(attrs)
        self.links += [value for name in ("href", "src") if (value := names.get(name))]
        self.ids += [value] if (value := names.get("id")) else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in {"style", "title"}:
            self.texts.append(data.replace("\u00a0", " "))

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.mark.parametrize("name", ["quick", "contenders", "burst", "gate"])
def test_a_page_is_well_formed_and_needs_no_network_and_no_script(name: str) -> None:
    document: Document = getattr(documents, name)()
    text = page(document)
    reader = Reader(text)
    assert reader.open == []
    assert sentence(document.answer) in reader.text
    assert len(reader.ids) == len(set(reader.ids))
    assert all(link.startswith("#") for link in reader.links)
    assert "<script" not in text
    assert "http-equiv" not in text


def test_the_page_says_what_the_terminal_says() -> None:
    text = Reader(page(documents.quick())).text
    for part in (
        "mock at 127.0.0.1:8300 · 32-token prompts, 48-token answers · closed loop, 1, 4, 8 and 16 users · one run",
        "time to first token (TTFT) p95 ≤ 600 ms and time per output token (TPOT) p95 ≤ 60 ms",
        "users status within the SLO TTFT p95 TPOT p95 output tokens/s 1 met 9 of 9 48.0 ms 16.5 ms 60.1",
        "8 met* 46 of 46* 80.3 ms 27.1 ms 277",
        "* not confirmed: a longer test or more repeats are needed; unmarked: confirmed, with 95 % confidence",
        "Next: Find the highest load of mock within the SLO, between 8 and 16 users enginebench run",
        "Warning warn only 46 requests at 8 users (mock, 8 users) → measure longer",
        "To repeat it How it was measured",
    ):
        assert part in text


def test_engines_can_be_hidden_in_charts_and_tables() -> None:
    text = page(documents.contenders())
    assert re.findall(r'<input type="checkbox" id="(\w+)" checked>', text) == [], "there is one section less to filter"
    blocks = (documents.contenders().candidates, documents.burst().figure)
    sections = (Section("again", "Again", blocks),)  # type: ignore[arg-type]
    text = page(replace(documents.contenders(), sections=sections))
    assert re.findall(r'<input type="checkbox" id="(\w+)" checked>', text) == ["hide0", "hide1"], "no series over time"
    assert "body:has(#hide1:not(:checked)) .s1:not(label) { display: none; }" in text
    assert text.count('<tr class="engine s1">') == 1 + 1 + 3, "candidates twice, and the numbers of the chart"


def test_labels_and_sentences_are_escaped_and_commands_in_warnings_are_code() -> None:
    table = Table("t", "<b>", (Column("<i>", "<u>", text=True),), ((Word("<script>"),),), engines=0)
    warnings = tuple(Warning("k", "warn", f"see `a <b> {k}`", "") for k in range(7))
    sections = (Section("s", "<em>", (table, Code(("<q>",))), folded=True),)
    text = page(documents.document(NoAnswer.ALL_FAILED, warnings=warnings, sections=sections, title="<title>"))
    body = text.partition("<body>")[2]
    for tag in ("<script", "<b> ", "<i>", "<u>", "<em>", "<q>", "<title>"):
        assert tag not in body
    assert "<code>a &lt;b&gt; 0</code>" in body
    assert "Warnings: the 5 most severe of 7" in body
    assert "<summary>2 more</summary>" in body
