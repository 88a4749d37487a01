"""Separate environments for engines whose packages conflict with ours, made by uv in the user's cache.

    enginebench engines install vllm
    enginebench engines uninstall vllm

An environment counts as installed once its record is complete, which is the last step. An interrupted installation is
continued: what uv has downloaded and installed stays.

Environments are not uv's tools: `uv tool install` refuses packages without a program, and most here are libraries.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from ctypes.util import find_library
from dataclasses import astuple, dataclass
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from engines.contract.base import Engine, Launch, Model
from engines.contract.errors import EngineUnavailable
from engines.machine.devices import cuda_program, visible_gpus
from engines.models.cache import cache_folder, locked
from engines.models.progress import Progress

Device = Literal["cpu", "cuda"]
RECORD = "enginebench.json"
NAME = re.compile(r"[\w.-]+")
# What our own modules import in these environments: the cache's lock, random weights.
OURS = ("filelock", "numpy", "tokenizers")
# Parts that pip cannot install, and where to get them.
SYSTEM = {
    "nvcc": "nvcc to compile kernels at their first use: install NVIDIA's CUDA toolkit 13, or set CUDA_HOME to it",
    "libmpi": "Open MPI: on Debian, apt-get install libopenmpi-dev",
}


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages to install, as uv names them. `overrides` replace what packages require.

    `pythons` are the versions with wheels (none: this one), the preferred one first. `arguments` are further ones of
    `uv pip install`. `system` is what the packages need but do not include: `nvcc`, a program, or `libmpi`, a library.
    """

    packages: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    system: tuple[str, ...] = ()

    @property
    def library(self) -> str:
        """Return the first package, without its version."""
        return NAME.match(self.packages[0])[0]  # type: ignore[index]

    @property
    def python(self) -> str:
        """Return the interpreter, as uv finds or downloads it."""
        own_version = f"{sys.version_info.major}.{sys.version_info.minor}"
        return sys.executable if not self.pythons or own_version in self.pythons else self.pythons[0]

    def missing(self) -> str | None:
        """Return one sentence if a part of the system is missing."""
        lacking = [SYSTEM[name] for name in self.system if not _is_installed(name)]
        return f"it needs {' and '.join(lacking)}." if lacking else None


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of one engine. `module` is what the engine imports; a device without packages is not served."""

    engine: str
    module: str
    cpu: Packages | None = None
    cuda: Packages | None = None

    @property
    def package(self) -> str:
        """Return the name of the library's package."""
        packages = self.cpu or self.cuda
        assert packages is not None
        return packages.library

    @property
    def folder(self) -> Path:
        return cache_folder() / "environments" / self.engine

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def device(self) -> Device:
        """Return the device that was installed, or would be."""
        return self.installed() or self._best

    @property
    def _best(self) -> Device:
        """Return the device that suits this machine."""
        return "cuda" if self.cuda is not None and visible_gpus() else "cpu"

    def installed(self) -> Device | None:
        """Return the installed device; `None` if there is none, or if it belongs to another version of this tool."""
        try:
            device, identity = self._recorded() or (None, None)
            return device if device is not None and identity == _identity(self._packages(device)) else None
        except EngineUnavailable:
            return None

    def _recorded(self) -> tuple[Device, Any] | None:
        """Return the device of an installation, and the identity of its packages; `None` in place of it if the
        installation is not complete."""
        try:
            device, identity = json.loads((self.folder / RECORD).read_text())
            return cast(Device, device), identity
        except (OSError, ValueError):
            return None

    def version(self) -> str | None:
        """Return the version of the installed library."""
        if (device := self.installed()) is None:
            return None
        folders = [str(path) for path in self.folder.glob("lib/python*/site-packages")]
        return next(
            (distribution.version for distribution in distributions(name=self._packages(device).library, path=folders)),
            None,
        )

    def why_not_here(self) -> str | None:
        try:
            if (device := self.installed()) is not None:
                return self._packages(device).missing()
            self._packages(self._best)
        except EngineUnavailable as error:
            return str(error)
        return f"it is not installed; install it with: enginebench engines install {self.engine}"

    def install(self, device: Device | None, progress: Progress) -> Path:
        """Return the environment's folder. uv's own progress goes to standard error. Raises `EngineUnavailable`."""
        device = device or self._best
        needed = self._packages(device)
        if (missing := needed.missing()) is not None:
            raise EngineUnavailable(missing)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(self.folder, progress):
            if self.installed() == device:
                return self.folder
            before = self._recorded()
            progress(f"installing {' '.join(needed.packages)} to {self.folder}")
            if not self.python.exists() or (before is not None and before[0] != device):
                # The packages of another device own the same files.
                _uv("venv", "--quiet", "--clear", "--python", needed.python, str(self.folder))
            (self.folder / RECORD).write_text(json.dumps([device, None]))  # not complete
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as overrides:
                print(*needed.overrides, sep="\n", file=overrides, flush=True)
                command = ("pip", "install", "--python", str(self.python), "--overrides", overrides.name)
                _uv(*command, *needed.arguments, *needed.packages, *OURS)
            unfinished = self.folder / f"{RECORD}.unfinished"
            unfinished.write_text(json.dumps([device, _identity(needed)]))
            unfinished.rename(self.folder / RECORD)
        return self.folder

    def uninstall(self, progress: Progress) -> bool:
        """Return whether there was anything to remove."""
        if not self.folder.exists():
            return False
        with locked(self.folder, progress):
            (self.folder / RECORD).unlink(missing_ok=True)
            shutil.rmtree(self.folder)
        return True

    def _packages(self, device: Device) -> Packages:
        """Raises `EngineUnavailable`."""
        if (packages := self.cuda if device == "cuda" else self.cpu) is not None:
            return packages
        if device == "cpu":
            raise EngineUnavailable("it needs an NVIDIA GPU, and there is none here.")
        raise EngineUnavailable(f"{self.engine} has no packages for CUDA; install it with: --device cpu")


class InstalledEngine(Engine):
    """An engine that runs in its own environment, in ours if its library is installed, or on `options.python`."""

    environment: ClassVar[Environment]
    cuda_by: ClassVar[Literal["torch", "toolkit", "wheel"] | None] = "torch"

    @classmethod
    def why_not_here(cls) -> str | None:
        return None if _importable(cls.environment.module) else cls.environment.why_not_here()

    @classmethod
    def version_here(cls) -> str | None:
        return cls.environment.version()

    @classmethod
    def launch(cls, options: Any, model: Model | None) -> Launch:
        """Raises `EngineUnavailable`."""
        if options.python is not None:
            return Launch(python=os.path.expanduser(options.python))
        if _importable(cls.environment.module):
            return Launch()
        if (reason := cls.environment.why_not_here()) is not None:
            raise EngineUnavailable(f"{cls.environment.engine} cannot run here: {reason}")
        # Large libraries start in a tenth of the time once they are compiled; our cache keeps the bytecode.
        return Launch(python=str(cls.environment.python), environment={"PYTHONDONTWRITEBYTECODE": None})


def _importable(module: str) -> bool:
    spec = find_spec(module)
    return spec is not None and spec.origin is not None  # without an origin, it is any folder of that name


def _is_installed(name: str) -> bool:
    if name.startswith("lib"):
        return find_library(name.removeprefix("lib")) is not None
    return cuda_program(name) is not None


def _identity(packages: Packages) -> str:
    facts = [platform.python_version(), *astuple(packages), OURS]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def _uv(*arguments: str) -> None:
    """Raises `EngineUnavailable`."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    if (program := shutil.which("uv", path=folders)) is None:
        raise EngineUnavailable("this needs uv, which is not on the path; install it with: pip install uv")
    # With these variables, uv would install into our environment.
    environment = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
    try:
        done = subprocess.run([program, *arguments], stdout=2, env=environment, check=False)
    except OSError as error:
        raise EngineUnavailable(f"cannot run {program} ({error.strerror}).") from error
    if done.returncode:
        raise EngineUnavailable(f"uv {arguments[0]} failed, as it says above; run the same command again to continue.")
