"""The checks of a gate as JUnit XML, for a CI server.

The checks are the rows of the document's table `CHECKS`: result, engine, load and metric, then numbers.
"""

from __future__ import annotations

from xml.etree import ElementTree

from enginebench.analysis.document import Document, Table
from enginebench.analysis.verdict.gate import Result
from enginebench.analysis.write.cells import Shown, show
from enginebench.analysis.write.sentence import sentence

CHECKS = "checks"
NAMED = 4  # columns before the numbers


def junit(document: Document) -> str:
    """Write a suite for each engine and load, with a case for each metric."""
    root = ElementTree.Element("testsuites", name=sentence(document.answer))
    suites: dict[str, ElementTree.Element] = {}
    for table in (block for block in document.blocks if isinstance(block, Table) and block.key == CHECKS):
        for row in table.rows:
            _case(root, suites, table, [show(cell) for cell in row], document.exit_code)
    if document.exit_code and root.find(".//failure") is None:  # a gate that could not judge does not pass
        suite = ElementTree.SubElement(root, "testsuite", name=document.title, tests="1", errors="1")
        case = ElementTree.SubElement(suite, "testcase", name=document.title)
        ElementTree.SubElement(case, "error", message=sentence(document.answer))
    for suite in suites.values():
        cases = suite.findall("testcase")
        suite.set("tests", str(len(cases)))
        suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
        suite.set("skipped", str(sum(case.find("skipped") is not None for case in cases)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(
    root: ElementTree.Element, suites: dict[str, ElementTree.Element], table: Table, cells: list[Shown], code: int
) -> None:
    """Add a case. A missing part fails, unless the gate passed without it."""
    result, engine, load, metric = (cell.text for cell in cells[:NAMED])
    place = ", ".join(filter(None, (engine, load)))
    if place not in suites:
        suites[place] = ElementTree.SubElement(root, "testsuite", name=place, errors="0")
    case = ElementTree.SubElement(
        suites[place], "testcase", classname=".".join(filter(None, ("enginebench", engine, load))), name=metric
    )
    numbers = zip(table.columns[NAMED:], cells[NAMED:], strict=True)
    text = f"{metric}: {', '.join(f'{column.title} {cell.line}' for column, cell in numbers if cell.line)}"
    missing = result == Result.MISSING.value
    if result == Result.REGRESSION.value or (missing and code):
        ElementTree.SubElement(case, "failure", message=text, type=result)
    elif missing or result == Result.UNCLEAR.value:
        ElementTree.SubElement(case, "skipped", message=text)
    else:
        ElementTree.SubElement(case, "system-out").text = text
