"""A gate's answer for a terminal, for a pull request (Markdown) and for a CI server (JUnit XML)."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import typer
from rich.text import Text

from enginebench.analysis.compare.gate import FALSE_ALARMS, Check, Gate, failures_text
from enginebench.analysis.compare.metric_comparison import MetricComparison
from enginebench.analysis.console import TextTable, escaped, inert, print_table, stdout
from enginebench.analysis.documents import as_document
from enginebench.records.files import write_atomically
from enginebench.records.formatting import MISSING, format_p, format_points, format_share, format_value
from enginebench.records.view import Estimate

MARKS = {"critical": "❌", "warning": "⚠️", "unclear": "❔", "ok": "✅"}
RULE = (
    "change: as a share of the baseline, with the 95 % interval of each check by itself, of the same test as p; of "
    "shares in percentage points, with a tenth of the limits. p: after Holm's correction over all checks, by which "
    f"at most about {format_share(FALSE_ALARMS)} of the gates between identical versions fail."
)


def table_of(gate: Gate, everything: bool = False) -> TextTable:
    """Checks that are worse by more than a limit, or all of them."""
    rows = tuple(
        (
            check.severity,
            check.comparison.engine,
            check.comparison.stage,
            check.comparison.column.full_title,
            format_value(check.comparison.theirs.mean, check.comparison.column.unit),
            format_value(check.comparison.ours.mean, check.comparison.column.unit),
            change_text(check.comparison),
            format_p(check.comparison.p),
        )
        for check in gate.checks
        if everything or check.severity != "ok"
    )
    headers = ("", "engine", "stage", "metric", "baseline", "now", "change", "p")
    return TextTable("Checks" if everything else "Worse than the baseline", headers, rows, (0, 1, 2, 3), RULE)


def change_text(comparison: MetricComparison) -> str:
    """`+25.0 % [+18.2 %, +32.1 %]`, of a throughput that fell `−33.6 % […]`; of a share `+2.1 points [+1.2, +3.0]`."""
    if _by_failures(comparison):
        return failures_text(comparison)
    estimate = _change(comparison)
    if estimate.value is None:
        return MISSING
    low, high = estimate.ends
    if not comparison.column.relative:
        return format_points(estimate.value, low, high)
    interval = "" if low is None or high is None else f" [{_percent(low)}, {_percent(high)}]"
    return f"{_percent(estimate.value)}{interval}"


def _change(comparison: MetricComparison) -> Estimate:
    return comparison.worse.scaled(1 if comparison.column.better == "lower" else -1)


def _by_failures(comparison: MetricComparison) -> bool:
    """No share of the baseline says it: some runs fell among failures."""
    value = comparison.ratio.value
    return any(comparison.failed_runs) and (not value or math.isinf(value))


def _sentence(comparison: MetricComparison) -> str:
    """`output tokens/s was 150 and is 99.6: 33.6 % lower`"""
    column, change = comparison.column, _change(comparison).value
    if _by_failures(comparison):
        return f"{column.full_title} {failures_text(comparison)}"
    before, now = (format_value(side.mean, column.unit) for side in (comparison.theirs, comparison.ours))
    text = f"{column.full_title} was {before} and is {now}"
    if not change:
        return text
    size = format_points(abs(change), None, None) if not column.relative else _percent(abs(change))
    return f"{text}: {size.removeprefix('+')} {'higher' if change > 0 else 'lower'}"


def _percent(share: float) -> str:
    text = f"{100 * share:+.1f} %".replace("-", "−")
    return "0 %" if text[1:] == "0.0 %" else text


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
    lines += ["", *(f"- {inert(note)}" for note in gate.notes)] if gate.notes else []
    return "\n".join(lines) + "\n"


def _with_marks(table: TextTable) -> str:
    return replace(table, rows=tuple((f"{MARKS[row[0]]} {row[0]}", *row[1:]) for row in table.rows)).markdown


def junit(gate: Gate) -> str:
    """One suite an engine and stage, one case a metric; what fails the gate fails, what is unclear is skipped."""
    root = ElementTree.Element("testsuites", name="enginebench gate")
    failing = set(map(id, gate.failing))
    suites: dict[tuple[str, str], list[Check]] = {}
    for check in gate.checks:
        suites.setdefault((check.comparison.engine, check.comparison.stage), []).append(check)
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
    engine, stage, column = check.comparison.engine, check.comparison.stage, check.comparison.column
    name = f"enginebench.{engine}.{stage}"
    case = ElementTree.SubElement(suite, "testcase", classname=name, name=column.full_title)
    text = _sentence(check.comparison)
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
        document = as_document(gate) | {"passed": gate.passed, "unclear": len(gate.unclear), "sentence": gate.sentence}
        typer.echo(json.dumps(document, allow_nan=False))
        return
    console = stdout()
    print_table(console, table_of(gate))
    for note in gate.notes:
        console.print(Text(note, style="dim"))
    console.print(Text(gate.sentence, style="bold"))
