"""The records of workers that share no disk with Locust's master come to it when the load has ended, in compressed
pieces: never while anything is measured.

The master asks each worker for its files, piece by piece: that it asks for the next one is the acknowledgement of the
last. A worker keeps its own copy. What one that died leaves behind is what `enginebench collect` is for.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PIECE_BYTES = 1 << 20  # before compression: what a process holds in memory of a worker's file
LEVEL = 1  # of zlib: records shrink to a fifth of their size at about 100 MB/s

Message = dict[str, Any]
"""A question is the name of a file and a position in it, or no name: for the names. An answer has `names`, a piece of
the file as `data`, or the `error` that kept the worker from reading it."""


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


def fetch(folder: Path, there: set[str], ask: Callable[[Message], Message]) -> int:
    """Write a worker's files into `folder` but for those that are `there`: one on the same disk has nothing to send.

    A file has its own name once it is whole. Returns the bytes received. Raises what `ask` does where the worker does
    not answer, and `OSError`.
    """
    received = 0
    for name in ask({"file": None})["names"]:
        if name in there:
            continue
        path = folder / Path(name).name
        unfinished = path.with_name(f"{path.name}.partial")
        with unfinished.open("wb") as file:
            piece = bytes(PIECE_BYTES)
            while len(piece) == PIECE_BYTES:
                said = ask({"file": name, "at": file.tell()})
                if "error" in said:
                    raise OSError(said["error"])
                piece = zlib.decompress(said["data"])
                file.write(piece)
            received += file.tell()
        unfinished.replace(path)
    return received
