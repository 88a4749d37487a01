"""A gate's answer for a terminal, for a pull request (Markdown) and for a CI server (JUnit XML)."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import typer
from rich.text import Text

from analysis.compare.gate import Gate
from analysis.compare.gate_checks import FALSE_ALARMS, Check
from analysis.compare.tables import TextTable, escaped, format_value
from analysis.compare.terminal import print_table
from analysis.console import stdout
from analysis.summary.run_summary import without_infinities
from records.files import write_atomically
from records.formatting import format_points, format_share

MARKS = {"critical": "❌", "warning": "⚠️", "unclear": "❔", "ok": "✅"}
RULE = (
    "worse: as a share of the baseline; of shares in percentage points, with a tenth of the limits. The intervals hold "
    f"together: that any of them lies above zero by chance happens in at most {format_share(FALSE_ALARMS)} of gates."
)


def table_of(gate: Gate, everything: bool = False) -> TextTable:
    """Checks that are worse by more than a limit, or all of them."""
    rows = tuple(
        (
            check.severity,
            check.sample.engine,
            check.sample.stage,
            check.sample.title,
            format_value(check.baseline.mean, check.sample.unit),
            format_value(check.current.mean, check.sample.unit),
            worse(check),
        )
        for check in gate.checks
        if everything or check.severity != "ok"
    )
    headers = ("", "engine", "stage", "measure", "baseline", "now", "worse by")
    return TextTable("Checks" if everything else "Worse than the baseline", headers, rows, (0, 1, 2, 3), RULE)


def worse(check: Check) -> str:
    """`+25.0 % [+18.2 %, +32.1 %]`; of a share `+2.1 points [+1.2, +3.0]`."""
    estimate = check.worse
    if estimate.value is None:
        return f"n/a, {estimate.why}"
    if estimate.value == float("inf"):
        return "falls among failed requests"
    if not check.sample.relative:
        return format_points(estimate.value, estimate.low, estimate.high)

    def text(value: float) -> str:
        percent = f"{100 * value:+.1f} %".replace("-", "−")
        return "0 %" if percent[1:] == "0.0 %" else percent

    interval = (
        "" if estimate.low is None or estimate.high is None else f" [{text(estimate.low)}, {text(estimate.high)}]"
    )
    return f"{text(estimate.value)}{interval}"


def markdown(gate: Gate) -> str:
    """A comment for a pull request: the sentence, what is worse, and the rest folded."""
    mark = MARKS["ok" if gate.passed else "critical"]
    lines = ["<!-- enginebench gate -->", f"### {mark} enginebench gate", "", escaped(gate.sentence), ""]
    shown = table_of(gate)
    if shown.rows:
        lines += [_with_marks(shown), ""]
    everything = table_of(gate, everything=True)
    lines += [f"<details><summary>All {len(gate.checks)} checks</summary>", "", _with_marks(everything), ""]
    lines += ["</details>", "", f"{RULE[0].upper()}{RULE[1:]}"]
    lines += ["", *(f"- {note}" for note in gate.notes)] if gate.notes else []
    return "\n".join(lines) + "\n"


def _with_marks(table: TextTable) -> str:
    return replace(table, rows=tuple((f"{MARKS[row[0]]} {row[0]}", *row[1:]) for row in table.rows)).markdown


def junit(gate: Gate) -> str:
    """One suite an engine and stage, one case a measure; what fails the gate fails, what is unclear is skipped."""
    root = ElementTree.Element("testsuites", name="enginebench gate")
    failing = set(map(id, gate.failing))
    suites: dict[tuple[str, str], list[Check]] = {}
    for check in gate.checks:
        suites.setdefault((check.sample.engine, check.sample.stage), []).append(check)
    for (engine, stage), checks in suites.items():
        suite = ElementTree.SubElement(root, "testsuite", name=f"{engine}, {stage}", errors="0")
        suite.set("tests", str(len(checks)))
        suite.set("failures", str(sum(id(check) in failing for check in checks)))
        suite.set("skipped", str(sum(check.severity == "unclear" for check in checks)))
        for check in checks:
            _case(suite, check, id(check) in failing)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, check: Check, fails: bool) -> None:
    one = check.sample
    case = ElementTree.SubElement(suite, "testcase", classname=f"enginebench.{one.engine}.{one.stage}", name=one.title)
    was, now = (format_value(side.mean, one.unit) for side in (check.baseline, check.current))
    text = f"{one.title} was {was} and is {now}: worse by {worse(check)}"
    if fails:
        ElementTree.SubElement(case, "failure", message=text, type=check.severity)
    elif check.severity == "unclear":
        ElementTree.SubElement(case, "skipped", message=f"{text}, which may be chance")
    else:
        ElementTree.SubElement(case, "system-out").text = text


def write(gate: Gate, junit_xml: Path | None, comment: Path | None) -> None:
    """Raises `OSError`."""
    for path, text in ((junit_xml, junit), (comment, markdown)):
        if path is not None:
            write_atomically(path, text(gate))


def show(gate: Gate, as_json: bool) -> None:
    """On standard output: one JSON document, or what is worse, the notes and the sentence."""
    if as_json:
        document = asdict(gate) | {"passed": gate.passed, "sentence": gate.sentence}
        typer.echo(json.dumps(without_infinities(document), allow_nan=False))
        return
    console = stdout()
    print_table(console, table_of(gate))
    for note in gate.notes:
        console.print(Text(f"note: {note}", style="dim"))
    console.print(Text(gate.sentence, style="bold"))
