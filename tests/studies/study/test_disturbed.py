"""Runs that differ by more than their neighbours explain are measured again, once."""

from pathlib import Path

import pytest

from enginebench.studies.study.disturbed import outlying
from enginebench.studies.study.folder import CELLS, CellRecord, append_line, load_study
from enginebench.studies.study.grid import Cell
from tests.studies.study.test_runner import FAST, USERS, run, study
from tests.support.analysis.synthetic import Engine, simulate


@pytest.mark.parametrize(
    ("rates", "disturbed"),
    [
        ({"a": [100, 104, 33], "b": [50, 49, 51]}, {("a", 2): 102}),
        ({"a": [100, 104, 60], "b": [50, 49, 30]}, {}),  # the machine was slower in the third round
        ({"a": [100, 104, 300], "b": [50, 49, 51]}, {("a", 2): 106}),
        ({"a": [100, 33], "b": [50, 49]}, {}),  # either may be the disturbed one
        ({"a": [100, 160, 60], "b": [50, 90, 140], "c": [10, 4, 25]}, {}),  # nothing repeats well
    ],
)
def test_a_run_is_compared_with_its_engine_and_its_round(
    rates: dict[str, list[float]], disturbed: dict[tuple[str, int], float]
) -> None:
    cells = {Cell("users", "m", engine, n): rate for engine, values in rates.items() for n, rate in enumerate(values)}
    found = {(cell.engine, cell.repeat): round(usual) for cell, (_, usual) in outlying(cells).items()}
    assert found == disturbed


def test_a_disturbed_run_is_kept_aside_and_measured_again_once(tmp_path: Path) -> None:
    found = study(tmp_path, USERS, repeats=3)
    for number, tpot in enumerate((0.002, 0.002, 0.02)):
        name = f"users.none.fast.{number + 1}"
        simulate(tmp_path / "runs" / name, Engine("fast", 8, 0.01, tpot), (2,), 4.0, number)
        line = CellRecord(cell=name, outcome="done", started_at="2026-11-02", seconds=1, path=f"runs/{name}")
        append_line(tmp_path / CELLS, line)
    assert found.grid.engines == (FAST,)
    after, complete = run(load_study(tmp_path))
    assert complete
    assert [state.outcome for state in after.cells] == ["done"] * 3
    assert list(after.disturbed) == ["users.none.fast.3"]
    assert "by its other runs and its round." in str(after.disturbed["users.none.fast.3"].reason)
    for place in ("runs", "disturbed"):
        assert (tmp_path / place / "users.none.fast.3" / "meta.json").is_file()
    assert run(after)[0].cells == after.cells
