"""A run on disk, readable by anything:

    runs/<id>/meta.json          what, where, when, with which settings and stages (`RunMeta`)
    runs/<id>/journal.jsonl      a `JournalLine` as each stage, boundary or event happens, until `meta.json` has all
    runs/<id>/requests*.jsonl    a `SentRecord` as each request is sent, a `RequestRecord` as it ends; a file per worker
    runs/<id>/telemetry*.jsonl   one `TelemetrySample` about once a second; the server is in `telemetry.jsonl`

Readers ignore fields that they do not know, and fill those that are missing and optional. A line that a crash cut
short, or that is not what it should be, is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from enginebench.records.request import Line, RequestRecord
from enginebench.records.run import SCHEMA_VERSION, JournalLine, RunMeta
from enginebench.records.telemetry import TelemetrySample

BLOCK_BYTES = 8 * 1024 * 1024
MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # no JSON, no text, nested without end
T = TypeVar("T")
_requests = msgspec.json.Decoder(Line)
_samples = msgspec.json.Decoder(TelemetrySample)
_journal = msgspec.json.Decoder(JournalLine)
JOURNAL = "journal.jsonl"


def write_atomically(path: Path, content: str | bytes, synced: bool = False) -> None:
    """Replace `path` in one step, so that a reader never sees half of it; `synced`: not even after a power cut.

    A pipe or a terminal, such as /dev/stdout, is written to; of a link, what it leads to is replaced. Raises `OSError`.
    """
    written = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(written)
        return
    place = path.resolve()
    partial = place.with_name(f"{place.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(written)
        if synced:
            with partial.open("rb") as file:
                os.fsync(file.fileno())
        partial.replace(place)
    except OSError as error:
        with suppress(OSError):  # a read-only file system
            partial.unlink(missing_ok=True)
        error.filename = str(path)  # for the message
        raise


def write_meta(folder: Path, meta: RunMeta) -> None:
    write_atomically(folder / "meta.json", msgspec.json.format(msgspec.json.encode(meta), indent=2) + b"\n")


def close_journal(folder: Path, meta: RunMeta) -> None:
    """Write the whole of `meta`, which then needs no journal. Raises `OSError`: then the journal stays."""
    write_meta(folder, meta)
    (folder / JOURNAL).unlink(missing_ok=True)


def read_meta(folder: Path) -> RunMeta:
    """A run as it is known: its `meta.json`, and what its journal adds where it goes on or was killed.

    Raises `FileNotFoundError` where `folder` is no run, `ValueError` where its `meta.json` cannot be understood.
    """
    path, journal = folder / "meta.json", folder / JOURNAL
    content = path.read_bytes()
    try:
        lines = [line for block in blocks_of(journal) for line in _decoded(block, _journal)]
    except FileNotFoundError:  # `meta.json` is complete, maybe only since it was read
        lines, content = [], path.read_bytes()
    try:
        schema = msgspec.json.decode(content, type=_Version).schema
        if schema != SCHEMA_VERSION:
            raise ValueError(f"{folder} has records of schema {schema}; this version reads {SCHEMA_VERSION}.")
        meta = msgspec.json.decode(content, type=RunMeta)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} cannot be understood ({error}): is it from another version?") from None
    for line in lines:
        meta = meta.after(line)
    return meta


class _Version(msgspec.Struct):
    schema: int | None = None


def read_requests(folder: Path) -> Iterator[RequestRecord]:
    """Every finished request of every worker."""
    for path in sorted(folder.glob("requests*.jsonl")):
        for block in blocks_of(path):
            yield from (line for line in decode_requests(block) if isinstance(line, RequestRecord))


def read_telemetry(path: Path) -> Iterator[TelemetrySample]:
    """The samples of one process."""
    for block in blocks_of(path):
        yield from _decoded(block, _samples)


def blocks_of(path: Path) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time, so that memory is bounded.

    What follows the last newline is still being written, or never will be: its writer was killed.
    """
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            block += file.readline()
            whole = block[: block.rfind(b"\n") + 1]
            if whole:
                yield whole
            if len(whole) < len(block):
                return  # what is written meanwhile begins in the middle of this line


def decode_requests(block: bytes) -> list[Line]:
    """What whole lines hold, without those that are malformed."""
    return _decoded(block, _requests)


def _decoded(block: bytes, decoder: msgspec.json.Decoder[T]) -> list[T]:
    """All lines together if none is malformed, else one by one."""
    try:
        return decoder.decode_lines(block)
    except MALFORMED:
        decoded = []
        for line in block.split(b"\n"):
            with suppress(*MALFORMED):
                decoded.append(decoder.decode(line))
        return decoded
