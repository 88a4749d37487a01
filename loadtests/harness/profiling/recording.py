"""One process under one profiler: recorded for some seconds, and read afterwards."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from enginebench.records.profile import FOLDER, Profile
from loadtests.harness.profiling.profilers import NoProfile, Profiler, draw

GRACE = 60.0  # seconds beyond those that it records, for a profiler to start and to write
Of = Literal["engine", "server"]


@dataclass
class Recording:
    """`folder` is the run's, `load` says under what it was recorded. `why` becomes the reason why there is none."""

    profiler: Profiler
    folder: Path
    label: str
    of: Of
    load: str
    seconds: float
    why: str | None = None

    @property
    def stem(self) -> Path:
        return (self.folder / FOLDER / f"{self.profiler.name}-{self.of}").absolute()

    @property
    def prefix(self) -> tuple[str, ...]:
        """What goes before the engine's command."""
        make = self.profiler.prefix
        return () if make is None else tuple(make(self.profiler.path, self.stem))

    def attach(self, pid: int) -> None:
        """Record the process, and return when that is over."""
        assert self.profiler.attach is not None
        command = self.profiler.attach(self.profiler.path, pid, self.seconds, self.stem)
        log = self.stem.with_suffix(".log")
        try:
            with log.open("wb") as output:
                limit = self.seconds + GRACE
                done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=limit)
        except (OSError, subprocess.TimeoutExpired) as error:
            self.why = f"{shlex.join(command)} failed: {error}."
            return
        if done.returncode != 0:
            said = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
            self.why = f"{self.profiler.name} failed: {said[0].rstrip('.') if said else 'it says nothing'} ({log})."

    def read(self) -> Profile:
        """Once the profiler has ended: with the process where its command goes before the process's."""
        profile = Profile(self.profiler.name, self.label, self.of, self.profiler.shows, self.load, self.seconds)
        if self.why is not None:
            return replace(profile, failure=self.why)
        try:
            seen = self.profiler.read(self.stem)
        except NoProfile as error:
            return replace(profile, failure=str(error))
        picture = draw(seen, self.stem, f"{self.label}, {self.of}: {self.profiler.shows}, {self.load}")
        files = [path.name for path in sorted(self.stem.parent.glob(f"{self.stem.name}.*")) if path.name != picture]
        found = {"unit": seen.unit, "total": seen.total, "hot": seen.hot, "facts": seen.facts}
        return replace(profile, **found, files=tuple(files), picture=picture)
