"""Results of another tool, as its reader returns them: stages with their requests, which are written as a run folder.

A value that the file lacks is `None`, and `lacks` names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec

from enginebench.records.command import publishable
from enginebench.records.files import META, decode_document, place_inside, requests_file, write_inside, write_meta
from enginebench.records.load import Load, Rate, Users
from enginebench.records.plain_text import plain
from enginebench.records.request import Line, RequestRecord
from enginebench.records.run import Imported, RunMeta
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from enginebench.settings.schema import UserMistake

CLIENT_CLOCK = "kernel receive timestamps, client lag"
SERVER_TIMES = "the server's queue and prefill times"
TELEMETRY = "telemetry of the server, GPU and load generator"
COMMON = (CLIENT_CLOCK, SERVER_TIMES, TELEMETRY)


class NotImportable(UserMistake):
    """A file cannot be imported. The message, one sentence with a remedy, follows the file's name."""


@dataclass(frozen=True, slots=True)
class ImportedStage:
    """A benchmark of the file with its requests. `load` is `None` if the file does not name one. The window is the part
    that the tool itself counted: from `start` to `end`, nanoseconds since the first instant of the file."""

    load: Load | None
    start: int
    end: int
    requests: tuple[RequestRecord, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """A whole file, with its stages."""

    tool: str
    stages: tuple[ImportedStage, ...]
    lacks: tuple[str, ...]
    version: str | None = None
    model: str | None = None
    url: str | None = None
    started_at: datetime | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


def nanoseconds(seconds: float | None, zero: float) -> int | None:
    """Return the nanoseconds since `zero` on the same clock."""
    return None if seconds is None else round((seconds - zero) * SECOND)


def load_of(users: object, rate: object) -> Load | None:
    """Return a rate if there is one, else users; text such as `inf` is no rate."""
    if isinstance(rate, int | float) and 0 < rate < float("inf"):
        return Rate(float(rate))
    return Users(int(users)) if isinstance(users, int | float) and users >= 1 else None


def most_in_flight(requests: Iterable[RequestRecord]) -> int:
    sent = [(request.t_send, request.t_end) for request in requests if request.t_send is not None]
    changes = [(start, 1) for start, _ in sent] + [(end, -1) for _, end in sent]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def write_run(results: Results, file: Path, folder: Path, label: str, repeat: int) -> Path:
    """Write `folder`/<run id>. Raises `NotImportable`, `OSError`."""
    lines = "".join(record.to_line() for stage in results.stages for record in stage.requests)
    contents = f"{replace(results, stages=())}{[stage.load for stage in results.stages]}{lines}"
    place = imported_folder(folder, label, file, results.started_at, contents)
    stages = tuple(_stage(index, stage) for index, stage in enumerate(results.stages))
    meta = RunMeta(
        run_id=place.name,
        started_at=(results.started_at or datetime.now(UTC)).isoformat(),
        scenario=results.tool,
        url=results.url or "",
        model=results.model,
        workload=dict(results.settings),
        engine=None,
        host={},
        versions={results.tool: results.version} if results.version else {},
        label=label,
        command=("enginebench", "import", *publishable([str(file)])),
        repeat=repeat,
        plan=tuple(stage.plan for stage in stages),
        stages=stages,
        imported=Imported(results.tool, file.name, results.lacks),
    )
    write_imported(place, meta, file, lines)
    write_inside(place, requests_file("imported"), lines)
    return place


def imported_folder(folder: Path, label: str, file: Path, started_at: datetime | None, contents: str) -> Path:
    """Return the folder for a run. Its name depends on the contents: importing a file again replaces its run, and
    repeats have different names."""
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in f"{label}-{file.stem}")
    stamp = f"{started_at:%Y%m%d-%H%M%S}" if started_at else "undated"
    return folder / f"{stamp}-{name}-{sha256(contents.encode()).hexdigest()[:8]}"


def write_imported(place: Path, meta: RunMeta, file: Path, lines: str = "") -> None:
    """Write `meta.json` if it can be read back, and so can the `lines` of the requests. Raises `NotImportable`,
    `OSError`."""
    try:
        msgspec.json.Decoder(Line).decode_lines(lines)
        decode_document(msgspec.json.encode(meta), RunMeta, file).checked()
    except (ValueError, OverflowError, TypeError) as error:
        raise NotImportable(f"has numbers or texts that no run can have ({plain(str(error))[:200]}).") from None
    place.parent.mkdir(parents=True, exist_ok=True)
    place_inside(place.parent, f"{place.name}/{META}")
    write_meta(place, meta)


def _stage(index: int, stage: ImportedStage) -> Stage:
    if stage.load is None:
        raise NotImportable("has no single number of users or rate: measure one load, not a ramp.")
    begin = min([stage.start, *(record.t_sched for record in stage.requests)])
    ended = max([stage.end, *(record.t_end for record in stage.requests)])
    plan = StagePlan(stage.load, Extent((stage.start - begin) / SECOND), Extent((stage.end - stage.start) / SECOND))
    return Stage(index, plan, begin, stage.start, stage.end, ended)
