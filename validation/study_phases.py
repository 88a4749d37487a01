"""Does a study survive `kill -9` in each phase, end with its budget, and go on in another installation?

    python -m validation.study_phases                # about five minutes
    python -m validation.study_phases --output validation/results/study_phases.json

The wheel is installed into two environments without development packages. In the first one, a small study of the
scripted engine is killed in each phase and started again; then it is interrupted, packed, and finished by the second.
What was measured before a kill must be the same to the last byte at the end, and no process may be left behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import uv

from validation.program import ROOT, command_line, print_fields, write

GRID = """
title = "Small"
baseline = "fast"
repeats = 2

[[models]]
name = "random:llama-3.2-tiny"
label = "none"

[[engines]]
label = "fast"
engine = "fake"
options = { tpot = 0.002 }

[[engines]]
label = "slow"
engine = "fake"
options = { tpot = 0.004, load_time = 3 }

[[parts]]
name = "users"
kind = "load"
scenario = "concurrent"
settings = { stages = "1,4", stage_seconds = 3, output_tokens = "8" }
seconds = 10

[[parts]]
name = "kernels"
kind = "bench"
settings = { prefill = "8", generate = "4", batch = "1", samples = 2 }
seconds = 5
"""
BUDGET_GRID = GRID.replace("repeats = 2", "repeats = 30")
ARCHIVE = "small.tar.xz"
DERIVED = ("requests.parquet", "summary.json")  # by the report, of the records
PATIENCE = 180.0  # seconds for a phase to begin, or for processes to end
LATE = 20.0  # seconds by which a budget may be exceeded; it ends before where no cell fits
POLL = 0.002  # seconds: an archive is written in some hundredths


@dataclass(frozen=True, slots=True)
class Installation:
    """Commands run in `folder`, with the variables of a new terminal."""

    environment: Path
    folder: Path

    def start(self, *words: str) -> subprocess.Popen[str]:
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "XDG_CACHE_HOME") if name in os.environ}
        return subprocess.Popen(
            [self.environment / "bin" / "enginebench", *words],
            cwd=self.folder,
            env=kept | {"PATH": f"{self.environment / 'bin'}:/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=(self.folder / "said").open("a"),
            text=True,
        )

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()

    @property
    def study(self) -> Path:
        return self.folder / "runs" / "small"


@dataclass(frozen=True, slots=True)
class Kill:
    """`done` cells survived, the same to the last byte; `left_behind` processes ran on."""

    phase: str
    done: int
    unchanged: bool
    left_behind: int


def install(folder: Path) -> Installation:
    def call(*words: str) -> None:
        variables = {name: value for name, value in os.environ.items() if name not in {"VIRTUAL_ENV", "PYTHONPATH"}}
        subprocess.run([uv.find_uv_bin(), *words], cwd=ROOT, env=variables, check=True)

    call("build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", str(folder / "dist"))
    call("venv", "--quiet", "--python", sys.executable, str(folder / "environment"))
    (wheel,) = (folder / "dist").glob("*.whl")
    call("pip", "install", "--quiet", "--python", str(folder / "environment/bin/python"), str(wheel))
    (folder / "elsewhere").mkdir()
    return Installation(folder / "environment", folder / "elsewhere")


def cells(study: Path) -> dict[str, str]:
    """The hash of every byte that each cell that is done has left."""
    path, found = study / "cells.jsonl", {}
    for line in path.read_bytes().splitlines() if path.exists() else []:
        cell = json.loads(line)
        if cell["outcome"] == "done":
            place = study / cell["path"]
            files = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
            kept = [file for file in files if not file.name.startswith(DERIVED)]
            found[cell["cell"]] = hashlib.sha256(b"".join(file.read_bytes() for file in kept)).hexdigest()
    return found


def phases(here: Installation) -> Mapping[str, Callable[[], bool]]:
    """In their order, and when each of them is reached."""
    study = here.study
    measuring = "running/*/users.none.slow.*/requests*.jsonl"
    return {
        "loading an engine": lambda: any((study / "logs").glob("slow.none.*.log")),
        "measuring a load": lambda: any(path.stat().st_size for path in study.glob(measuring)),
        "a bench": lambda: any((study / "logs").glob("kernels.none.slow.2.log")),
        "writing the report": lambda: "Drawing the charts" in here.said,
        "writing the archive": lambda: any(here.folder.glob(f"{ARCHIVE}*.partial")),
    }


def kill(here: Installation, phase: str, reached: Callable[[], bool]) -> Kill:
    before = cells(here.study)
    (here.folder / "said").write_text("")
    process = here.start("study", "small.toml", "--archive", ARCHIVE)
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the study did not come to {phase}:\n{here.said[-2000:]}")
        time.sleep(POLL)
    process.send_signal(signal.SIGSTOP)  # so that it starts nothing that is not in this list
    started = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(started, timeout=PATIENCE)
    after = cells(here.study)
    return Kill(phase, len(after), before.items() <= after.items(), len(alive))


def interrupted(here: Installation) -> int:
    """The exit code after Ctrl-C in the middle of a load."""
    (here.folder / "said").write_text("")
    process = here.start("study", "small.toml", "--repeats", "3", "--archive", ARCHIVE)
    while not any(here.study.glob("running/*/users.*/requests*.jsonl")) and process.poll() is None:
        time.sleep(POLL)
    process.send_signal(signal.SIGINT)
    return process.wait(PATIENCE)


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        here, there = install(Path(name) / "here"), install(Path(name) / "there")
        (here.folder / "small.toml").write_text(GRID)
        kills = [kill(here, phase, reached) for phase, reached in phases(here).items()]
        for each in kills:
            print_fields(asdict(each))
        stopped, before = interrupted(here), cells(here.study)
        print(f"Ctrl-C: exit code {stopped}, {len(before)} cells done")
        (here.folder / ARCHIVE).rename(there.folder / ARCHIVE)
        finished = there.start("study", ARCHIVE).wait(PATIENCE)
        after = cells(there.study)
        carried = {"exit_code": finished, "done": len(after), "unchanged": before.items() <= after.items()}
        carried["report"] = (there.study / "report.html").is_file()
        print_fields({f"in the second installation, {name}": fact for name, fact in carried.items()})
        (here.folder / "long.toml").write_text(BUDGET_GRID)
        began = time.monotonic()
        code = here.start("study", "long.toml", "--budget", "90s", "--archive", "long.tar.gz").wait(PATIENCE)
        budget = {"seconds": 90.0, "taken": time.monotonic() - began, "exit_code": code}
        print_fields({f"budget, {name}": fact for name, fact in budget.items()})
        packed = (here.folder / "long.tar.gz").is_file() and (here.folder / "runs/long/report.html").is_file()
    write(arguments.output, kills=[asdict(each) for each in kills], carried=carried, budget=budget)
    good = all(each.unchanged and not each.left_behind for each in kills) and stopped == 2
    good = good and carried == {"exit_code": 0, "done": 12, "unchanged": True, "report": True}
    good = good and packed and code == 0 and budget["taken"] <= budget["seconds"] + LATE
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
