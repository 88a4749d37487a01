"""The records of workers that share no disk with Locust's master come to it when the load has ended, in compressed
pieces: never while anything is measured.

The master asks each worker for its files, piece by piece: that it asks for the next one is the acknowledgement of the
last. A worker keeps its own copy; the files of one that died are copied by hand. Answers are checked, because whoever
reaches the master's port may send some.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

PIECE_BYTES = 1 << 20  # before compression: what a process holds in memory of a worker's file
MAX_FILE_BYTES = 4 << 30  # of a worker: 12 hours with 10,000 tokens per second
LEVEL = 1  # of zlib: records shrink to a fifth of their size at about 100 MB/s
NAME = re.compile(r"(requests|telemetry)-\w{1,64}\.jsonl", re.ASCII)

Message = dict[str, Any]
"""A question is the name of a file and a position in it, or no name: for the names. An answer is `Names`, `Piece`, or a
`Failure`."""


class Names(msgspec.Struct):
    names: Annotated[list[str], msgspec.Meta(max_length=2)]


class Piece(msgspec.Struct):
    data: bytes


class Failure(msgspec.Struct):
    """What kept the worker from reading the file."""

    error: Annotated[str, msgspec.Meta(max_length=1000)]


Answer = TypeVar("Answer", Names, Piece, Failure)


class BadAnswer(Exception):
    """A worker has sent what no worker of this program sends."""


def answer(files: Sequence[Path], question: Message) -> Message:
    """A worker's, of the `files` that it wrote."""
    if question["file"] is None:
        return {"names": [path.name for path in files]}
    try:
        with next(path for path in files if path.name == question["file"]).open("rb") as file:
            file.seek(question["at"])
            return {"data": zlib.compress(file.read(PIECE_BYTES), LEVEL)}
    except OSError as error:
        return {"error": str(error)}


def fetch(folder: Path, there: Collection[str], ask: Callable[[Message], Any]) -> int:
    """Write a worker's files into `folder` but for those that are `there`: one on the same disk has nothing to send.

    A file has its own name once it is whole. Returns the bytes received. Raises what `ask` does if the worker does not
    answer, `OSError`, and `BadAnswer`.
    """
    received = 0
    for name in _read(ask({"file": None}), Names).names:
        if name in there:
            continue
        if not NAME.fullmatch(name):
            raise BadAnswer("it has named a file that is no worker's")
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
    """All pieces of a file. Returns its size."""
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
    """A piece, of which no more is expanded than it may have."""
    stream = zlib.decompressobj()
    try:
        piece = stream.decompress(data, PIECE_BYTES + 1)
    except zlib.error:
        raise BadAnswer("a piece of a file cannot be expanded") from None
    if len(piece) > PIECE_BYTES or not stream.eof:
        raise BadAnswer("a piece of a file is larger than a piece, or cut off")
    return piece
