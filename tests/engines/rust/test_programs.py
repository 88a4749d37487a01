"""Which program is run: an image's own, else the one built for this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from engines.rust.programs import PROGRAMS, find


def test_an_image_brings_its_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ENGINEBENCH_PROGRAMS", str(tmp_path))
    assert find("candle") is None
    program = tmp_path / PROGRAMS["candle"].binary
    program.touch()
    assert find("candle") == program
    assert find("burn") is None
