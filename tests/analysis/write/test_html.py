import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from enginebench.analysis.answer import NoAnswer
from enginebench.analysis.document import Code, Column, Document, Section, Table, Warning, Word
from enginebench.analysis.write import phrases
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
    tested, slo = phrases.tested_line(document.tested), phrases.slo_line(document.objectives)
    assert all(part in reader.text for part in (sentence(document.answer), tested, slo))
    assert document.next is None or phrases.next_line(document.next) in reader.text
    assert all(meaning in reader.text for _, meaning in phrases.legend(document))
    assert len(reader.ids) == len(set(reader.ids))
    assert all(link.startswith("#") for link in reader.links)
    assert "<script" not in text
    assert "http-equiv" not in text


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
