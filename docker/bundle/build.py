"""One archive for a machine without network: this project, and the packages that serving and load generation need.

    make bundle        # dist/enginebench-0.2.0-linux-x86_64-cp312.tar.gz

It is for Linux on x86-64 and CPython 3.12. Torch and transformers must be on the machine; the analysis is left out. The
packages are used from the archive's folder without an installation. docs/gpu-server.md shows how.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import uv

from engines.machine.checks import FOR_DOWNLOADS, FOR_REPORTS

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHON, PLATFORM = "3.12", "x86_64-manylinux_2_28"
MAX_BYTES = 60_000_000  # bytes of the archive
LEFT_OUT = (*FOR_REPORTS, "polars-runtime-32", *FOR_DOWNLOADS, "hf-xet")
ENGINES = ("accelerate", "gguf", "safetensors")  # of the extra `transformers`, not included in torch or transformers
FOR_THERE = ("--python-version", PYTHON, "--python-platform", PLATFORM)


def build(into: Path) -> Path:
    """Build the archive in the folder `into`. Raises `CalledProcessError` if uv fails, which says why."""
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        _uv("build", "--wheel", "--out-dir", str(work), str(ROOT))
        (wheel,) = work.glob("*.whl")
        version = wheel.name.split("-")[1]
        folder = work / f"enginebench-{version}"
        requirements = work / "engines.in"
        requirements.write_text("\n".join(ENGINES))
        left_out = [word for name in LEFT_OUT for word in ("--no-emit-package", name)]
        base = _locked(work / "base.txt", str(ROOT / "pyproject.toml"), "--extra", "server", *left_out)
        engines = _locked(work / "engines.txt", str(requirements), "--no-deps")
        _install(folder / "packages", "--require-hashes", "-r", base, "-r", engines)
        _install(folder / "project", str(wheel))
        for made_from in folder.glob("project/*.dist-info/direct_url.json"):
            made_from.unlink()  # refers to the wheel, which is not in the archive
        shutil.copy(HERE / "sitecustomize.py", folder / "project")
        for source in (HERE / "run-here", ROOT / "LICENSE"):
            shutil.copy(source, folder)
        into.mkdir(parents=True, exist_ok=True)
        archive = into / f"{folder.name}-linux-x86_64-cp{PYTHON.replace('.', '')}.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
            tar.add(folder, folder.name, filter=_anonymous)
    return archive


def _locked(path: Path, *sources: str) -> str:
    """Write a file of requirements with the versions and hashes of requirements.lock, and return its path."""
    lock = str(ROOT / "requirements.lock")
    _uv("pip", "compile", *sources, "--constraint", lock, "--generate-hashes", *FOR_THERE, "--output-file", str(path))
    return str(path)


def _install(folder: Path, *what: str) -> None:
    """Install as pip would, but without programs: everything is started by `python -m`."""
    _uv("pip", "install", "--target", str(folder), "--no-deps", "--only-binary", ":all:", *FOR_THERE, *what)
    shutil.rmtree(folder / "bin", ignore_errors=True)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _uv(*words: str) -> None:
    subprocess.run([uv.find_uv_bin(), *words, "--quiet"], check=True, cwd=ROOT)


if __name__ == "__main__":
    archive = build(ROOT / "dist")
    size = archive.stat().st_size
    print(f"{archive}: {size / 1e6:.1f} MB")
    sys.exit(f"it is larger than {MAX_BYTES / 1e6:.0f} MB" if size > MAX_BYTES else 0)
