"""docs/metrics.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from enginebench.analysis.data.load import load_run
from enginebench.analysis.summary.findings import RUN_RULES, STATISTICAL_RULES
from enginebench.analysis.write.words import WARNINGS
from enginebench.records.findings.table import STAGE_RULES
from enginebench.records.metrics import tables
from tests.support.analysis.synthetic import Engine, simulate

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "metrics.md").read_text()
FINDINGS = DOCS.partition("## Findings")[2].partition("## Files")[0]


def test_the_tables_of_metrics_are_those_of_the_code() -> None:
    begin, end = "<!-- begin: python -m enginebench.records.metrics -->\n", "<!-- end -->"
    assert DOCS.partition(begin)[2].partition(end)[0] == tables()


def test_every_kind_of_finding_is_explained() -> None:
    """Those of the table, and those that a comparison of runs adds, whose words are in one place."""
    documented = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", FINDINGS, re.MULTILINE))))
    kinds = {rule.kind for rule in (*STAGE_RULES, *STATISTICAL_RULES)} | {rule.kind for rule in RUN_RULES}
    assert documented == kinds | set(WARNINGS)


def test_the_example_reads_the_table(tmp_path: Path) -> None:
    load_run(simulate(tmp_path / "runs" / "<id>", Engine(), (2, 4), 5.0))
    code = DOCS.rpartition("```python\n")[2].partition("```")[0].replace("runs/<id>", str(tmp_path / "runs" / "<id>"))
    *lines, expression = code.strip().splitlines()
    scope: dict[str, object] = {}
    exec("\n".join(lines), scope)
    found = eval(expression, scope)
    assert isinstance(found, pl.DataFrame)
    assert sorted(found["stage"]) == [0, 1]
