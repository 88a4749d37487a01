"""docs/metrics.md says what the code does."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.findings import RUN_CHECKS
from enginebench.records.findings.kinds import KIND_BY_NAME, KINDS, documentation
from enginebench.records.metrics import tables
from tests.support.analysis.synthetic import Engine, simulate

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "metrics.md").read_text()


@pytest.mark.parametrize(
    ("page", "module", "text"),
    [
        ("metrics.md", "enginebench.records.metrics", tables),
        ("troubleshooting.md", "enginebench.records.findings.kinds", documentation),
    ],
)
def test_a_table_is_that_of_the_code(page: str, module: str, text: Callable[[], str]) -> None:
    shown = (ROOT / "docs" / page).read_text().partition(f"<!-- begin: python -m {module} -->\n")[2]
    assert shown.partition("<!-- end -->")[0] == text()


def test_every_kind_is_declared_once() -> None:
    """Those that a whole run adds, too."""
    assert len(KIND_BY_NAME) == len(KINDS)
    assert {name for name, _ in RUN_CHECKS} <= set(KIND_BY_NAME)


def test_the_example_reads_the_table(tmp_path: Path) -> None:
    load_run(simulate(tmp_path / "runs" / "<id>", Engine(), (2, 4), 5.0))
    code = DOCS.rpartition("```python\n")[2].partition("```")[0].replace("runs/<id>", str(tmp_path / "runs" / "<id>"))
    *lines, expression = code.strip().splitlines()
    scope: dict[str, object] = {}
    exec("\n".join(lines), scope)
    found = eval(expression, scope)
    assert isinstance(found, pl.DataFrame)
    assert sorted(found["stage"]) == [0, 1]
