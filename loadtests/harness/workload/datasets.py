"""Requests given by the user, in no order of time: what a trace has, without its times.

A dataset is any file or folder that `--trace` reads, too (`trace_files.py`), but for sessions whose rows say how long
after one another they are sent. Every process of a run reads it where it is.
"""

from __future__ import annotations

import fcntl
import os
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random

from enginebench.settings.schema import UserMistake
from loadtests.harness.schedule.trace import Trace, TraceRequest
from loadtests.harness.workload.trace_files import read_trace

QUESTIONS = Path(__file__).with_name("questions.jsonl")
"""64 questions whose answers have several sentences."""
COUNT_FILE, COUNT_BYTES = "rows.count", 8
REMEMBERED = 100_000  # rows that were taken: more are never built ahead


def dataset(path: str) -> Trace:
    """Raises `UserMistake`."""
    trace = read_trace(path)
    follows = next((request.row for request in trace.requests if request.row and request.after), None)
    if follows is not None:
        raise UserMistake(
            f"{follows} of {path} follows another after a delay, which a dataset does not keep: replay it with --trace."
        )
    return trace


class SharedCount:
    """Numbers that ascend from `start`, each given once to the processes of this host that have the same file."""

    def __init__(self, path: Path, start: int) -> None:
        """Raises `OSError`."""
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        with self._locked():
            if not os.pread(self._file, COUNT_BYTES, 0):  # the first that is here
                self._write(start)

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        with self._locked():
            number = int.from_bytes(os.pread(self._file, COUNT_BYTES, 0))
            self._write(number + 1)
        return number

    def close(self) -> None:
        os.close(self._file)
        self._path.unlink(missing_ok=True)

    def _write(self, number: int) -> None:
        os.pwrite(self._file, number.to_bytes(COUNT_BYTES), 0)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """For some microseconds: it blocks the event loop."""
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


class DatasetRows:
    """The rows that one of several processes sends, whichever of its users asks for one and in whichever stage.

    The file is shuffled by `seed`. The processes of one host take its next row in turn, by a count that they share in
    `folder`, so every row is sent once before any is sent twice. Those of another host have another count, which begins
    at their share of the file: it is then exact up to the difference in the number of requests between hosts.
    """

    def __init__(
        self, rows: Iterable[TraceRequest], seed: str, process: int = 0, processes: int = 1, folder: Path | None = None
    ) -> None:
        """Raises `OSError`."""
        self._rows = list(rows)
        Random(f"rows {seed}").shuffle(self._rows)
        self._shared: SharedCount | None = None
        if folder is not None and processes > 1:
            self._shared = SharedCount(folder / COUNT_FILE, len(self._rows) * process // processes)
        self._numbers: Iterator[int] = self._shared or count()
        self._taken: deque[TraceRequest] = deque(maxlen=REMEMBERED)
        self._returned: list[TraceRequest] = []

    def take(self) -> TraceRequest:
        row = self._returned.pop() if self._returned else self._rows[next(self._numbers) % len(self._rows)]
        self._taken.append(row)
        return row

    def give_back(self, row: TraceRequest) -> None:
        """It was taken and not sent."""
        self._returned.append(row)

    def untake(self, many: int) -> None:
        """The last so `many` rows taken were not sent."""
        self._returned += [self._taken.pop() for _ in range(min(many, len(self._taken)))]

    def close(self) -> None:
        """Rows that are taken after that are counted by this process alone."""
        if self._shared is not None:
            self._shared.close()
            self._shared, self._numbers = None, count()


def dataset_path(text: str) -> str:
    """The absolute path; nothing stays nothing."""
    return str(Path(text.strip()).absolute()) if text.strip() else ""
