"""The common part of these programs: the command line, and the JSON document with the results, machine and time."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from enginebench.records.command import typed_command
from enginebench.records.files import write_atomically
from loadtests.harness.run.host import host_facts, versions

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "validation" / "results"


def command_line(lesson: str | None) -> argparse.ArgumentParser:
    """Return a parser with `--output`. `lesson` is the program's docstring."""
    parser = argparse.ArgumentParser(description=lesson, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the results there, as JSON")
    return parser


def write(path: Path | None, *packages: str, **measured: Any) -> None:
    """Write the document, if there is a path. `packages` are those whose versions matter."""
    if path is None:
        return
    document = {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": typed_command(),
        "host": host_facts(),
        "versions": versions("enginebench", *packages),
        **measured,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(document, indent=1) + "\n")


def write_simulation(name: str, command: str, **results: Any) -> None:
    """Write results that are the same on every machine, with the command that repeats them."""
    (RESULTS / name).write_text(json.dumps({"command": command, **results}, indent=1) + "\n")
    print(RESULTS / name, file=sys.stderr)
