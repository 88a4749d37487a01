"""Which program is run: an image's own, else the one built for this machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engines.rust.engines import CandleEngine, CandleOptions
from engines.rust.programs import PROGRAMS, find
from tests.support.engines.nvml_stand_in import Gpu, install


def test_an_image_brings_its_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ENGINEBENCH_PROGRAMS", str(tmp_path))
    assert find("candle") is None
    program = tmp_path / PROGRAMS["candle"].binary
    program.touch()
    assert find("candle") == program
    assert find("burn") is None


@pytest.mark.parametrize(("flavour", "device"), [("cpu", "cpu"), ("cuda", "cuda")])
def test_an_images_programs_compute_where_they_were_built_for(
    flavour: str, device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """So that replicas get a GPU each, and its memory is checked."""
    dockerfile = (Path(__file__).parents[3] / "docker" / "Dockerfile").read_text()
    (named,) = re.findall(r"ENV ENGINEBENCH_PROGRAMS=(\S+)", dockerfile)
    folder = tmp_path / Path(named.replace("${FLAVOUR}", flavour)).name
    folder.mkdir()
    (folder / PROGRAMS["candle"].binary).touch()
    monkeypatch.setenv("ENGINEBENCH_PROGRAMS", str(folder))
    install(monkeypatch, [Gpu((9, 0))])
    assert CandleEngine.device_of(CandleOptions()) == device
