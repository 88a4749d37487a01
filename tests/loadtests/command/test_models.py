"""`enginebench run` tests no model that memory cannot hold."""

from __future__ import annotations

import io
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from loadtests import cli
from loadtests.harness.command.drive import Job, find_scenario, subjects
from loadtests.harness.command.models import Preset, free_memory, presets, too_large
from records.files import read_meta

GB = 10**9
SMALL = Preset("small", {"float32": 4 * GB, "float16": 2 * GB, "8-bit": GB, "4-bit": GB // 2})
SHAPE = Preset("shape", {"float32": 12 * GB, "float16": 6 * GB, "8-bit": 3 * GB, "4-bit": 2 * GB})


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
    assert found["mistral-7b"].memory["float16"] > 14 * GB
    assert free_memory() >= 0.8 * psutil.virtual_memory().available


def test_memory_is_measured_for_every_model_that_fits(tmp_path: Path) -> None:
    """The fake engine has any model's name and loads none."""
    names = ["random:llama-3.2-tiny", "random:mistral-7b", "random:gpt2"]
    given = {"load": "1", "prompt_tokens": "32,64", "output_tokens": "4", "stage_seconds": "1", "runs": str(tmp_path)}
    job, options, said = Job.of(find_scenario("memory"), given, 1, []), dict[str, list[str]](fake=[]), io.StringIO()
    console, runs = Console(file=said, width=400), list[Path]()
    large = Preset("mistral-7b", {"float16": 10**15})
    known = [large if preset.name == large.name else preset for preset in presets()]
    fitting = cli._that_fit(subjects(["fake"], names), options, known, console)
    assert len(fitting) == 2
    assert "random:mistral-7b needs at least 1000000.0 GB" in said.getvalue()
    assert cli._measure(job, options, fitting, None, 1, console, runs)
    metas = [read_meta(run) for run in runs]
    assert [meta.label for meta in metas] == ["fake random:llama-3.2-tiny", "fake random:gpt2"]
    assert [meta.model for meta in metas] == ["random:llama-3.2-tiny", "random:gpt2"]
    assert [len(meta.stages) for meta in metas] == [2, 2]
