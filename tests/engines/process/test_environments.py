"""Environments of their own: made by uv from wheels that lie here, so without a network."""

import asyncio
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from engines.contract import registry
from engines.contract.base import GenerateRequest
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import EngineSpec
from engines.libraries.sglang import SglangEngine
from engines.libraries.tensorrt_llm import TensorRtLlmEngine
from engines.models.progress import silent
from engines.process import environments
from engines.process.engine_loading import load_engine
from engines.process.environments import Environment, InstalledEngine, Packages
from tests.support.engines.nvml_stand_in import Gpu, install
from tests.support.engines.wheels import write_wheel

ENGINE = """
from dataclasses import dataclass
from engines.contract.base import Chunk, EngineInfo
from engines.process.environments import Environment, InstalledEngine, Packages
from enginebench.settings.schema import setting

@dataclass(frozen=True, slots=True)
class Options:
    python: str | None = setting(None, "interpreter")

class TinyEngine(InstalledEngine):
    Options = Options
    environment = Environment("tiny", "tiny_library", Packages(PACKAGES))

    def load(self):
        import sys, tiny_library
        return EngineInfo("tiny", tiny_library.__version__, "python", "m", "none", "cpu", "none", 1, 4096, (),
                          {"prefix": sys.prefix})

    async def generate(self, request):
        yield Chunk("x", 1, "length")
"""


@pytest.fixture(autouse=True)
def own_cache(program: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program("uv")
    monkeypatch.setenv("ENGINEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setattr(environments, "OURS", ())  # they would come from PyPI


@pytest.fixture
def tiny(tmp_path: Path) -> Environment:
    wheel = write_wheel(tmp_path, "tiny-library", "1.5")
    return Environment("tiny", "tiny_library", Packages((f"tiny-library @ {wheel.as_uri()}",)))


def everything_installed_here() -> set[str]:
    """Of this interpreter's own packages."""
    return {path.name for path in Path(sysconfig.get_path("purelib")).iterdir()} - {"__pycache__"}


def test_an_engine_runs_in_the_environment_that_was_made_and_ours_is_untouched(
    tiny: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tiny.cpu is not None
    (tmp_path / "tiny_engine.py").write_text(ENGINE.replace("PACKAGES", repr(tiny.cpu.packages)))
    monkeypatch.syspath_prepend(tmp_path)
    spec = EngineSpec("tiny_engine:TinyEngine", "tiny", "none", needs_model=False)
    monkeypatch.setitem(registry.ENGINES, "tiny", spec)
    before = everything_installed_here()
    with pytest.raises(EngineUnavailable, match="install it with: enginebench engines install tiny"):
        load_engine("tiny")

    done = CliRunner().invoke(app, ["engines", "install", "tiny"])
    assert done.exit_code == 0, done.output
    assert everything_installed_here() == before

    async def main() -> None:
        engine = load_engine("tiny")
        info = await engine.start()
        assert (info.version, info.options["prefix"]) == ("1.5", str(tiny.folder))
        stream = engine.generate(GenerateRequest("", (1,), 1))
        assert [chunk.text async for ready in stream for chunk in ready] == ["x"]
        await engine.stop()

    asyncio.run(main())
    assert registry.engine_class("tiny").version_here() == "1.5"
    sys.modules.pop("tiny_engine", None)


def test_an_environment_is_installed_renewed_and_removed_whole(
    tiny: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny.install(None, silent)
    with monkeypatch.context() as patch:
        patch.setattr(environments, "_uv", lambda *_: pytest.fail("uv was called"))
        tiny.install(None, silent)
    (folder / environments.RECORD).unlink()  # as after a kill before the last step
    made_at = (folder / "pyvenv.cfg").stat().st_mtime_ns
    assert "install it with" in str(tiny.why_not_here())
    tiny.install(None, silent)
    assert tiny.why_not_here() is None
    assert (folder / "pyvenv.cfg").stat().st_mtime_ns == made_at
    (folder / environments.RECORD).write_text('["cuda", "of another library"]')
    (folder / "leftover").touch()
    tiny.install("cpu", silent)
    assert tiny.installed() == "cpu"
    assert not (folder / "leftover").exists(), "packages of another device are not mixed"
    newer = replace(tiny, cpu=Packages((f"tiny-library @ {write_wheel(tmp_path, 'tiny-library', '1.6').as_uri()}",)))
    assert newer.version() is None, "other pins need another installation"
    newer.install(None, silent)
    assert newer.version() == "1.6"
    assert newer.uninstall(silent)
    assert not folder.exists()
    assert not newer.uninstall(silent)


def test_requirements_are_left_out_and_replaced(tmp_path: Path) -> None:
    wanted = write_wheel(tmp_path, "other-library", "2.0")
    wheel = write_wheel(tmp_path, "tiny-library", requires=("no-such-library==9", "other-library==3.0"))
    overrides = (f"other-library @ {wanted.as_uri()}", "no-such-library; python_version < '3'")
    packages = Packages((f"tiny-library @ {wheel.as_uri()}",), overrides)
    environment = Environment("tiny", "tiny_library", packages)
    folder = environment.install(None, silent)
    names = {path.name for path in folder.glob("lib/python*/site-packages/*.dist-info")}
    assert names == {"tiny_library-1.0.dist-info", "other_library-2.0.dist-info"}


def test_a_failure_is_one_sentence_and_nothing_counts_as_installed(tmp_path: Path) -> None:
    environment = Environment("tiny", "tiny_library", Packages(("no-such-library==9",)))
    with pytest.raises(EngineUnavailable, match="run the same command again"):
        environment.install(None, silent)
    assert environment.why_not_here() == "it is not installed; install it with: enginebench engines install tiny"


def test_a_library_gets_its_interpreter_its_torch_and_its_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorRT-LLM's wheels are for two Pythons and for CUDA 13. Nothing is downloaded: uv's commands are noted."""
    commands: list[tuple[str, ...]] = []

    def noted(*words: str) -> None:
        commands.append(words)
        if words[0] == "venv":
            Path(words[-1]).mkdir(parents=True)

    monkeypatch.setattr(environments, "_uv", noted)
    monkeypatch.setattr(environments, "_is_installed", lambda name: True)
    TensorRtLlmEngine.environment.install("cuda", silent)
    made, install = commands
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert made[made.index("--python") + 1] == (sys.executable if here in {"3.10", "3.12"} else "3.12")
    assert install[install.index("--torch-backend") + 1] == "cu130"
    assert install[install.index("--index") + 1] == "https://pypi.nvidia.com"
    assert {"tensorrt-llm==1.2.1", "torch==2.9.1"} <= set(install)
    commands.clear()
    SglangEngine.environment.install("cuda", silent)
    assert commands[1][commands[1].index("--prerelease") + 1] == "allow"


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        (TensorRtLlmEngine, "it needs Open MPI: on Debian, apt-get install libopenmpi-dev."),
        (SglangEngine, "it needs nvcc to compile kernels at their first use: install NVIDIA's CUDA toolkit 13, or set"),
    ],
)
def test_what_pip_cannot_bring_is_named_before_anything_is_downloaded(
    engine: type[InstalledEngine], sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(environments, "find_library", lambda name: None)
    monkeypatch.setattr(environments, "_uv", lambda *_: pytest.fail("uv was called"))
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == "nvcc" else which(name, **more))
    with pytest.raises(EngineUnavailable, match=re.escape(sentence)):
        engine.environment.install("cuda", silent)


def test_nvcc_is_found_where_cuda_home_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    (tmp_path / "bin").mkdir()
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    assert Packages(("x==1",), system=("nvcc",)).missing() is None


@pytest.mark.parametrize(
    ("gpus", "reason"),
    [
        pytest.param(0, "it needs an NVIDIA GPU, and there is none here.", id="no GPU is visible"),
        pytest.param(1, "it is not installed; install it with: enginebench engines install x", id="one is"),
    ],
)
def test_packages_for_cuda_need_a_gpu(gpus: int, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, [Gpu()] * gpus)
    assert Environment("x", "no_such_module", cuda=Packages(("x==1",))).why_not_here() == reason


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param(["install", "fake"], 2, "fake needs no environment of its own; these do: ", id="not needed"),
        pytest.param(["uninstall", "vllm"], 0, "vllm is not installed.", id="nothing to remove"),
        pytest.param(["install", "sglang", "--device", "cpu"], 2, "sglang cannot be installed: it needs an", id="CUDA"),
    ],
)
def test_the_commands_answer_in_a_sentence(arguments: list[str], code: int, sentence: str) -> None:
    done = CliRunner().invoke(app, ["engines", *arguments])
    assert done.exit_code == code
    assert sentence in done.output
