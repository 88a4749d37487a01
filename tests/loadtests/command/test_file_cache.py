"""Files leave the operating system's cache, and what stays is told."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from enginebench.settings.schema import UserMistake
from loadtests.harness.command.file_cache import drop_from_cache

MIB = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files, the larger of which is in a folder below."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "small").write_bytes(bytes(MIB))
    (tmp_path / "inner" / "large").write_bytes(bytes(3 * MIB))
    (tmp_path / "empty").touch()
    return tmp_path


def test_written_and_read_files_leave_the_cache(folder: Path) -> None:
    (folder / "small").read_bytes()
    assert drop_from_cache([folder]) == 0.0


def test_pages_that_a_process_has_mapped_stay(folder: Path) -> None:
    with (folder / "small").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped.read() == bytes(MIB)
        assert drop_from_cache([folder]) == 0.25


def test_a_missing_file_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserMistake) as mistake:
        drop_from_cache([tmp_path / "none"])
    assert str(mistake.value) == f"--drop-cache: {tmp_path}/none does not exist."
