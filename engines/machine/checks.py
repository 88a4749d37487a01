"""Checks of this machine: what enginebench needs, what is installed, and how to install the rest.

enginebench doctor
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from enginebench.settings.system import last_line
from engines.contract.base import Engine
from engines.contract.registry import engine_class, names
from engines.machine.cuda import Build, toolkit, torch_of, wheel_of
from engines.machine.devices import NoAnswer, driver, gpu_bytes, usable_cores, visible_gpus
from engines.machine.extras import install_command
from engines.machine.memory import free_memory
from engines.models.cache import cache_folder

DISK_WANTED = 2_000_000_000  # bytes: the default model, converted, and some runs
MEMORY_WANTED = 4_000_000_000  # bytes: two engines of the default model, one after the other, with their libraries
FILES_WANTED = 4096  # open files: one connection per user in the load generator, and one in the server
STAMP_ATTEMPTS = 5
STAMP_DELAY = 0.02  # seconds from asking for stamps to sending
LOAD_TEST_LIMIT = 180.0  # seconds; the test takes ten on a quiet machine, and forty if six other programs compute
SO_TIMESTAMPNS = 35  # asm-generic/socket.h; Python has no name for it
FOR_REPORTS, FOR_DOWNLOADS = ("polars", "scipy"), ("pip",)  # `make bundle` leaves them out
EXTRAS = ("transformers", "mistralrs")
GPU_CODE = "GPU code of "  # beginning of the names of checks of engines with code for GPUs


@dataclass(frozen=True, slots=True)
class Check:
    """A line of `doctor`'s list. enginebench works without a part that is not `required`; a part that is not `needed`
    would be useless on this machine."""

    name: str
    ok: bool
    found: str
    remedy: str = ""
    required: bool = False
    needed: bool = True


def examine(load_test: bool = False) -> list[Check]:
    """Return every check, in the order to read them; with a short load test only if asked for."""
    return [
        _python(),
        _scenarios(),
        _cores(),
        _memory(),
        _disk(),
        *_packages(),
        _gpu(),
        *gpu_checks({name: engine_class(name) for name in names()}),
        _kernel_stamps(),
        _open_files(),
        *([_load_test()] if load_test else []),
        _program("uv", "to install engines in environments of their own: pip install uv"),
        _program("prometheus", "to scrape a server; on Debian: apt-get install prometheus"),
        _program("cargo", "to build the Rust engines; see https://rustup.rs"),
    ]


def _python() -> Check:
    value = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    return Check("Python", True, value, required=True)


def _scenarios() -> Check:
    """Report where plain Locust finds the scenarios: `locust -f FOLDER/concurrent.py`."""
    package = find_spec("loadtests")
    folders = package.submodule_search_locations if package is not None else None
    value = folders[0] if folders else "not installed"
    return Check("Scenarios", bool(folders), value, "Install enginebench again.", required=True)


def _load_test() -> Check:
    """Run a short load test: Locust sends requests to the served scripted engine."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="enginebench-") as folder:
        command = [sys.executable, "-P", "-m", "enginebench", "run", "concurrent", "--engine", "fake", "--runs", folder]
        command += ["--stages", "1", "--stage-seconds", "1", "--warm-up", "0", "--exporter", "none"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TEST_LIMIT, cwd=folder)
            message = last_line(done.stderr).rstrip(".") or "it printed nothing"
        except subprocess.TimeoutExpired:
            message = f"it has not ended after {LOAD_TEST_LIMIT:.0f} s"
        records = [path.read_text() for path in Path(folder).glob("*/requests-*.jsonl")]  # names of records/files.py
    answered = sum(text.count('"outcome":"ok"') for text in records)
    value = f"{answered} requests answered in {time.monotonic() - began:.0f} s" if answered else f"none ran: {message}"
    remedy = "Run it by hand: enginebench run concurrent --engine fake --stages 1 --stage-seconds 1"
    return Check("Load test", answered > 0, value, remedy, required=True)


def _cores() -> Check:
    cores = len(usable_cores())
    return Check("CPU cores", cores >= 2, str(cores), "On one core, engine and load generator compete.")


def _memory() -> Check:
    import psutil

    free = free_memory()
    value = f"{free / 1e9:.1f} of {psutil.virtual_memory().total / 1e9:.1f} GB free"
    return Check("Memory", free >= MEMORY_WANTED, value, f"{MEMORY_WANTED / 1e9:.0f} GB are recommended.")


def _disk() -> Check:
    cache = cache_folder()
    existing = next(folder for folder in (cache, *cache.parents) if os.path.exists(folder))
    free = shutil.disk_usage(existing).free
    remedy = f"{DISK_WANTED / 1e9:.0f} GB are recommended; set ENGINEBENCH_CACHE to store models elsewhere."
    if not os.access(existing, os.W_OK):
        return Check("Disk for models", False, f"{cache} cannot be written to", remedy)
    return Check("Disk for models", free >= DISK_WANTED, f"{free / 1e9:.0f} GB free at {cache}", remedy)


def _packages() -> Iterator[Check]:
    """Yield the tool's own packages, then those of each engine."""
    from packaging.requirements import Requirement

    try:
        lines = importlib.metadata.requires("enginebench") or []
    except importlib.metadata.PackageNotFoundError:
        yield Check("Packages", False, "enginebench is not installed", "Run: pip install -e .", required=True)
        return
    requirements = [Requirement(line) for line in lines]
    base = [
        requirement
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]
    optional = {*FOR_REPORTS, *FOR_DOWNLOADS}
    needed = [requirement for requirement in base if requirement.name not in optional]
    yield _installed("Packages", needed, "pip install enginebench", required=True)
    for task, chosen in (("reports", FOR_REPORTS), ("downloads", FOR_DOWNLOADS)):
        yield _installed(
            f"Packages for {task}",
            [requirement for requirement in base if requirement.name in chosen],
            "pip install enginebench",
        )
    for extra in EXTRAS:
        packages = [
            requirement
            for requirement in requirements
            if requirement not in base and requirement.marker and requirement.marker.evaluate({"extra": extra})
        ]
        yield _installed(f"Engine {extra}", packages, install_command(extra))


def _installed(name: str, packages: list, install: str, required: bool = False) -> Check:  # type: ignore[type-arg]
    missing = []
    for requirement in packages:
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(requirement.name)
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{requirement.name}{requirement.specifier} (not {version})")
    value = f"missing: {', '.join(missing)}" if missing else f"{len(packages)} of {len(packages)} packages"
    return Check(name, not missing, value, f"Run: {install}", required)


def _gpu() -> Check:
    remedy = "Without an NVIDIA driver the engines run on the CPU, and reports have no GPU columns."
    try:
        with driver() as nvml:
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
            sizes = [gpu_bytes(nvml, handle) for handle in handles]
            names = [
                str(nvml.nvmlDeviceGetName(handle)) + ("" if size is None else f", {size / 1e9:.0f} GB")
                for handle, size in zip(handles, sizes, strict=True)
            ]
            release = nvml.nvmlSystemGetDriverVersion()
    except NoAnswer as error:
        return Check("GPU", False, str(error), remedy)
    return Check("GPU", bool(names), f"{'; '.join(names) or 'none'} (driver {release})", remedy)


def gpu_checks(engines: dict[str, type[Engine]]) -> Iterator[Check]:
    """Check each engine that has code for GPUs. Without a GPU nothing is missing."""
    here = bool(visible_gpus())
    for name, kind in engines.items():
        if kind.cuda_by == "torch":
            remedy = "Install another driver, or torch for another CUDA, as pytorch.org/get-started says."
            yield check_build(name, torch_of(kind), here, remedy)
        elif kind.cuda_by == "toolkit":
            remedy = "Install NVIDIA's CUDA toolkit, then `make engines FEATURES=cuda`."
            yield check_build(name, toolkit(), here, remedy, "no CUDA toolkit (nvcc) to build it with")
        elif kind.cuda_by == "wheel":
            yield check_build(name, wheel_of(name, kind), here, f"Install {name}'s wheel for CUDA from its releases.")


def by_outcome(checks: Sequence[Check]) -> list[Check]:
    """Merge the checks of engines with the same outcome into one line, in the place of the first."""
    engines: dict[Check, list[str]] = {}
    for check in checks:
        unnamed = replace(check, name="") if check.name.startswith(GPU_CODE) else check
        engines.setdefault(unnamed, []).append(check.name.removeprefix(GPU_CODE))
    return [
        check
        if check.name
        else replace(check, name=f"{GPU_CODE}{names[0]}")
        if len(names) == 1
        else replace(check, name=f"{GPU_CODE}{len(names)} engines", found=f"{', '.join(names)}: {check.found}")
        for check, names in engines.items()
    ]


def check_build(engine: str, build: Build | None, here: bool, remedy: str, absent: str = "not installed") -> Check:
    """Check one engine's build. `here`: this machine has a GPU."""
    name = f"{GPU_CODE}{engine}"
    if build is None or not build.has_cuda:
        return Check(name, not here, absent if build is None else build.text, remedy, needed=here)
    return Check(name, build.problem is None, build.problem or build.text, remedy)


def _kernel_stamps() -> Check:
    """Return whether the kernel stamps received bytes: then a busy client does not distort the measured times."""
    remedy = "The client then uses its own clock, and each record says so."
    try:
        stamped = any(_receives_a_stamp() for _ in range(STAMP_ATTEMPTS))
    except OSError as error:
        return Check("Kernel receive stamps", False, str(error.strerror or error), remedy)
    return Check("Kernel receive stamps", stamped, "on loopback" if stamped else "no stamp came", remedy)


def _receives_a_stamp() -> bool:
    """Try once. The kernel enables stamping asynchronously, so the first bytes may come without one."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), timeout=5) as sender,
        listener.accept()[0] as receiver,
    ):
        receiver.settimeout(5)
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        time.sleep(STAMP_DELAY)
        sender.sendall(b"x")
        _, ancillary, _, _ = receiver.recvmsg(1, socket.CMSG_SPACE(64))
    return any(level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS for level, kind, _ in ancillary)


def _open_files() -> Check:
    try:
        import resource
    except ImportError:
        return Check("Open files", True, "no limit known")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    value = f"{soft} (hard limit {hard})"
    return Check("Open files", soft >= FILES_WANTED, value, f"For many users: ulimit -n {FILES_WANTED} or more.")


def _program(name: str, use: str) -> Check:
    path = shutil.which(name)
    return Check(name, path is not None, str(Path(path)) if path else "not found", f"Only needed {use}.")
