from itertools import pairwise
from pathlib import Path

import pytest

from enginebench.settings.schema import UserMistake
from enginebench.studies.study.grid import Cell, Chosen, cells_of, rotated, texts_of
from enginebench.studies.study.grid_file import find_grid, grid_names, read_grid

SMALL = """
title = "Small"
baseline = "slow"
repeats = 2
slo = ["ttft_p95=1"]

[[models]]
name = "random:llama-3.2-1b"
[[models]]
name = "smollm2-135m"
label = "smol"

[[engines]]
label = "slow"
engine = "fake"
options = { tpot = 0.02, prefix_cache = true }
[[engines]]
label = "fast"
engine = "fake"
models = ["smol"]
[[engines]]
label = "its-own"
engine = "fake"
own_server = true
models = ["smol"]

[[parts]]
name = "users"
kind = "load"
scenario = "concurrent"
settings = { stages = "1,4", stage_seconds = 5 }
[[parts]]
name = "kernels"
kind = "bench"
repeats = 1
models = ["smol"]

[quick]
repeats = 1
[[quick.parts]]
name = "users"
kind = "load"
scenario = "concurrent"
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(text)
    return path


def test_labels_options_and_settings_are_read(tmp_path: Path) -> None:
    grid, applied = read_grid(written(tmp_path, SMALL), ["cpu"])
    assert applied == ()
    assert [model.label for model in grid.models] == ["llama-3.2-1b", "smol"]
    assert texts_of(grid.engine("slow").options) == ("tpot=0.02", "prefix_cache=yes")
    assert grid.part("users").setting_texts == {"stages": "1,4", "stage_seconds": "5"}


def test_a_variant_takes_the_place_of_keys(tmp_path: Path) -> None:
    grid, applied = read_grid(written(tmp_path, SMALL), ["quick", "cpu"])
    assert applied == ("quick",)
    assert (grid.repeats, [part.name for part in grid.parts], grid.baseline) == (1, ["users"], "slow")


def test_cells_are_every_combination_once_and_interleaved(tmp_path: Path) -> None:
    """All engines once before any again, in another order; an engine's parts follow each other."""
    grid, _ = read_grid(written(tmp_path, SMALL))
    assert " ".join(cell.id for cell in cells_of(grid)) == (
        "users.llama-3.2-1b.slow.1 users.llama-3.2-1b.slow.2 users.smol.slow.1 kernels.smol.slow.1 users.smol.fast.1 "
        "kernels.smol.fast.1 users.smol.its-own.1 users.smol.its-own.2 users.smol.slow.2 users.smol.fast.2"
    )


def test_prompts_are_the_same_for_all_engines_of_a_repeat_only() -> None:
    sets = {Cell("users", "m", engine, repeat).prompt_set(7) for engine in ("a", "b") for repeat in range(3)}
    assert sets == {"7-users-m-0", "7-users-m-1", "7-users-m-2"}
    assert Cell("long", "m", "a", 0).prompt_set(7) not in sets


@pytest.mark.parametrize(("engines", "repeats"), [(2, 3), (3, 3), (9, 3), (9, 5), (12, 2), (4, 1), (4, 3), (4, 7)])
def test_engines_take_turns_at_being_first(engines: int, repeats: int) -> None:
    orders = [rotated(range(engines), repeat, repeats) for repeat in range(repeats)]
    assert all(sorted(order) == list(range(engines)) for order in orders)
    assert len({order[0] for order in orders}) == min(engines, repeats)
    assert all(one[0] != other[0] for one, other in pairwise(orders)), "each round from another engine on"
    if engines % repeats == 0:  # then no engine comes later than another on average, beyond its place within a group
        places = [sum(order.index(engine) for order in orders) / repeats for engine in range(engines)]
        assert max(places) - min(places) < engines / repeats


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("repeats = 2", "repeat = 2", "no key `repeat`; did you mean `repeats`?"),
        ('kind = "load"', 'sort = "load"', r"\[\[parts\]\] has no key `sort`"),
        ('label = "smol"', 'lable = "smol"', r"\[\[models\]\] has no key `lable`"),
        ("repeats = 1\n[[q", "repeat = 1\n[[q", "quick has no key `repeat`"),
        ("stages =", "stage =", "no setting `stage`; did you mean `stages`?"),
        ('baseline = "slow"', 'baseline = "none"', "baseline names `none`, which is none of"),
        ('models = ["smol"]', 'models = ["x"]', "engine fast names `x`"),
        ('scenario = "concurrent"', "", "part users needs a scenario"),
        ("repeats = 2", 'repeats = 2\npeak = "lots"', "--peak is a number of users"),
        ("ttft_p95=1", "ttft=1", "an objective is METRIC"),
        ('kind = "load"', 'kind = "load"\nseconds = inf', "inf and nan are no values"),
        ("tpot = 0.02", "tpot = nan", "inf and nan are no values"),
        ("repeats = 2", 'repeats = 2\nprice = { per_hour = -2.2, source = "x" }', "per_hour is a price"),
        ('kind = "load"', 'kind = "load"\nlimit = 0', "limit is above 0"),
        ('label = "fast"', 'label = "fast"\noptions = { tpot = 0.5 }', "its-own is only compared with"),
        ("repeats = 2", "repeats = 0", "repeats is 1 or more"),
        ("repeats = 2", 'repeats = "2"', "expected `int`, got `str`"),
        ('label = "fast"', 'label = "slow"', "several .* called `slow`"),
        ('label = "fast"', 'label = "a b"', "needs a label of letters"),
        ("repeats = 2", "repeats = ", "is not TOML"),
    ],
)
def test_what_a_grid_cannot_say_is_refused(tmp_path: Path, before: str, after: str, said: str) -> None:
    with pytest.raises(UserMistake, match=said):
        read_grid(written(tmp_path, SMALL.replace(before, after, 1)))


def test_what_is_chosen_of_a_grid_is_measured_alone_and_the_rest_named(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    grid, _ = read_grid(path, chosen=Chosen(models=("smol",), engines=("slow", "fast"), parts=("users",)))
    ids = ["users.smol.slow.1", "users.smol.fast.1", "users.smol.fast.2", "users.smol.slow.2"]
    assert [cell.id for cell in cells_of(grid)] == ids
    assert [one.what for one in grid.not_measured] == ["kernels", "llama-3.2-1b", "its-own"]


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (Chosen(engines=("fats",)), "has no engine `fats`; did you mean `fast`?"),
        (Chosen(parts=("user",)), "has no part `user`; did you mean `users`?"),
        (Chosen(engines=("fast",)), "the baseline slow is not measured with fast"),
        (Chosen(models=("llama-3.2-1b",), parts=("kernels",)), "nothing is measured of kernels with what"),
        (Chosen(models=("llama-3.2-1b",), engines=("slow", "fast")), "nothing is measured of fast with"),
    ],
)
def test_a_choice_that_the_grid_does_not_have_is_refused(tmp_path: Path, chosen: Chosen, said: str) -> None:
    with pytest.raises(UserMistake, match=said):
        read_grid(written(tmp_path, SMALL), chosen=chosen)


def test_a_refused_choice_says_of_which_form(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"small\.toml \[quick\] has no part `kernels`; choose from users"):
        read_grid(written(tmp_path, SMALL), ["quick"], Chosen(parts=("kernels",)))


@pytest.mark.parametrize("name", grid_names())
@pytest.mark.parametrize("variants", [(), ("cpu",), ("quick",), ("cpu", "quick"), ("quick", "gpu_quick")])
def test_the_grids_that_come_along_can_be_read(name: str, variants: tuple[str, ...]) -> None:
    grid, _ = read_grid(find_grid(name), variants)
    assert cells_of(grid)
