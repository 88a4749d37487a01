"""A run on disk, readable by anything:

    runs/<id>/meta.json          what, where, when, with which settings and stages (`RunMeta`)
    runs/<id>/journal.jsonl      a `JournalLine` as each stage, boundary or event happens, until `meta.json` is complete
    runs/<id>/requests*.jsonl    a `SentRecord` as each request is sent, a `RequestRecord` as it ends; a file per worker
    runs/<id>/telemetry*.jsonl   one `TelemetrySample` about once a second; the server is in `telemetry.jsonl`
    runs/<id>/profile/           files of a profiler (`--profile`)
    runs/<id>/server.log         output of the server that `enginebench run` started
    runs/<id>/locust.log         output of Locust

Readers ignore unknown fields and fill in missing optional ones. Lines that are cut short or malformed are skipped.

A folder may come from another person: texts are read without control characters, numbers and file sizes are bounded,
and nothing is written through links.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import msgspec

from enginebench.records.plain_text import is_file_name, plain, plain_json
from enginebench.records.request import Line, RequestRecord
from enginebench.records.run import SCHEMA_VERSION, JournalLine, RunMeta
from enginebench.records.telemetry import TelemetrySample

BLOCK_BYTES = 8 * 1024 * 1024
NOT_UNDERSTOOD = "{} cannot be understood ({}): is it from another version?"
MAX_BYTES = 32 * 1024 * 1024  # per document, and per line
MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # not JSON, not text, nested too deeply
T = TypeVar("T")
_requests = msgspec.json.Decoder(Line)
_samples = msgspec.json.Decoder(TelemetrySample)
META, JOURNAL, PROFILE = "meta.json", "journal.jsonl", "profile"
SERVER_LOG, LOCUST_LOG = "server.log", "locust.log"
REQUESTS, TELEMETRY = "requests", "telemetry"
REQUEST_FILES, TELEMETRY_FILES = f"{REQUESTS}*.jsonl", f"{TELEMETRY}*.jsonl"  # patterns for all processes
WORKER_FILE = re.compile(rf"({REQUESTS}|{TELEMETRY})-\w{{1,64}}\.jsonl", re.ASCII)  # checks names from other hosts
PLANNER = ""  # name of the process that plans the run; it may be the only process


def requests_file(worker: int | str) -> str:
    return f"{REQUESTS}-{worker}.jsonl"


def telemetry_file(worker: int | str) -> str:
    return f"{TELEMETRY}.jsonl" if worker == PLANNER else f"{TELEMETRY}-{worker}.jsonl"


def process_of(telemetry: Path) -> str:
    """Return the name of the process that wrote a file of telemetry: a worker or `PLANNER`."""
    return plain(telemetry.stem).removeprefix(TELEMETRY).removeprefix("-")


def request_files(folder: Path) -> list[Path]:
    return _regular_files(folder, REQUEST_FILES)


def telemetry_files(folder: Path) -> list[Path]:
    return _regular_files(folder, TELEMETRY_FILES)


def has_requests(folder: Path) -> bool:
    """Return whether a run has its requests, as lines or as the table that the analysis makes from them."""
    return bool(_regular_files(folder, f"{REQUESTS}*"))


def _regular_files(folder: Path, pattern: str) -> list[Path]:
    """Return the matching files of a run, in order; no pipes, devices or folders."""
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def profile_files(folder: Path) -> tuple[str, ...]:
    """Return the names of the files that a profiler wrote for the run in `folder`. Links are left out."""
    place = folder / PROFILE
    if place.is_symlink() or not place.is_dir():
        return ()
    files = [path for path in place.iterdir() if path.is_file() and not path.is_symlink() and path.stat().st_size]
    return tuple(sorted(path.name for path in files if is_file_name(path.name)))


def write_atomically(path: Path, content: str | bytes, synced: bool = False) -> None:
    """Replace a `path` that a user named in one step, so that readers never see half a file; with `synced`, not even
    after a power cut.

    A pipe or a terminal, such as /dev/stdout, is written to; for a link, its target is replaced. Raises `OSError`.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(_bytes(content))
    else:
        _replace(path.resolve(), path, _bytes(content), synced)


def write_inside(folder: Path, name: str, content: str | bytes, synced: bool = False) -> None:
    """Replace a file of a run's or a study's folder in one step. If the file or a folder on its path is a link, the
    link is replaced and not followed, because the folder may come from another person. Raises `OSError`.
    """
    path = place_inside(folder, name)
    _replace(path, path, _bytes(content), synced)


def place_inside(folder: Path, name: str) -> Path:
    """Return the path of a file to write inside `folder`. Links at the path or above it, up to `folder`, are removed,
    and missing folders are made."""
    path = folder
    for part in Path(name).parent.parts:
        path /= part
        if path.is_symlink():
            path.unlink()
        path.mkdir(exist_ok=True)
    path /= Path(name).name
    if path.is_symlink():
        path.unlink()
    return path


def _bytes(content: str | bytes) -> bytes:
    """Encode text; half characters, which the name of a folder may have, become question marks."""
    return content.encode(errors="replace") if isinstance(content, str) else content


def _replace(place: Path, named: Path, content: bytes, synced: bool) -> None:
    partial = place.with_name(f".{token_hex(8)}.partial")  # a new name, so not a link
    try:
        partial.write_bytes(content)
        if synced:
            with partial.open("rb") as file:
                os.fsync(file.fileno())
        partial.replace(place)
    except OSError as error:
        with suppress(OSError):  # a read-only file system
            partial.unlink(missing_ok=True)
        error.filename = str(named)  # for the message
        raise


def read_document(path: Path, kind: type[T]) -> T:
    """Read a JSON document that may come from anywhere, with plain texts.

    Raises `OSError` if it cannot be read, and `ValueError` with a sentence if it is malformed.
    """
    return decode_document(bytes_of(path), kind, path)


def decode_document(content: bytes, kind: type[T], name: Path) -> T:
    """Decode a JSON document with plain texts. Raises `ValueError` with a sentence if it is malformed."""
    try:
        return msgspec.convert(plain_json(msgspec.json.decode(content)), kind, str_keys=True)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        cause = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise ValueError(NOT_UNDERSTOOD.format(name, cause)) from None


def bytes_of(path: Path, most: int = MAX_BYTES) -> bytes:
    """Read a whole document. Raises `OSError`, and `ValueError` with a sentence if `path` is not a document."""
    size = path.stat().st_size
    if not path.is_file():
        raise ValueError(f"{path} is not a file.")
    if size > most:
        raise ValueError(f"{path} has {size >> 20} MiB, which is more than the {most >> 20} MiB that are read.")
    return path.read_bytes()


def write_meta(folder: Path, meta: RunMeta) -> None:
    write_inside(folder, META, msgspec.json.format(msgspec.json.encode(meta), indent=2) + b"\n")


def close_journal(folder: Path, meta: RunMeta) -> None:
    """Write the whole of `meta` and delete the journal. Raises `OSError`, and then keeps the journal."""
    write_meta(folder, meta)
    (folder / JOURNAL).unlink(missing_ok=True)


def read_meta(folder: Path) -> RunMeta:
    """Read a run's `meta.json`, and its journal if the run is not over or was killed.

    Raises `FileNotFoundError` if `folder` is not a run, `ValueError` if its `meta.json` is malformed.
    """
    path, journal = folder / META, folder / JOURNAL
    content = bytes_of(path)
    try:
        lines = list(read_lines(journal, JournalLine))
    except FileNotFoundError:  # `meta.json` is complete, perhaps only since it was read
        lines, content = [], bytes_of(path)
    schema = decode_document(content, _Version, path).schema
    if schema != SCHEMA_VERSION:
        raise ValueError(f"{folder} has records of schema {schema}; this version reads {SCHEMA_VERSION}.")
    meta = decode_document(content, RunMeta, path)
    for line in lines:
        meta = meta.after(line)
    try:
        return meta.checked()
    except ValueError as error:
        raise ValueError(NOT_UNDERSTOOD.format(path, error)) from None


class _Version(msgspec.Struct):
    schema: int | None = None


def read_requests(folder: Path) -> Iterator[RequestRecord]:
    """Yield every finished request of every worker."""
    for path in request_files(folder):
        for block in blocks_of(path):
            yield from (line for line in decode_requests(block) if isinstance(line, RequestRecord))


def read_samples(path: Path) -> Iterator[TelemetrySample]:
    """Yield the samples of one process."""
    for block in blocks_of(path):
        yield from _decoded(block, _samples)


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """Yield the lines of a short file, with plain texts. Skip lines that are cut short by a crash or of another kind.

    Raises `FileNotFoundError`.
    """
    for block in blocks_of(path):
        for line in block.split(b"\n"):
            with suppress(ValueError):
                yield decode_document(line, kind, path)


def blocks_of(path: Path, start: int = 0) -> Iterator[bytes]:
    """Yield whole lines from byte `start` on, some megabytes at a time to bound memory; nothing if it is not a file.

    Text after the last newline is left out: it is still being written, or its writer was killed.
    """
    if path.exists() and not path.is_file():
        return
    with path.open("rb") as file:
        file.seek(start)
        while block := file.read(BLOCK_BYTES):
            block += file.readline(MAX_BYTES)
            whole = block[: block.rfind(b"\n") + 1]
            if whole:
                yield whole
            if len(whole) < len(block):
                return  # later reads would begin in the middle of this line


def decode_requests(block: bytes) -> list[Line]:
    """Decode whole lines; leave out malformed ones."""
    return _decoded(block, _requests)


def _decoded(block: bytes, decoder: msgspec.json.Decoder[T]) -> list[T]:
    """Decode all lines together if none is malformed, else one by one."""
    try:
        return decoder.decode_lines(block)
    except MALFORMED:
        decoded = []
        for line in block.split(b"\n"):
            with suppress(*MALFORMED):
                decoded.append(decoder.decode(line))
        return decoded
