"""Records that travel from a worker's disk to the master's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from loadtests.harness.recording import transfer
from loadtests.harness.recording.transfer import AHEAD, PIECE_BYTES, RecordReceiver, RecordSender, TransferFailed


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
    receiver = RecordReceiver(master, {"near"})
    sender: RecordSender

    def send(message: dict[str, Any]) -> None:
        if receiver.take("near", message):
            sender.acknowledged()

    sender = RecordSender([worker / "requests-1.jsonl", worker / "telemetry-1.jsonl"], send)
    sender.run()
    receiver.wait()
    assert not receiver.missing
    assert receiver.received == size + 3
    assert (master / "requests-1.jsonl").read_bytes() == content
    assert sorted(path.name for path in master.iterdir()) == ["requests-1.jsonl", "telemetry-1.jsonl"]
    assert (worker / "requests-1.jsonl").read_bytes() == content, "the worker keeps its copy"


def test_no_more_than_a_few_pieces_are_on_their_way(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PATIENCE", 0.05)
    (folders[0] / "requests-1.jsonl").write_bytes(bytes(20 * PIECE_BYTES))
    sent: list[dict[str, Any]] = []
    with pytest.raises(TransferFailed):
        RecordSender([folders[0] / "requests-1.jsonl"], sent.append).run()
    assert len(sent) == AHEAD


def test_of_a_worker_that_died_no_half_of_a_file_is_read(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PATIENCE", 0.05)
    (folders[0] / "requests-1.jsonl").write_bytes(os.urandom(3 * PIECE_BYTES))
    sent: list[dict[str, Any]] = []
    with pytest.raises(TransferFailed):
        RecordSender([folders[0] / "requests-1.jsonl"], sent.append).run()
    receiver = RecordReceiver(folders[1], {"near", "far"})
    for message in sent[:2]:
        receiver.take("near", message)
    receiver.wait()
    assert receiver.missing == {"near", "far"}
    assert list(folders[1].glob("*.jsonl")) == []
