"""A study in one file, to be carried to another machine, where `enginebench study FILE` continues it.

The file has the study's folder without interrupted cells. Its suffix names the compression.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from enginebench.records.files import MAX_BYTES, decode_document
from enginebench.records.plain_text import plain
from enginebench.settings.schema import UserMistake
from enginebench.studies.study.folder import INTERRUPTED, LOCK, RUNNING, STUDY, StudyFacts, load_study

MODES = {".tar.gz": "gz", ".tgz": "gz", ".tar.xz": "xz", ".tar": ""}
LEFT_OUT = {INTERRUPTED, RUNNING, LOCK}
DAMAGED = (tarfile.TarError, EOFError, ValueError, RecursionError, lzma.LZMAError, zlib.error, gzip.BadGzipFile)
UNPACKED: Mapping[str, Any] = {"gz": gzip.open, "xz": lzma.open, "": nullcontext}
MIN_LIMIT, MAX_RATIO = 64 << 20, 100  # unpacked bytes; unpacked per packed byte: records have 5 to 30
TOO_LARGE = "it unpacks to more than any study of its size"
MAX_PATH, MAX_DEPTH = 1_000, 20  # characters, levels of an entry's path
MAX_HEADER = 1 << 20  # bytes


def is_archive(name: str) -> bool:
    return any(name.endswith(ending) for ending in MODES)


def check_archive(path: Path) -> None:
    """Check the path of an archive before anything is measured. Raises `UserMistake`."""
    split_name(path)
    if not path.absolute().parent.is_dir():
        raise UserMistake(f"the folder of {path} does not exist.")


def check_replaces(path: Path, folder: Path) -> None:
    """Raise `UserMistake` if the archive exists and holds another study."""
    if not path.exists():
        return
    before = None
    with suppress(*DAMAGED), _opened(path) as archive:
        held = next((entry for entry in archive if Path(entry.name).parts[1:] == (STUDY,)), None)
        content = None if held is None or held.size > MAX_BYTES else archive.extractfile(held)
        before = None if content is None else decode_document(content.read(), StudyFacts, path).started_at
    if before != load_study(folder).facts.started_at:
        raise UserMistake(
            f"{path} is there and is not of this study, which would take its place: name another --archive."
        )


def pack(folder: Path, path: Path) -> None:
    """Replace `path` in one step. Raises `OSError`."""
    name = folder.absolute().name

    def wanted(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = Path(entry.name).parts
        return None if len(parts) > 1 and parts[1] in LEFT_OUT else entry

    partial = path.with_name(f"{path.name}.partial")
    _, mode = split_name(path)
    level = {"compresslevel": 6} if mode == "gz" else {}
    try:
        with tarfile.open(partial, f"w:{mode}", **level) as archive:  # type: ignore[call-overload]
            archive.add(folder, name, filter=wanted)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def unpack(path: Path, folder: Path) -> None:
    """Unpack into a folder that does not exist yet. Raises `UserMistake`."""
    if folder.exists() or folder.is_symlink():
        raise UserMistake(
            f"{folder} exists: `enginebench study {folder}` goes on there; for the archive name another --folder."
        )
    into = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(into, ignore_errors=True)
    try:
        into.mkdir()
        with _opened(path) as archive:
            tops: set[str] = set()
            for entry in archive:
                tops |= {*Path(entry.name).parts[:1]}
                archive.extract(entry, into, filter="data")  # nothing outside the folder
        top = "" if len(tops) != 1 else tops.pop()
        if not (into / top / STUDY).is_file():
            raise UserMistake(f"{path} holds no study.")
        (into / top).rename(folder)
    except DAMAGED as error:
        if isinstance(error, UserMistake):
            raise
        raise UserMistake(f"{path} is no archive of a study ({plain(str(error))}).") from None
    except FileNotFoundError:
        raise UserMistake(f"the file {path} does not exist.") from None
    finally:
        shutil.rmtree(into, ignore_errors=True)


@contextmanager
def _opened(path: Path) -> Iterator[_Archive]:
    """Open an archive that may come from anywhere. Raises one of `DAMAGED`, and `OSError`."""
    if path.exists() and not path.is_file():
        raise UserMistake(f"{path} is not a file.")
    with path.open("rb") as packed, UNPACKED[split_name(path)[1]](packed) as unpacked:
        limit = MIN_LIMIT + MAX_RATIO * path.stat().st_size
        with _Archive(_Limited(unpacked, limit), limit) as archive:
            yield archive


class _Archive(tarfile.TarFile):
    """Refuses entries that no study has, and more content than an archive of its size can hold."""

    def __init__(self, file: _Limited, limit: int) -> None:
        self._left = limit
        super().__init__(fileobj=file, mode="r")  # type: ignore[arg-type]

    def next(self) -> tarfile.TarInfo | None:
        entry = super().next()
        if entry is None:
            return None
        if not (entry.isreg() or entry.isdir() or entry.islnk()):
            raise tarfile.TarError(f"{entry.name[:100]} in it is neither a file nor a folder")
        if len(entry.name) > MAX_PATH or len(Path(entry.name).parts) > MAX_DEPTH or entry.name.startswith("/"):
            raise tarfile.TarError(f"the path {entry.name[:100]}… in it is too long or absolute")
        self._left -= entry.size + tarfile.BLOCKSIZE
        if entry.size < 0 or self._left < 0:
            raise tarfile.TarError(TOO_LARGE)
        return entry


class _Limited:
    """A decompressed file with a limit on its size and on each read, whatever a header asks for."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._limit = file, limit
        self.seekable, self.tell = file.seekable, file.tell

    def read(self, size: int) -> bytes:
        if not 0 <= size <= MAX_HEADER:
            raise tarfile.TarError("a header in it is too large")
        return self._file.read(size)

    def seek(self, place: int) -> int:
        if not 0 <= place <= self._limit:
            raise tarfile.TarError(TOO_LARGE)
        return self._file.seek(place)


def split_name(path: Path) -> tuple[str, str]:
    """Split `lent/baseline.tar.gz` into the study's name and the kind of compression, `baseline` and `gz`. Raises
    `UserMistake`."""
    for ending, mode in MODES.items():
        if path.name.endswith(ending):
            return path.name.removesuffix(ending), mode
    raise UserMistake(f"an archive's name ends in {', '.join(MODES)}, not as {path.name} does.")
