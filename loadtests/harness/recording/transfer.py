"""The records of workers that share no disk with Locust's master come to it over Locust's own channel, in compressed
pieces, each acknowledged, when the load has ended: never while anything is measured.

A worker keeps its own copy. What one that died leaves behind is what `enginebench collect` is for.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import gevent
from gevent.event import Event

logger = logging.getLogger(__name__)

SEND, PIECE, GOT = "enginebench_send_records", "enginebench_records", "enginebench_got"  # messages, in their order
PIECE_BYTES = 1 << 20  # before compression: what a process holds in memory of a file
AHEAD = 4  # pieces that may be on their way
PATIENCE = 30.0  # seconds without a piece, or without an acknowledgement, after which the other side is given up
LEVEL = 1  # of zlib: records shrink to a fifth of their size at about 100 MB/s


class TransferFailed(Exception):
    """The master did not acknowledge a piece in time."""


class RecordSender:
    """In a worker: sends `files`. `send` gives a message's data to the master; call `acknowledged` for each answer."""

    def __init__(self, files: Iterable[Path], send: Callable[[dict[str, Any]], None]) -> None:
        self._files, self._send = files, send
        self._on_the_way = 0
        self._answered = Event()

    def run(self) -> None:
        """Send all, and wait until it has arrived. Raises `TransferFailed`, `OSError`."""
        for name, at, data in _pieces(self._files):
            self._wait_until_at_most(AHEAD - 1)
            self._on_the_way += 1
            self._send({"file": name, "at": at, "data": zlib.compress(data, LEVEL), "last": len(data) < PIECE_BYTES})
        self._wait_until_at_most(0)
        self._send({"file": None})

    def acknowledged(self) -> None:
        self._on_the_way -= 1
        self._answered.set()

    def _wait_until_at_most(self, pieces: int) -> None:
        while self._on_the_way > pieces:
            self._answered.clear()
            if not self._answered.wait(PATIENCE):
                raise TransferFailed("the master does not answer")


def _pieces(files: Iterable[Path]) -> Iterator[tuple[str, int, bytes]]:
    """Name, offset and content of each piece; the last one of a file is shorter than the others, and may be empty."""
    for path in files:
        with path.open("rb") as file:
            at = 0
            while True:
                data = file.read(PIECE_BYTES)
                yield path.name, at, data
                at += len(data)
                if len(data) < PIECE_BYTES:
                    break


class RecordReceiver:
    """In the master: writes what `workers` send into the run's folder. A file has its own name once it is whole."""

    def __init__(self, folder: Path, workers: set[str]) -> None:
        self._folder = folder
        self.missing = set(workers)
        """Those whose records have not all arrived."""
        self.received = 0
        """Bytes of records, decompressed."""
        self._files: dict[str, BinaryIO] = {}
        self._open = ExitStack()
        self._heard_at = time.monotonic()

    def take(self, worker: str, message: Mapping[str, Any]) -> bool:
        """Write a piece; whether it is to be acknowledged. Raises `OSError`."""
        self._heard_at = time.monotonic()
        name = message["file"]
        if name is None:
            self.missing.discard(worker)
            return False
        path = self._folder / Path(name).name
        partial = path.with_name(path.name + ".partial")
        if message["at"] == 0:
            self._files[name] = self._open.enter_context(partial.open("wb"))
        data = zlib.decompress(message["data"])
        self._files[name].write(data)
        self.received += len(data)
        if message["last"]:
            self._files.pop(name).close()
            partial.replace(path)
        return True

    def wait(self) -> None:
        """Until all have arrived, or nothing has come for `PATIENCE` seconds."""
        while self.missing and time.monotonic() - self._heard_at < PATIENCE:
            gevent.sleep(0.05)
        self._open.close()
