"""The profiler of `--profile`, which attaches to an engine's process or starts it.

enginebench run concurrent --engine transformers --profile py-spy
enginebench run concurrent --engine candle --profile 'perf record --pid {pid} --output {output}.data sleep 10'
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from enginebench.settings.schema import UserMistake

ATTACHED, STARTED = "{pid}", "{command}"
PRESETS = {
    "py-spy": "py-spy record --pid {pid} --subprocesses --rate 99 --duration 10 --output {output}.svg",
    "nsys": "nsys profile --trace=cuda,nvtx --trace-fork-before-exec=true --sample=none --cpuctxsw=none "
    "--force-overwrite=true --output {output} {command}",
}
SECONDS = 10.0  # seconds of load for a profiler that starts the engine and ends with it
LIMIT = 600.0  # seconds for a profiler that attaches
ASIDE = ("/bin/sh", "-c", 'exec 9>&1 1>&2; exec "$@"', "sh")  # standard output is the engine's protocol
RESTORED = ("/bin/sh", "-c", 'exec "$@" 1>&9 9>&-', "sh")


class ProfileFailed(Exception):
    """The profiler recorded nothing. The text is a sentence."""


@dataclass(frozen=True, slots=True)
class Profiler:
    """`words` are its command line, with the placeholders `{pid}` or `{command}`, and `{output}`."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Profiler:
        """Read a preset or a command. Raises `UserMistake`."""
        try:
            words = shlex.split(PRESETS.get(text, text))
        except ValueError as error:
            raise UserMistake(f"--profile cannot be read: {error}.") from None
        if not any(ATTACHED in word for word in words) and words[-1:] != [STARTED]:
            raise UserMistake(
                f"--profile is {', '.join(PRESETS)} or a command that contains {ATTACHED}, the engine's process id, or "
                f"ends in {STARTED}, the command that starts the engine; not `{text}`."
            )
        own = Path(sys.executable).parent  # an environment need not be on PATH
        program = which(words[0], path=os.pathsep.join([str(own), os.environ.get("PATH", os.defpath)]))
        if program is None:
            hint = ": pip install 'enginebench[profile]'" if words[0] == "py-spy" else ""
            raise UserMistake(f"the profiler {words[0]} is not installed{hint}.")
        return cls((program, *words[1:]))

    @property
    def name(self) -> str:
        return Path(self.words[0]).name

    def prefix(self, output: Path) -> tuple[str, ...]:
        """Return the words before the engine's command; nothing for a profiler that attaches."""
        return (*ASIDE, *self._filled(output)[:-1], *RESTORED) if self.words[-1] == STARTED else ()

    def attach(self, pid: int, output: Path) -> None:
        """Record the process `pid` until the profiler ends. Raises `ProfileFailed`."""
        log = output.with_suffix(".log")
        command = [word.replace(ATTACHED, str(pid)) for word in self._filled(output)]
        try:
            with log.open("wb") as file:
                done = subprocess.run(
                    command, cwd=output.parent, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=LIMIT
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ProfileFailed(f"{self.name} failed: {error}.") from None
        if done.returncode != 0:
            lines = log.read_text(errors="replace").split("\n")
            reason = next((line.strip().rstrip(".") for line in lines if line.strip()), "it gave no reason")
            raise ProfileFailed(f"{self.name} failed: {reason} ({log}).")

    def _filled(self, output: Path) -> list[str]:
        return [word.replace("{output}", str(output)) for word in self.words]

    def output(self, folder: Path) -> Path:
        """Make `folder`, and return the path of the profiler's files in it, without a suffix."""
        folder.mkdir(parents=True, exist_ok=True)
        return folder.absolute() / self.name
