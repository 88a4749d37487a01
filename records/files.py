"""A run on disk, readable by anything:

    runs/<id>/meta.json          what, where, when, with which settings and stages (`RunMeta`)
    runs/<id>/requests*.jsonl    a `SentRecord` as each request is sent, a `RequestRecord` as it ends; a file per worker
    runs/<id>/telemetry*.jsonl   one `TelemetrySample` about once a second; the server is in `telemetry.jsonl`

Readers ignore fields that they do not know, and fill those that are missing and optional.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from records.request import SENT, RequestRecord
from records.run import SCHEMA_VERSION, Imported, RunEvent, RunMeta
from records.search import ProbeRecord, ProbeShare, SearchRecord
from records.stage import stage_from, stage_plan_from
from records.telemetry import TelemetrySample


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace `path` in one step, so that a reader never sees half of it. Raises `OSError`."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        error.filename = str(path)  # for the message
        raise


def known_fields(kind: type[Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of `document` that `kind`, a dataclass, has fields for."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in document.items() if name in names}


def write_meta(folder: Path, meta: RunMeta) -> None:
    write_atomically(folder / "meta.json", json.dumps(dataclasses.asdict(meta), indent=2) + "\n")


def read_meta(folder: Path) -> RunMeta:
    """Raises `FileNotFoundError` where `folder` is no run, `ValueError` where its `meta.json` cannot be understood."""
    path = folder / "meta.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be understood ({error}): is it from another version?") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA_VERSION:
        found = document.get("schema") if isinstance(document, dict) else None
        raise ValueError(f"{folder} has records of schema {found}; this version reads {SCHEMA_VERSION}.")
    try:
        return meta_from(document)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be understood ({error}): is it from another version?") from None


def meta_from(document: Mapping[str, Any]) -> RunMeta:
    """From JSON; fields that are not known are ignored. Raises `KeyError`, `TypeError` or `AttributeError`."""
    fields = known_fields(RunMeta, document)
    fields["plan"] = tuple(stage_plan_from(plan) for plan in fields["plan"])
    fields["stages"] = tuple(stage_from(stage) for stage in fields.get("stages", ()))
    fields["events"] = tuple(RunEvent(event["t"], event["what"]) for event in fields.get("events", ()))
    fields["search"] = _search_from(fields["search"]) if fields.get("search") else None
    if imported := fields.get("imported"):
        fields["imported"] = Imported(imported["tool"], imported["file"], tuple(imported["lacks"]))
    fields["command"] = tuple(fields["command"])
    fields["client_error"] = tuple(map(tuple, fields.get("client_error", ())))
    return RunMeta(**fields)


def _search_from(document: Mapping[str, Any]) -> SearchRecord:
    known = known_fields(SearchRecord, document)
    known["objectives"] = tuple(known["objectives"])
    known["probes"] = tuple(_probe_from(probe) for probe in known.get("probes", ()))
    return SearchRecord(**known)


def _probe_from(document: Mapping[str, Any]) -> ProbeRecord:
    known = known_fields(ProbeRecord, document)
    known["shares"] = tuple(ProbeShare(**known_fields(ProbeShare, share)) for share in known.get("shares", ()))
    return ProbeRecord(**known)


def read_requests(folder: Path) -> Iterator[RequestRecord]:
    """Every finished request of every worker. A line that a crash cut short is the last of its file, and is skipped."""
    for document in _lines(folder, "requests*.jsonl"):
        if document.get("outcome") != SENT:
            fields = known_fields(RequestRecord, document)
            yield RequestRecord(**fields | {"icl": tuple(fields.get("icl") or ())})


def read_telemetry(path: Path) -> Iterator[TelemetrySample]:
    """The samples of one file; lines that are none are skipped."""
    for document in _lines(path.parent, path.name):
        if "t" in document:
            yield TelemetrySample(**known_fields(TelemetrySample, document))


class Tail:
    """The files of a folder that match a pattern, read as they grow."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder = folder
        self._pattern = pattern
        self._offsets: dict[Path, int] = {}

    def lines(self) -> Iterator[bytes]:
        """Whole lines that are new since the last call."""
        for path in sorted(self._folder.glob(self._pattern)):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # still being written
                    self._offsets[path] = self._offsets.get(path, 0) + len(line)
                    yield line


def _lines(folder: Path, pattern: str) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob(pattern)):
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    document = json.loads(line)
                except ValueError:
                    continue
                if line.endswith("\n") and isinstance(document, dict):
                    yield document
