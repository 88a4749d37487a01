"""Which models `enginebench run` tests: words for all presets, and no model that memory cannot hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from loadtests.harness.command.models import Preset, expanded, free_memory, presets, too_large
from records.files import read_meta
from tests.support.loadtests.locust_process import ROOT

GB = 10**9
SMALL = Preset("small", True, {"float32": 4 * GB, "float16": 2 * GB, "8-bit": GB, "4-bit": GB // 2})
SHAPE = Preset("shape", False, {"float32": 12 * GB, "float16": 6 * GB, "8-bit": 3 * GB, "4-bit": 2 * GB})


def test_words_stand_for_all_presets() -> None:
    known = (SMALL, SHAPE)
    assert expanded(["all"], known) == ["small", "random:shape"]
    assert expanded(["random:all", "./mine"], known) == ["random:small", "random:shape", "./mine"]
    assert expanded([], known) == []


@pytest.mark.parametrize(
    ("model", "options", "needed"),
    [
        pytest.param("small", [], None, id="two of three gigabytes"),
        pytest.param("small", ["threads=2", "dtype=float32"], "4.0 GB of memory (float32)", id="the format counts"),
        pytest.param("random:shape", [], "6.0 GB of memory (float16)", id="random weights are as large"),
        pytest.param("random:shape", ["dtype=q4_0"], None, id="a quarter of it fits"),
        pytest.param("random:shape", ["memory=ignore"], None, id="not asked for"),
        pytest.param("./shape", [], None, id="what is no preset is not known"),
    ],
)
def test_a_preset_that_does_not_fit_is_refused_with_the_figures(
    model: str, options: list[str], needed: str | None
) -> None:
    said = too_large(model, options, (SMALL, SHAPE), 3 * GB)
    if needed is None:
        assert said is None
    else:
        assert said is not None
        assert said.startswith(f"{model} needs at least {needed}, and 3.0 GB are free")


def test_presets_are_those_that_the_engines_list() -> None:
    found = {preset.name: preset for preset in presets()}
    assert found["smollm2-135m"].trained
    assert not found["llama-3.2-tiny"].trained
    assert found["mistral-7b"].memory["float16"] > 14 * GB
    assert free_memory() >= 0.8 * psutil.virtual_memory().available


def test_memory_is_measured_for_every_model_that_fits(tmp_path: Path) -> None:
    """The fake engine has any model's name and loads none; a number format of which nothing fits is not asked for."""
    command = [sys.executable, "-m", "enginebench", "run", "memory", "--engine", "fake", "--runs", str(tmp_path)]
    command += ["--model", "random:llama-3.2-tiny", "--model", "random:gpt2", "--stages", "1"]
    command += ["--prompt-tokens", "32,64", "--output-tokens", "4", "--stage-seconds", "1", "--allow-invalid", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["label"] for run in runs] == ["fake random:llama-3.2-tiny", "fake random:gpt2"]
    assert {len(run["stages"]) for run in runs} == {2}
    assert {read_meta(Path(run["folder"])).model for run in runs} == {"random:llama-3.2-tiny", "random:gpt2"}
