"""Records that travel from a worker's disk to the master's."""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from gevent.queue import Empty

from loadtests.harness.recording import transfer
from loadtests.harness.recording.transfer import PIECE_BYTES, BadAnswer, Message, answer, fetch


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


NAME = "requests-1.jsonl"
UNREADABLE, NO_WORKERS = "its answer cannot be read", "it named a file that no worker writes"
BROKEN, LARGE = "a piece of a file cannot be expanded", "a piece of a file is larger than a piece, or cut off"


@pytest.mark.parametrize(
    "name",
    [
        *("meta.json", "x/meta.json", "../requests-1.jsonl", "/tmp/requests-1.jsonl", "requests-1.jsonl/../meta.json"),
        *("journal.jsonl", "requests.jsonl", "telemetry.jsonl", "requests-1.jsonl.partial", "requests-1.jsonl\n"),
        *("requests-../../x.jsonl", "requests-1\0.jsonl", "requests-\u0661.jsonl", "requests-.jsonl", "report.html"),
        *("Requests-1.jsonl", "x\\requests-1.jsonl", "requests-" + "1" * 65 + ".jsonl", "", ".", ".."),
    ],
)
def test_names_that_are_no_workers(folders: tuple[Path, Path], name: str) -> None:
    master = folders[1]
    (master / "meta.json").write_text("{}")

    def ask(question: Message) -> Message:
        return {"names": [name]} if question["file"] is None else {"data": zlib.compress(b"overwritten")}

    with pytest.raises(BadAnswer, match=NO_WORKERS):
        fetch(master, {"meta.json"} - {name}, ask)
    assert [path.name for path in master.parent.rglob("*.*")] == ["meta.json"]
    assert (master / "meta.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("names", "piece", "reason"),
    [
        pytest.param(None, None, UNREADABLE, id="nothing"),
        pytest.param("requests-1.jsonl", None, UNREADABLE, id="not an answer"),
        pytest.param({"names": NAME}, None, UNREADABLE, id="a text for names"),
        pytest.param({"names": [5]}, None, UNREADABLE, id="a number for a name"),
        pytest.param({"names": [f"requests-{n}.jsonl" for n in range(3)]}, None, UNREADABLE, id="too many names"),
        pytest.param({"names": [NAME]}, None, UNREADABLE, id="no piece"),
        pytest.param({"names": [NAME]}, {"data": 5}, UNREADABLE, id="a number for a piece"),
        pytest.param({"names": [NAME]}, {"data": "text"}, BROKEN, id="a text for a piece"),
        pytest.param({"names": [NAME]}, {"error": 5}, UNREADABLE, id="a number for an error"),
        pytest.param({"names": [NAME]}, {"error": "x" * 1001}, UNREADABLE, id="a long error"),
        pytest.param({"names": [NAME]}, {"data": b""}, LARGE, id="an empty piece"),
        pytest.param({"names": [NAME]}, {"data": b"{}"}, BROKEN, id="a piece that is not compressed"),
        pytest.param({"names": [NAME]}, {"data": zlib.compress(b"{}" * 99)[:-5]}, LARGE, id="a piece that is cut off"),
        pytest.param({"names": [NAME]}, {"data": zlib.compress(bytes(1 << 24))}, LARGE, id="a bomb"),
        pytest.param(
            {"names": [NAME] * 2}, {"data": zlib.compress(b"{}")}, f"another worker has sent {NAME}", id="twice"
        ),
        pytest.param(
            {"names": [NAME]}, {"data": zlib.compress(bytes(PIECE_BYTES))}, "a file is larger than 0 GiB", id="no end"
        ),
    ],
)
def test_answers_that_are_no_workers(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, names: Any, piece: Any, reason: str
) -> None:
    monkeypatch.setattr(transfer, "MAX_FILE_BYTES", 4 * PIECE_BYTES)
    master = folders[1]
    with pytest.raises(BadAnswer, match=re.escape(reason)):
        fetch(master, set(), lambda question: names if question["file"] is None else piece)
    assert not list(master.glob("*.partial"))


def test_an_error_is_shown_without_control_characters(folders: tuple[Path, Path]) -> None:
    said = {None: {"names": [NAME]}, NAME: {"error": "\x1b[2Jno\u202e disk\n"}}
    with pytest.raises(OSError, match=re.escape("[2Jno disk")):
        fetch(folders[1], set(), lambda question: said[question["file"]])
