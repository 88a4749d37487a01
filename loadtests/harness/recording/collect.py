"""Collect the parts of one run that workers on other hosts could not send.

A worker that shares no disk with Locust's master writes a folder of the run's name on its own host, and sends it when
the load has ended (transfer.py). What one that died left there is copied here by any means, and this adds its records
to the master's. Every file belongs to one worker, so nothing is mixed: stamps of different hosts stay in different
files, and no duration is ever computed across them.
"""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Sequence
from pathlib import Path

from enginebench.records.files import place_inside, read_meta
from enginebench.settings.schema import UserMistake

PARTS = ("requests-*.jsonl", "telemetry-*.jsonl")


def collect(run: Path, parts: Sequence[Path]) -> list[Path]:
    """Copy the workers' files from `parts` into `run`. Returns those that were new there. Raises `UserMistake`."""
    run_id = _run_id(run)
    wanted: dict[Path, Path] = {}
    for part in parts:
        if _run_id(part) != run_id:
            raise UserMistake(f"{part} belongs to the run {_run_id(part)}, not to {run_id}.")
        for source in sorted(path for pattern in PARTS for path in part.glob(pattern)):
            if source.is_symlink() or not source.is_file():
                raise UserMistake(f"{source} is not a file of records, but a link or something else: remove it.")
            there = run / source.name
            there = wanted.get(there, there)
            if there.exists() and not filecmp.cmp(there, source, shallow=False):
                raise UserMistake(f"{there} and {source} differ: each worker's file can be there only once.")
            wanted[run / source.name] = source
    new = [there for there in wanted if not there.exists()]
    for there in new:
        partial = place_inside(run, f".{there.stem}.partial")
        shutil.copyfile(wanted[there], partial)
        partial.replace(there)
    return new


def _run_id(folder: Path) -> str:
    try:
        return read_meta(folder).run_id
    except (FileNotFoundError, NotADirectoryError):
        raise UserMistake(f"{folder} is not the folder of a run: it has no meta.json.") from None
    except ValueError as error:
        raise UserMistake(str(error)) from error
