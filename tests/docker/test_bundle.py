"""The archive for a machine without network: unpacked and used where there is neither a network nor a package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docker.bundle.build import LEFT_OUT, MAX_BYTES, PYTHON, build
from enginebench.cli import app
from enginebench.records.files import read_meta, read_requests

pytestmark = pytest.mark.xdist_group("bundle")  # is built once
ROOT = Path(__file__).parents[2]

# In a network of its own that has nothing but this machine's loopback, which is switched on (SIOCSIFFLAGS).
LOOPBACK = 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 0x41))'
ALONE = ["unshare", "--net", "sh", "-c", f"{sys.executable} -c '{LOOPBACK}' && exec \"$@\"", "sh"]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def _python() -> str | None:
    """An interpreter of the archive's version."""
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [f"python{PYTHON}", *map(str, sorted(versions.glob(f"{PYTHON}.*/bin/python"), reverse=True))]
    for candidate in candidates:
        if shutil.which(candidate) and subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            return candidate
    return None


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def run_here(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Calls the archive's program with a Python that has no packages; without a network where that is permitted."""
    if (python := _python()) is None:
        pytest.skip(f"there is no Python {PYTHON} here.")
    home = tmp_path_factory.mktemp("home")
    with tarfile.open(archive) as tar:
        tar.extractall(home, filter="data")
    (folder,) = home.glob("enginebench-*")
    bare = home / "bare"
    subprocess.run([python, "-m", "venv", "--without-pip", str(bare)], check=True)
    alone = ALONE if subprocess.run([*ALONE, "true"], capture_output=True).returncode == 0 else []
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHON": str(bare / "bin/python")}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*alone, str(folder / "run-here"), *words]
        return subprocess.run(command, cwd=home, env=variables, capture_output=True, text=True, timeout=300)

    return run


def test_it_is_small_and_lacks_the_analysis(archive: Path) -> None:
    assert archive.stat().st_size <= MAX_BYTES
    with tarfile.open(archive) as tar:
        folders = {name.split("/")[2] for name in tar.getnames() if ".dist-info/" in name}
        names = {folder.split("-")[0].replace("_", "-") for folder in folders}
        assert not names & {*LEFT_OUT, "torch", "transformers"}
        assert {"locust", "fastapi", "tokenizers", "accelerate", "enginebench"} <= names
        assert {(member.uid, member.uname) for member in tar} == {(0, "")}


def test_an_engine_is_served_and_tested_and_the_records_come_home(run_here: Run, tmp_path: Path) -> None:
    options = ["-o", "ttft=0.02", "-o", "tpot=0.002", "--stages", "2", "--stage-seconds", "3", "--warm-up", "1"]
    done = run_here("run", "concurrent", "--engine", "fake", *options)
    assert done.returncode == 0, done.stderr
    (named,) = re.findall(r"^  (/\S+)$", done.stdout, re.MULTILINE)
    home = tmp_path / Path(named).name
    shutil.copytree(named, home)
    engine = read_meta(home).engine
    assert engine is not None
    assert engine["name"] == "fake"
    assert any(record.outcome == "ok" for record in read_requests(home))
    assert "tokens/s" in CliRunner().invoke(app, ["report", str(home), "--allow-invalid"]).stdout


def test_engines_are_measured_without_http_and_the_figures_come_home(run_here: Run, tmp_path: Path) -> None:
    sizes = ["--prefill", "32", "--generate", "10", "--batch", "2", "--repeat", "1", "--samples", "2"]
    refused = run_here("bench", "fake", *sizes)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "give --output FILE" in refused.stderr
    output = tmp_path / "bench.json"
    measured = run_here("bench", "fake", "-o", "tpot=0.001", *sizes, "--output", str(output))
    assert measured.returncode == 0, measured.stderr
    rows = json.loads(output.read_text())["rows"]
    assert {row["metric"] for row in rows} >= {"prefill", "generate", "batch"}


def test_studies_and_their_grids_are_in_it(run_here: Run) -> None:
    listed = run_here("study")
    assert listed.returncode == 0, listed.stderr
    for grid in (ROOT / "enginebench" / "studies" / "grids").glob("*.toml"):
        assert grid.stem in listed.stdout


def test_what_is_not_there_is_said_in_a_sentence(run_here: Run) -> None:
    done = run_here("report", "runs/none")
    assert done.returncode == 2
    assert re.fullmatch(r"`report` needs the package \w+, which is not here: [a-z ]+\.", " ".join(done.stderr.split()))
    assert run_here("--version").stdout.startswith("enginebench ")


def test_another_python_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    script, variables = ROOT / "docker/bundle/run-here", {"PATH": "/usr/bin:/bin", "PYTHON": str(other)}
    done = subprocess.run([script, "--version"], env=variables, capture_output=True, text=True)
    assert done.returncode == 2
    assert "CPython 3.12" in done.stderr
    assert str(other) in done.stderr
