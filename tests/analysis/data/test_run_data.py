"""What is a run, which one is meant, and what is said of a folder that is none."""

from collections.abc import Callable
from pathlib import Path

import pytest

from enginebench.analysis.data.run_data import NotARun, find_run, load_run
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run

META = meta_of(stages_of((1,), 10.0))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda f: (f / "meta.json").unlink(), "it has no meta.json"),
        (lambda f: (f / "requests-0.jsonl").unlink(), "holds no request"),
    ],
)
def test_a_folder_that_is_no_run_gets_a_sentence(tmp_path: Path, spoil: Callable[[Path], None], sentence: str) -> None:
    write_run(tmp_path, META, [record(0, 0)])
    spoil(tmp_path)
    with pytest.raises(NotARun, match=sentence):
        load_run(tmp_path)


def test_runs_are_found_by_the_start_of_their_id_and_by_age(tmp_path: Path) -> None:
    old, new = "20261121-100000-a-xxxx", "20261121-110000-b-yyyy"
    for name, at in ((new, "2026-11-21T11:00:00+00:00"), (old, "2026-11-21T10:00:00+00:00")):
        write_run(tmp_path / name, meta_of(META.stages, run_id=name, started_at=at), [record(0, 0)])
    assert find_run(None, tmp_path).name == new
    assert find_run("20261121-100", tmp_path).name == old
    again = meta_of(META.stages, run_id=f"{old}-again", started_at="2026-11-21T09:00:00+00:00")
    write_run(tmp_path / again.run_id, again, [record(0, 0)])
    assert find_run(old, tmp_path).name == old, "and not one of two runs that begin with it"
    for name, sentence in (("2026", "3 runs begin with `2026`"), ("x", "there is no run `x`")):
        with pytest.raises(NotARun, match=sentence):
            find_run(name, tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotARun, match="empty holds no run"):
        find_run(str(tmp_path / "empty"), tmp_path)
    with pytest.raises(NotARun, match="no run in"):
        find_run(None, tmp_path / "empty")
