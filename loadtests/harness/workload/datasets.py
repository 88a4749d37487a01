"""Requests given by the user, in no order of time: what a trace has, without its times.

A dataset is any file or folder that `--trace` reads, too (`trace_files.py`). Every process of a run reads it where it
is.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random

from loadtests.harness.schedule.trace import TraceRequest
from loadtests.harness.workload.trace_files import read_trace

QUESTIONS = Path(__file__).with_name("questions.jsonl")
"""64 questions whose answers have several sentences."""


@cache
def dataset(path: str) -> tuple[TraceRequest, ...]:
    """Raises `UserMistake`."""
    return tuple(read_trace(path).requests)


class DatasetRows:
    """The rows that one of several processes sends, whichever of its users asks for one and in whichever stage.

    The file is shuffled by `seed` and dealt in parts to pairs of processes. The two of a pair begin at the ends of
    their part and go through it towards each other and on, so that together they have sent every row of it once before
    they send any twice, also where one of them sends more than the other. So it is exact with one or two processes, and
    with more up to the difference in the number of requests between pairs.
    """

    def __init__(self, path: str, seed: str, process: int, processes: int) -> None:
        rows, first = list(dataset(path)), process - process % 2
        Random(f"rows {seed}").shuffle(rows)
        begin, end = (len(rows) * border // processes for border in (first, min(first + 2, processes)))
        part = rows[begin:end] or rows
        self._rows = part[::-1] if process % 2 else part
        self._taken = 0
        self._returned: list[TraceRequest] = []

    def take(self) -> TraceRequest:
        if self._returned:
            return self._returned.pop()
        self._taken += 1
        return self._rows[(self._taken - 1) % len(self._rows)]

    def give_back(self, row: TraceRequest) -> None:
        """It was taken and not sent."""
        self._returned.append(row)

    def untake(self, count: int) -> None:
        """The last `count` rows taken were not sent."""
        self._taken -= count


def checked_dataset(text: str) -> str:
    """The absolute path of a dataset that can be read; nothing stays nothing. Raises `UserMistake`."""
    if not text.strip():
        return ""
    path = str(Path(text.strip()).absolute())
    dataset(path)
    return path
