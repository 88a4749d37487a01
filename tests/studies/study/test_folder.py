from pathlib import Path

import pytest

from enginebench.settings.schema import UserMistake
from enginebench.studies.study.folder import (
    CELLS,
    SITTINGS,
    CellRecord,
    NotAStudy,
    Sitting,
    append_line,
    load_study,
    set_repeats,
)
from enginebench.studies.study.grid import StudyEngine, StudyPart, cells_of
from tests.studies.study.test_runner import study

PART = StudyPart("users", "load", "concurrent", seconds=50)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return study(tmp_path, PART, engines=(StudyEngine("a", "fake"), StudyEngine("b", "fake")), repeats=2).path


def ended(cell: str, outcome: str = "done", seconds: float = 1.0, **more: str) -> CellRecord:
    return CellRecord(cell=cell, outcome=outcome, started_at="2026-11-02T10:00:00+00:00", seconds=seconds, **more)  # type: ignore[arg-type]


def test_a_study_is_read_as_it_was_written(folder: Path) -> None:
    sitting = Sitting(started_at="2026-11-02T10:00:00+00:00", command=(), commit=None, host={}, versions={})
    append_line(folder / SITTINGS, sitting)
    append_line(folder / CELLS, ended("users.none.a.1", seconds=20, path="runs/users.none.a.1"))
    append_line(folder / CELLS, ended("users.none.b.1", "skipped", 0.1, reason="b is not installed."))
    found = load_study(folder)
    assert found.sittings == (sitting,)
    assert [state.cell for state in found.cells] == list(cells_of(found.grid))
    assert [state.outcome for state in found.cells] == ["done", "skipped", "left", "left"]
    assert found.result(found.cells[0]) == folder / "runs/users.none.a.1"
    assert found.cells[1].reason == "b is not installed."


def test_what_is_left_is_expected_to_take_what_its_like_took(folder: Path) -> None:
    assert [state.expected for state in load_study(folder).cells] == [50] * 4
    append_line(folder / CELLS, ended("users.none.a.1", seconds=20))
    append_line(folder / CELLS, ended("users.none.b.1", "failed", seconds=3))
    assert [state.expected for state in load_study(folder).cells] == [20] * 4
    append_line(folder / CELLS, ended("users.none.b.1", seconds=40))
    assert {(state.cell.engine, state.expected) for state in load_study(folder).cells} == {("a", 20), ("b", 40)}


def test_of_several_lines_the_last_counts_until_one_is_done(folder: Path) -> None:
    for outcome in ("skipped", "failed", "done", "failed"):
        append_line(folder / CELLS, ended("users.none.a.1", outcome))
    assert load_study(folder).cells[0].outcome == "done"


def test_a_line_that_was_cut_off_is_no_line(folder: Path) -> None:
    append_line(folder / CELLS, ended("users.none.a.1"))
    with (folder / CELLS).open("ab") as file:
        file.write(b'{"cell":"users.none.b.1","outco')
    assert [state.outcome for state in load_study(folder).cells].count("done") == 1
    append_line(folder / CELLS, ended("users.none.b.1"))
    assert [state.outcome for state in load_study(folder).cells].count("done") == 2


def test_more_repeats_are_added_and_none_that_was_begun_is_taken_away(folder: Path) -> None:
    append_line(folder / CELLS, ended("users.none.a.2"))
    set_repeats(folder, 3)
    assert [state.outcome for state in load_study(folder).cells].count("left") == 2 * 3 - 1
    with pytest.raises(UserMistake, match="has 2 repeats already: give --repeat 2 or more"):
        set_repeats(folder, 1)
    assert load_study(folder).grid.repeats == 3


def test_a_repeat_of_which_nothing_was_measured_may_be_taken_away(folder: Path) -> None:
    append_line(folder / CELLS, ended("users.none.a.1"))
    append_line(folder / CELLS, ended("users.none.b.2", "skipped", 0.1, reason="b is not installed."))
    set_repeats(folder, 1)
    assert load_study(folder).grid.repeats == 1


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAStudy, match=r"has no study\.json"):
        load_study(tmp_path)
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(NotAStudy, match="cannot be understood"):
        load_study(tmp_path)
