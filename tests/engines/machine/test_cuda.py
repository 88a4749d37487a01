"""What GPU code needs of driver, CUDA, cuDNN and GPU, against made-up machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import Launch, Model
from engines.libraries.vllm import VllmEngine
from engines.machine.cuda import (
    OLDEST_TOOLKIT,
    Build,
    Check,
    Machine,
    by_outcome,
    judge,
    torch_here,
    torch_in,
    torch_of,
)
from engines.machine.doctor import examine

H100 = Machine("580.95.05", (13, 0), ((9, 0),))
OLD_DRIVER = Machine("570.124.06", (12, 8), ((9, 0),))
V100 = Machine("580.95.05", (13, 0), ((9, 0), (7, 0)))
TORCH = Build("torch 2.15.0", (13, 2), "9.26.0.51")
REMEDY = "install another torch"


@pytest.mark.parametrize(
    ("build", "here", "ok", "found"),
    [
        pytest.param(TORCH, H100, True, "torch 2.15.0 with CUDA 13.2 and cuDNN 9.26.0.51; driver 580.95.05", id="fits"),
        pytest.param(TORCH, OLD_DRIVER, False, "needs driver 580 or newer, and this is 570.124.06", id="old driver"),
        pytest.param(Build("torch 2.9.0", (12, 8)), OLD_DRIVER, True, "driver 570.124.06 runs it", id="CUDA 12"),
        pytest.param(TORCH, V100, False, "compute capability 7.5, and a GPU here has 7.0", id="one of two is too old"),
        pytest.param(Build("torch 2.15.0", None), H100, False, "torch 2.15.0 without CUDA", id="a build for the CPU"),
        pytest.param(Build("nvcc", (11, 2)), H100, False, "CUDA 11.2, where 11.4 or newer is needed", id="old toolkit"),
        pytest.param(None, H100, False, "not installed", id="nothing there"),
        pytest.param(
            TORCH, None, True, "on a GPU it needs driver 580 or newer and compute capability 7.5", id="no GPU"
        ),
        pytest.param(None, None, True, "not installed", id="nothing there, nothing missing"),
        pytest.param(Build("torch 2.15.0", None), None, True, "torch 2.15.0 without CUDA", id="a CPU build, no GPU"),
        pytest.param(Build("x", (14, 0)), H100, True, "is not known here", id="a later CUDA"),
    ],
)
def test_what_an_engine_needs(build: Build | None, here: Machine | None, ok: bool, found: str) -> None:
    oldest = OLDEST_TOOLKIT if build is not None and build.library == "nvcc" else (0,)
    answer = judge("x", build, here, REMEDY, oldest)
    assert answer.ok is ok
    assert answer.needed == (here is not None or (build is not None and build.cuda is not None))
    assert found in answer.found
    assert ok or "nstall another torch." in answer.remedy


def test_torch_is_not_imported_to_see_what_it_was_built_with(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    version = tmp_path / "torch" / "version.py"
    version.write_text("from typing import Optional\n__version__ = '2.9.1+cu128'\ncuda: Optional[str] = '12.8'\n")
    cudnn = tmp_path / "nvidia_cudnn_cu12-9.10.2.21.dist-info"
    cudnn.mkdir()
    (cudnn / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-cudnn-cu12\nVersion: 9.10.2.21\n")
    assert torch_in(tmp_path) == Build("torch 2.9.1", (12, 8), "9.10.2.21")
    version.write_text("__version__ = '2.9.1+cpu'\ncuda: Optional[str] = None\n")
    assert torch_in(tmp_path) == Build("torch 2.9.1", None, "9.10.2.21")
    version.unlink()
    assert torch_in(tmp_path) is None


def test_torch_is_found_wherever_an_interpreter_has_it_from(tmp_path: Path) -> None:
    """As a GPU machine's own, in the system's packages or a user's."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "torch").mkdir(parents=True)
    (elsewhere / "torch" / "__init__.py").touch()
    (elsewhere / "torch" / "version.py").write_text("__version__ = '2.11.0+cu130'\ncuda: str = '13.0'\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={elsewhere} exec {sys.executable} "$@"\n')
    python.chmod(0o755)

    class There(VllmEngine):
        @classmethod
        def launch(cls, options: Any, model: Model | None) -> Launch:
            return Launch(python=str(python))

    assert torch_of(There) == Build("torch 2.11.0", (13, 0))
    assert torch_here() is not None


def test_doctor_has_a_line_for_each_engine_with_code_for_gpus() -> None:
    found = {check.name for check in examine()}
    assert {f"GPU code of {name}" for name in ("transformers", "mistralrs", "candle", "burn")} <= found
    assert "GPU code of fake" not in found


def test_engines_whose_gpu_code_is_judged_alike_share_a_line() -> None:
    checks = [
        Check("Python", True, "3.11"),
        Check("GPU code of a", True, "torch 2.9.1"),
        Check("GPU code of b", False, "not installed", "Install it."),
        Check("GPU code of c", True, "torch 2.9.1"),
    ]
    assert by_outcome(checks) == [
        checks[0],
        Check("GPU code of 2 engines", True, "a, c: torch 2.9.1"),
        checks[2],
    ]
