"""Records that travel from a worker's disk to the master's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from gevent.queue import Empty

from loadtests.harness.recording.transfer import PIECE_BYTES, Message, answer, fetch


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    worker, master = tmp_path / "worker", tmp_path / "master"
    worker.mkdir()
    master.mkdir()
    return worker, master


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 7])
def test_every_byte_arrives(folders: tuple[Path, Path], size: int) -> None:
    worker, master = folders
    content = os.urandom(size)
    (worker / "requests-1.jsonl").write_bytes(content)
    (worker / "telemetry-1.jsonl").write_bytes(b"{}\n")
    files = sorted(worker.iterdir())
    assert fetch(master, set(), lambda question: answer(files, question)) == size + 3
    assert (master / "requests-1.jsonl").read_bytes() == content
    assert sorted(path.name for path in master.iterdir()) == ["requests-1.jsonl", "telemetry-1.jsonl"]
    assert (worker / "requests-1.jsonl").read_bytes() == content, "the worker keeps its copy"


def test_a_worker_on_the_same_disk_sends_nothing(tmp_path: Path) -> None:
    (tmp_path / "requests-1.jsonl").write_bytes(b"{}\n")
    files = tuple(tmp_path.iterdir())
    assert fetch(tmp_path, {"requests-1.jsonl"}, lambda question: answer(files, question)) == 0
    assert (tmp_path / "requests-1.jsonl").read_bytes() == b"{}\n"


def test_of_a_worker_that_died_no_half_of_a_file_is_read(folders: tuple[Path, Path]) -> None:
    worker, master = folders
    (worker / "requests-1.jsonl").write_bytes(os.urandom(3 * PIECE_BYTES))
    asked: list[Message] = []

    def ask(question: Message) -> Message:
        asked.append(question)
        if len(asked) == 3:
            raise Empty
        return answer([worker / "requests-1.jsonl"], question)

    with pytest.raises(Empty):
        fetch(master, set(), ask)
    assert asked[-1] == {"file": "requests-1.jsonl", "at": PIECE_BYTES}
    assert list(master.glob("*.jsonl")) == []


def test_a_file_that_cannot_be_read_is_an_error_with_the_workers_words(folders: tuple[Path, Path]) -> None:
    worker, master = folders
    gone = worker / "requests-1.jsonl"
    with pytest.raises(OSError, match="No such file"):
        fetch(master, set(), lambda question: answer([gone], question))
