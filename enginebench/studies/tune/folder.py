"""A race on disk:

    tune.json      the question (`Question`)
    runs.jsonl     a `RunRecord` as each run ends
    runs/<run>/    the records of any run
    report.html    rebuildable

A run without a line is run again, so stopping a race costs only the current run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from enginebench.records.files import decode_document, read_document, read_lines, write_inside
from enginebench.settings.schema import UserMistake
from enginebench.studies.tune.goals import Goal

TUNE, RUN_LINES, RUNS = "tune.json", "runs.jsonl", "runs"


class Question(Struct, frozen=True, kw_only=True):
    """The question. Secrets, such as headers, are not part of it."""

    engines: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    restart: str = ""
    goal: Goal
    texts: Mapping[str, str]
    prices: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """Name the folder: the same question resumes in the same folder."""
        digest = hashlib.sha256(msgspec.json.encode(self, order="deterministic")).hexdigest()
        return f"tune-{digest[:8]}"


class RunRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run of a variant, in the race or, `fresh`, in the confirmation. `score` is `None` for a failure, whose sentence
    is `reason`. `run` names its folder; `seconds` include the start of its server."""

    round: int
    variant: str
    score: float | None
    seconds: float
    run: str = ""
    fresh: bool = False
    reason: str = ""


def open_folder(folder: Path, question: Question) -> None:
    """Make the folder, or check that it has the same question. Raises `UserMistake`."""
    if (folder / TUNE).is_file():
        try:
            before = read_document(folder / TUNE, Question)
        except ValueError as error:
            raise UserMistake(str(error)) from None
        if before != decode_document(msgspec.json.encode(question), Question, folder / TUNE):
            raise UserMistake(f"{folder} has a race with other settings: name another --folder.")
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_inside(folder, TUNE, msgspec.json.format(msgspec.json.encode(question), indent=2) + b"\n", synced=True)
    except OSError as error:
        raise UserMistake(f"{folder} cannot be written ({error.strerror}): name another --folder.") from None


def read_runs(folder: Path) -> list[RunRecord]:
    path = folder / RUN_LINES
    return list(read_lines(path, RunRecord)) if path.is_file() else []
