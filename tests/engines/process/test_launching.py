"""An engine in an environment of its own, with other packages than ours."""

import asyncio
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.contract.base import GenerateRequest, Launch
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import EngineSpec
from engines.process.engine_loading import load_engine
from engines.process.launching import environment_of, modules_folder, why_not_there

ENGINE = """
import asyncio, os, sys
from dataclasses import dataclass
from engines.contract.base import Chunk, Engine, EngineInfo, Launch
from enginebench.settings.schema import setting

@dataclass(frozen=True, slots=True)
class Options:
    python: str = setting("", "interpreter")

class ForeignEngine(Engine):
    Options = Options
    loads_on = "main"

    @classmethod
    def launch(cls, options, model):
        return Launch(python=options.python, environment={"FOREIGN": "yes"})

    @classmethod
    def why_not_here(cls):
        from importlib.util import find_spec
        return None if find_spec("foreign_library") else "it needs the package foreign_library."

    async def load(self):
        import numpy, foreign_library
        asyncio.get_running_loop()
        told = {"numpy": numpy.__version__, "prefix": sys.prefix, "path": sys.path,
                "variables": {k: os.environ.get(k) for k in ("PYTHONPATH", "VIRTUAL_ENV", "FOREIGN")}}
        return EngineInfo("foreign", "1", "python", "m", "none", "cpu", "none", 1, 4096, (), told)

    async def generate(self, request):
        yield Chunk("x", 1, "length")
"""


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter whose numpy is not ours, and that has a library which we lack."""
    folder = tmp_path_factory.mktemp("foreign")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in ("numpy", "foreign_library"):
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("__version__ = '0.0.1'\n")
    return str(folder / "bin" / "python")


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The engine of another package, which is installed beside us and not in its own environment."""
    from engines.contract import registry

    (tmp_path / "foreign_engine.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(tmp_path)
    spec = EngineSpec("foreign_engine:ForeignEngine", "elsewhere", "none", needs_model=False)
    monkeypatch.setitem(registry.ENGINES, "foreign", spec)
    yield "foreign"
    sys.modules.pop("foreign_engine", None)


def test_it_runs_with_its_own_packages(foreign: str, brought: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere/of/ours")
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)

    async def main() -> dict[str, object]:
        engine = load_engine(brought, options={"python": foreign})
        info = await engine.start()
        stream = engine.generate(GenerateRequest("", (1,), 1))
        assert [chunk.text async for ready in stream for chunk in ready] == ["x"]
        await engine.stop()
        return dict(info.options)

    told = asyncio.run(main())
    assert told["numpy"] == "0.0.1"
    assert told["prefix"] == str(Path(foreign).parent.parent)
    folder = str(modules_folder("foreign_engine:ForeignEngine"))
    assert told["variables"] == {"PYTHONPATH": folder, "VIRTUAL_ENV": None, "FOREIGN": "yes"}
    modules = {path.name for path in Path(folder).iterdir()} - {"__pycache__"}  # the interpreter may write its own
    assert modules == {"engines", "enginebench", "foreign_engine.py"}


def test_what_is_missing_is_asked_of_that_interpreter(foreign: str, brought: str, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="foreign cannot run here: it needs the package foreign_library"):
        load_engine(brought, options={"python": sys.executable})
    with pytest.raises(EngineUnavailable, match="/no/such/python cannot run it"):
        load_engine(brought, options={"python": "/no/such/python"})
    load_engine(brought, options={"python": foreign})


def test_the_current_folder_holds_no_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another checkout, or a file named as a module of Python."""
    (tmp_path / "engines").mkdir()
    for name in ("engines/__init__.py", "random.py", "queue.py"):
        (tmp_path / name).write_text("raise RuntimeError('of another project')")
    monkeypatch.chdir(tmp_path)
    assert why_not_there(Launch(), "engines.fake.engine:FakeEngine") is None


@pytest.mark.parametrize("launch", [Launch(), Launch(python="/other/python"), Launch(command=("program",))])
def test_gpus_are_numbered_by_bus_unless_the_user_says_otherwise(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As NVML does, so that `cuda:1` is the GPU whose memory and energy are looked at."""
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    assert environment_of(launch, "engines.fake.engine:FakeEngine")["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    assert environment_of(launch, "engines.fake.engine:FakeEngine")["CUDA_DEVICE_ORDER"] == "FASTEST_FIRST"


def test_the_worker_imports_only_the_standard_library(tmp_path: Path) -> None:
    folder = modules_folder("engines.fake.engine:FakeEngine")
    code = "import sys, json, engines.process.worker, engines.fake.engine; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(folder)}, capture_output=True, check=True
    )
    tops = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert tops - set(sys.stdlib_module_names) <= {"__main__", "engines", "enginebench", "sitecustomize"}
