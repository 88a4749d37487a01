"""A study's folder, made and opened again."""

from pathlib import Path

import pytest

from enginebench.settings.schema import UserMistake
from enginebench.studies.study.folder import CELLS, SITTINGS, CellRecord, Sitting, append_line, load_study
from enginebench.studies.study.grid import Chosen, cells_of
from enginebench.studies.study.runner import only_here
from enginebench.studies.study.sitting import check_commit, open_study
from loadtests.harness.run.host import commit_here
from tests.studies.study.test_grid_file import written
from tests.studies.study.test_runner import silent

GRID = """
title = "Small"
baseline = "slow"
repeats = 2

[[models]]
name = "random:llama-3.2-tiny"
label = "tiny"
[[models]]
name = "random:gpt2"
label = "large"
optional = true

[[engines]]
label = "slow"
engine = "fake"
[[engines]]
label = "fast"
engine = "fake"
[[engines]]
label = "other"
engine = "fake"
models = ["large"]

[[parts]]
name = "users"
kind = "load"
scenario = "concurrent"
settings = { stages = "1,8" }
[[parts]]
name = "kernels"
kind = "bench"
settings = { batch = "1,8" }
"""


@pytest.fixture
def grid(tmp_path: Path) -> str:
    return str(written(tmp_path, GRID))


def opened(grid: str, **chosen: tuple[str, ...]) -> Path:
    return open_study(grid, False, Path(grid).parent / "study", Chosen(**chosen), silent())


def test_what_is_chosen_later_is_added_and_what_was_measured_stays(grid: str) -> None:
    folder = opened(grid, engines=("slow",), parts=("users",))
    done = CellRecord(cell="users.tiny.slow.1", outcome="done", started_at="", seconds=7)
    append_line(folder / CELLS, done)
    assert [one.what for one in load_study(folder).grid.not_measured] == ["kernels", "fast", "other"]

    for _ in range(2):  # the same command goes on
        opened(grid, engines=("fast",), parts=("kernels",))
        study = load_study(folder)
        assert {(state.cell.part, state.cell.engine) for state in study.cells} == {
            (part, engine) for part in ("users", "kernels") for engine in ("slow", "fast")
        }
        assert [one.what for one in study.grid.not_measured] == ["other"]
        assert [state.record for state in study.with_outcome("done")] == [done]

    opened(grid, models=("large",), engines=("other",))
    assert len(load_study(folder).cells) == len(cells_of(load_study(folder).grid)) == 2 * 2 * (2 + 3)
    assert load_study(folder).with_outcome("done")


def test_where_nothing_was_chosen_all_stays(grid: str) -> None:
    before = load_study(opened(grid))
    assert load_study(opened(grid, parts=("users",))).facts == before.facts
    after = load_study(opened(grid, models=("large",)))  # an optional one
    assert [model.label for model in after.grid.models] == ["tiny", "large"]


@pytest.mark.parametrize(
    ("before", "after", "chosen", "said"),
    [
        ('stages = "1,8"', 'stages = "1,4"', (), "is a study of another grid than .*small.toml is now"),
        ('stages = "1,8"', 'stages = "1,4"', ("kernels",), "is a study of another grid"),
        ('batch = "1,8"', 'batches = "1,8"', ("kernels",), "no setting `batches`"),
        ("", "", ("kernel",), "has no part `kernel`"),
    ],
)
def test_what_cannot_be_added_is_refused_and_changes_nothing(
    grid: str, before: str, after: str, chosen: tuple[str, ...], said: str
) -> None:
    facts = load_study(folder := opened(grid, parts=("users",))).facts
    Path(grid).write_text(GRID.replace(before, after))
    with pytest.raises(UserMistake, match=said):
        opened(grid, parts=chosen or ("users",))
    assert load_study(folder).facts == facts


def test_it_does_not_grow_while_it_is_at_work(grid: str) -> None:
    facts = load_study(folder := opened(grid, parts=("users",))).facts
    with only_here(folder), pytest.raises(UserMistake, match="another process is at work"):
        opened(grid, parts=("kernels",))
    assert load_study(folder).facts == facts


def test_it_grows_in_the_form_in_which_it_began(grid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine whose GPU is not seen, too: a study may have gone on elsewhere."""
    Path(grid).write_text(GRID + "[cpu]\nrepeats = 1\n")
    monkeypatch.setattr("enginebench.studies.study.sitting.variants", lambda quick: ())
    folder = opened(grid, parts=("users",))
    monkeypatch.setattr("enginebench.studies.study.sitting.variants", lambda quick: ("cpu",))
    opened(grid, parts=("kernels",))
    assert (load_study(folder).grid.repeats, len(load_study(folder).grid.parts)) == (2, 2)


def test_other_runs_are_not_put_aside(grid: str) -> None:
    kept = Path(grid).parent / "study/runs/of-yesterday"
    kept.mkdir(parents=True)
    with pytest.raises(UserMistake, match="holds runs that are not of this study"):
        opened(grid)
    assert kept.exists()


def test_a_study_does_not_mix_commits_unless_it_is_told_to(grid: str) -> None:
    place = opened(grid)
    sitting = Sitting(started_at="2026-11-02T10:00:00+00:00", command=(), commit="0" * 40, host={}, versions={})
    append_line(place / SITTINGS, sitting)
    append_line(place / CELLS, CellRecord(cell="users.tiny.slow.1", outcome="done", started_at="2026-11-02", seconds=1))
    with pytest.raises(UserMistake, match=f"was measured with the commit 0{{40}}, and this is {commit_here()}"):
        check_commit(place)
    assert len(load_study(place).sittings) == 1
