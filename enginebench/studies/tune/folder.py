"""A race on disk:

    tune.json         the question (`TuneFacts`)
    variants.jsonl    a `Batch` of proposed variants on each line
    runs.jsonl        a `RunRecord` as each run ends
    runs/<round>-<variant>/   the records of any run
    report.html       rebuildable

A run without a line is run again, so that whatever stops a race costs the run that was going on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from enginebench.records.files import read_document, read_lines, write_inside
from enginebench.settings.schema import UserMistake

TUNE, RUN_LINES, PROPOSED, RUNS = "tune.json", "runs.jsonl", "variants.jsonl", "runs"
SCHEMA = 1
Goal = Literal["goodput", "capacity", "cost"]
"""Requests within the SLO per second, at the tested load with most of them; the highest load within the SLO; requests
within the SLO for a dollar."""


class TuneFacts(Struct, frozen=True, kw_only=True):
    """The question. Secrets, such as headers, are not part of it."""

    engines: tuple[str, ...]
    urls: tuple[str, ...]
    options: tuple[str, ...]
    models: tuple[str, ...]
    restart: str
    goal: Goal
    scenario: str
    texts: Mapping[str, str]
    prices: tuple[tuple[str, float], ...]
    pairs: int = 0  # for each look of the confirmation; 0: by the spread
    schema: int = SCHEMA

    @property
    def name(self) -> str:
        """Name the folder: the same question goes on in the same one."""
        digest = hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()
        return f"tune-{digest[:8]}"

    @property
    def seed(self) -> int:
        return int(self.name.removeprefix("tune-"), 16)


class RunRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of a variant, in the race or, `fresh`, in the confirmation. `score` is `None` for a failure, whose sentence
    is `reason`. `seconds` are of the whole run, of which `starting` until its server was ready."""

    round: int
    variant: str
    score: float | None
    fresh: bool = False
    reason: str | None = None
    seconds: float = 0.0
    starting: float = 0.0


class Batch(Struct, frozen=True):
    """Variants that were proposed together, by the values of their options."""

    values: tuple[Mapping[str, str], ...]


def open_folder(folder: Path, facts: TuneFacts) -> None:
    """Make the folder, or check that it has the same question. Raises `UserMistake`."""
    if (folder / TUNE).is_file():
        try:
            before = read_document(folder / TUNE, TuneFacts)
        except ValueError as error:
            raise UserMistake(str(error)) from None
        if before != facts:
            raise UserMistake(f"{folder} has a race with other settings: name another --folder.")
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_inside(folder, TUNE, msgspec.json.format(msgspec.json.encode(facts), indent=2) + b"\n", synced=True)
    except OSError as error:
        raise UserMistake(f"{folder} cannot be written ({error.strerror}): name another --folder.") from None


def read_runs(folder: Path) -> list[RunRecord]:
    return list(_lines(folder / RUN_LINES, RunRecord))


def read_batches(folder: Path) -> list[Batch]:
    return list(_lines(folder / PROPOSED, Batch))


def _lines(path: Path, kind: type[Any]) -> Iterator[Any]:
    return read_lines(path, kind) if path.is_file() else iter(())
