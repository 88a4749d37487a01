"""Datasets: the requests of a file without their times.

Anything that `--trace` reads is also a dataset (`trace_files.py`), except sessions whose rows name delays. Every client
process reads it from the same path.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from random import Random

from enginebench.settings.schema import UserMistake
from loadtests.harness.schedule.trace import Trace, TraceRequest
from loadtests.harness.workload.graded_questions import GRADED, graded_questions
from loadtests.harness.workload.hub_dataset import PREFIX, hub_rows
from loadtests.harness.workload.trace_files import read_trace

QUESTIONS = Path(__file__).with_name("questions.jsonl")
"""64 questions whose answers have several sentences."""
REMEMBERED = 100_000  # rows that were taken: no process builds more requests ahead


def dataset(path: str) -> Trace:
    """Return the rows of a file, of a dataset on Hugging Face, or the graded questions. Raises `UserMistake`."""
    if path == GRADED:
        return graded_questions()
    trace = read_trace(str(hub_rows(path)) if path.startswith(PREFIX) else path)
    follows = next((request.row for request in trace.requests if request.pause is not None), None)
    if follows is not None:
        raise UserMistake(
            f"{follows} of {path} follows another after a delay, which a dataset does not keep: replay it with --trace."
        )
    return trace


class DatasetRows:
    """The rows that one process sends, one after the other, regardless of user and stage.

    The file is shuffled by `seed`. Each of n processes has every n-th row, and sends all of these once before it sends
    any twice.
    """

    def __init__(self, rows: Iterable[TraceRequest], seed: str, process: int = 0, processes: int = 1) -> None:
        shuffled = list(rows)
        Random(f"rows {seed}").shuffle(shuffled)
        self._rows = cycle(shuffled[process::processes] or shuffled)
        self._taken: deque[TraceRequest] = deque(maxlen=REMEMBERED)
        self._returned: list[TraceRequest] = []

    def take(self) -> TraceRequest:
        row = self._returned.pop() if self._returned else next(self._rows)
        self._taken.append(row)
        return row

    def give_back(self, row: TraceRequest) -> None:
        """Take back a row that was not sent."""
        self._returned.append(row)

    def untake(self, count: int) -> None:
        """Take back the last `count` rows, which were not sent."""
        self._returned += [self._taken.pop() for _ in range(min(count, len(self._taken)))]


def dataset_path(text: str) -> str:
    """Return the absolute path; an empty text and the names of datasets stay as they are."""
    text = text.strip()
    return text if text in ("", GRADED) or text.startswith(PREFIX) else str(Path(text).absolute())
