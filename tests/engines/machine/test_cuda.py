"""Whether GPU code works with driver and GPU, by what brings its CUDA."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import Launch, Model
from engines.libraries.vllm import VllmEngine
from engines.machine.cuda import Build, toolkit, torch_of
from engines.pytorch.device import build_here
from engines.transformers import TransformersEngine
from tests.support.engines.nvml_stand_in import Gpu, install
from tests.support.engines.torch_when_used import torch


def test_torch_says_why_it_cannot_use_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A V100 and an H100, made up, beside a build that has no kernels for the older one."""
    install(monkeypatch, [Gpu((7, 0)), Gpu((9, 0))])
    monkeypatch.setattr(torch.version, "cuda", "13.2")
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: ((7, 0), (9, 0))[index])
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_75", "sm_90", "sm_90a", "compute_120"])
    build = build_here()
    assert build is not None
    assert "kernels from compute capability 7.5 on, and a GPU has 7.0" in str(build["problem"])
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_70", "sm_90"])
    assert (Build(**(build_here() or {})).problem, build["has_cuda"]) == (None, True)


def test_torch_is_asked_wherever_an_interpreter_has_it_from(tmp_path: Path) -> None:
    """As a GPU machine's own, in the system's packages or a user's."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "from types import SimpleNamespace\n__version__, version = '2.11.0+cpu', SimpleNamespace(cuda=None)\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)

    class There(VllmEngine):
        @classmethod
        def launch(cls, options: Any, model: Model | None) -> Launch:
            return Launch(python=str(python))

    assert torch_of(There) == Build("torch 2.11.0 without CUDA", has_cuda=False)
    here = torch_of(TransformersEngine)
    assert here is not None
    assert here.text.startswith(f"torch {torch.__version__.partition('+')[0]} with")


@pytest.mark.parametrize(
    ("release", "newest", "problem"),
    [
        pytest.param("11.2", 13, "nvcc with CUDA 11.2, where 11.4 or newer is needed", id="too old a toolkit"),
        pytest.param("13.1", 12, "nvcc with CUDA 13.1, and the driver runs CUDA 12 at most", id="too old a driver"),
        pytest.param("12.8", 12, None, id="fits"),
        pytest.param("12.8", None, None, id="no driver"),
    ],
)
def test_the_toolkit_is_compared_with_the_driver(
    release: str, newest: int | None, problem: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.20'\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    install(monkeypatch, [Gpu()] if newest else [])
    monkeypatch.setattr(sys.modules["pynvml"], "nvmlSystemGetCudaDriverVersion_v2", lambda: 1000 * (newest or 99))
    assert toolkit() == Build(f"nvcc with CUDA {release}", has_cuda=True, problem=problem)
