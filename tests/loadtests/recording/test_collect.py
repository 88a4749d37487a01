"""Parts of a run from several hosts become one run, and never two runs one."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from enginebench.records.files import read_requests, write_meta
from enginebench.settings.schema import UserMistake
from loadtests.harness.recording.collect import collect
from tests.support.records import META, record


def part(folder: Path, worker: int, run_id: str = "a-run") -> Path:
    folder.mkdir()
    write_meta(folder, dataclasses.replace(META, run_id=run_id))
    line = msgspec.structs.replace(record(), worker=str(worker), request_id=f"{worker}-1").to_line()
    (folder / f"requests-{worker}.jsonl").write_text(line)
    (folder / f"telemetry-{worker}.jsonl").write_text("{}\n")
    return folder


def test_parts_of_several_hosts_become_one_run(tmp_path: Path) -> None:
    run, other = part(tmp_path / "run", 0), part(tmp_path / "other", 1)
    assert {path.name for path in collect(run, [other])} == {"requests-1.jsonl", "telemetry-1.jsonl"}
    assert [one.worker for one in read_requests(run)] == ["0", "1"]
    assert collect(run, [other]) == [], "a second time there is nothing new"


def test_another_run_is_refused(tmp_path: Path) -> None:
    run, other = part(tmp_path / "run", 0), part(tmp_path / "other", 1, run_id="another")
    with pytest.raises(UserMistake, match="another, not to a-run"):
        collect(run, [other])
    with pytest.raises(UserMistake, match="not the folder of a run"):
        collect(run, [tmp_path])


def test_two_different_files_of_one_worker_are_refused_before_anything_is_copied(tmp_path: Path) -> None:
    run, one, two = part(tmp_path / "run", 0), part(tmp_path / "one", 1), part(tmp_path / "two", 1)
    (two / "requests-1.jsonl").write_text("something else\n")
    with pytest.raises(UserMistake, match="differ"):
        collect(run, [one, two])
    assert not (run / "requests-1.jsonl").exists()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/etc/hostname")])
def test_what_is_no_file_of_records_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    run, other = part(tmp_path / "run", 0), part(tmp_path / "other", 1)
    make(other / "requests-2.jsonl")
    with pytest.raises(UserMistake, match="not a file of records"):
        collect(run, [other])
    assert not (run / "requests-1.jsonl").exists()


def test_a_link_in_the_run_is_not_written_through(tmp_path: Path) -> None:
    run, other, elsewhere = part(tmp_path / "run", 0), part(tmp_path / "other", 1), tmp_path / "elsewhere"
    elsewhere.write_text("kept")
    (run / "requests-1.partial").symlink_to(elsewhere)
    collect(run, [other])
    assert elsewhere.read_text() == "kept"
    assert (run / "requests-1.jsonl").read_bytes() == (other / "requests-1.jsonl").read_bytes()
