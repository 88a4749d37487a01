"""The transfer of records from workers that share no disk with Locust's master, in compressed pieces, after the load.

The master asks each worker for its files, piece by piece; each question acknowledges the last piece. A worker keeps its
own copy; the files of a dead worker must be copied by hand. Answers are checked, because any host that reaches the
master's port can send some.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from enginebench.records.files import WORKER_FILE

PIECE_BYTES = 1 << 20  # before compression; bounds the memory for each worker
MAX_FILE_BYTES = 4 << 30  # per worker: 12 hours with 10,000 tokens per second
LEVEL = 1  # zlib's level: records shrink to a fifth of their size at about 100 MB/s

Message = dict[str, Any]
"""A question has the name of a file and a position in it, or no name, which asks for the files' names. An answer is
`Names`, `Piece` or `Failure`."""


class Names(msgspec.Struct):
    names: Annotated[list[str], msgspec.Meta(max_length=2)]


class Piece(msgspec.Struct):
    data: bytes


class Failure(msgspec.Struct):
    """The reason why the worker could not read the file."""

    error: Annotated[str, msgspec.Meta(max_length=1000)]


Answer = TypeVar("Answer", Names, Piece, Failure)


class BadAnswer(Exception):
    """An answer that no worker of this program sends."""


def answer(files: Sequence[Path], question: Message) -> Message:
    """Answer as a worker that wrote `files`."""
    if question["file"] is None:
        return {"names": [path.name for path in files]}
    try:
        with next(path for path in files if path.name == question["file"]).open("rb") as file:
            file.seek(question["at"])
            return {"data": zlib.compress(file.read(PIECE_BYTES), LEVEL)}
    except OSError as error:
        return {"error": str(error)}


def fetch(folder: Path, present: Collection[str], ask: Callable[[Message], Any]) -> int:
    """Write a worker's files into `folder`, except those already `present`, which a worker on the same disk wrote.

    A file gets its name when it is complete. Return the bytes received. Raises the exceptions of `ask`, `OSError` and
    `BadAnswer`.
    """
    received = 0
    for name in _read(ask({"file": None}), Names).names:
        if name in present:
            continue
        if not WORKER_FILE.fullmatch(name):
            raise BadAnswer("it named a file that no worker writes")
        path, unfinished = folder / name, folder / f"{name}.partial"
        if path.exists() or unfinished.exists():
            raise BadAnswer(f"another worker has sent {name}")
        try:
            received += _write(unfinished, lambda at, name=name: ask({"file": name, "at": at}))  # type: ignore[misc]
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return received


def _write(path: Path, ask: Callable[[int], Any]) -> int:
    """Write all pieces of a file, and return its size."""
    with path.open("xb") as file:
        piece = bytes(PIECE_BYTES)
        while len(piece) == PIECE_BYTES:
            answered = ask(file.tell())
            if isinstance(answered, dict) and "error" in answered:
                raise OSError("".join(filter(str.isprintable, _read(answered, Failure).error)))
            piece = _decompressed(_read(answered, Piece).data)
            file.write(piece)
            if file.tell() > MAX_FILE_BYTES:
                raise BadAnswer(f"a file is larger than {MAX_FILE_BYTES >> 30} GiB")
        return file.tell()


def _read(answered: Any, kind: type[Answer]) -> Answer:
    try:
        return msgspec.convert(answered, kind)
    except msgspec.ValidationError:
        raise BadAnswer("its answer cannot be read") from None


def _decompressed(data: bytes) -> bytes:
    """Expand a piece, up to the size that a piece may have."""
    stream = zlib.decompressobj()
    try:
        piece = stream.decompress(data, PIECE_BYTES + 1)
    except zlib.error:
        raise BadAnswer("a piece of a file cannot be expanded") from None
    if len(piece) > PIECE_BYTES or not stream.eof:
        raise BadAnswer("a piece of a file is larger than a piece, or cut off")
    return piece
