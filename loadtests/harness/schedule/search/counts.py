"""Counts of a probe's requests by slice of time: each process keeps its own, and the planning one adds them up.

A row of a slice: requests scheduled in it, how many of those have ended, requests that ended in it whenever they were
scheduled; then for each objective how many missed it, and the sums of latency ÷ limit and of its square.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from loadtests.harness.schedule.search.evidence import CEILING, Evidence, Series
from records.load import Load, Rate
from records.request import RequestRecord
from records.slo import FAILURES, Objective
from records.stage import SECOND, Nanoseconds, Stage

SCHEDULED, ENDED, LEFT = range(3)
OWN = 3  # columns of each objective, after these
Row = list[float]
Message = dict[str, list[list[float]] | int | list[float]]
ARRIVALS_PER_SLICE = 4
SHORTEST, LONGEST, USUAL = 0.05, 1.0, 0.25  # seconds of a slice


def slice_length(load: Load) -> Nanoseconds:
    seconds = min(max(ARRIVALS_PER_SLICE / load.per_second, SHORTEST), LONGEST) if isinstance(load, Rate) else USUAL
    return round(seconds * SECOND)


class ProcessCounts:
    """One process's counts of the stage that is on."""

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = objectives
        self._stage: Stage | None = None
        self._rows: dict[int, Row] = {}
        self._open: dict[int, int] = {}  # request -> its slice
        self._changed: set[int] = set()
        self._parts = [0.0, 0.0, 0.0, 0.0]  # late requests with the server's durations; their queue, prefill, decode

    def enter(self, stage: Stage) -> None:
        if self._stage is None or self._stage.index != stage.index:
            self._rows.clear()
            self._open.clear()
            self._changed.clear()
            self._parts = [0.0] * 4
        self._stage = stage

    def scheduled(self, number: int, at: Nanoseconds) -> None:
        if (at_slice := self._slice(at)) is not None:
            self._open[number] = at_slice
            self._row(at_slice)[SCHEDULED] += 1

    def ended(self, number: int, request: RequestRecord) -> None:
        at_slice = self._open.pop(number, None)
        if at_slice is None:
            return  # of an earlier stage
        row = self._row(at_slice)
        row[ENDED] += 1
        late = False
        for column, objective in enumerate(self._objectives):
            good, value = objective.judge(request)
            if objective.metric == FAILURES or not (good or value is not None):
                level = 0.0 if good else CEILING
            else:
                level = min((value or 0.0) / objective.limit, CEILING)
            first = OWN + 3 * column
            row[first] += not good
            row[first + 1] += level
            row[first + 2] += level**2
            late = late or not good
        if (ended_in := self._slice(request.t_end)) is not None:
            self._row(ended_in)[LEFT] += 1
        parts = (request.server_queue, request.server_prefill, request.server_decode)
        if late and None not in parts:
            self._parts = [a + (b or 0.0) for a, b in zip(self._parts, (1.0, *parts), strict=True)]

    def changes(self) -> Message | None:
        """The rows that have changed since the last call, with their slices' numbers; `None` where none has."""
        if self._stage is None or not self._changed:
            return None
        rows = [[float(number), *self._rows[number]] for number in sorted(self._changed)]
        self._changed.clear()
        return {"stage": self._stage.index, "rows": rows, "parts": self._parts}

    def _slice(self, at: Nanoseconds) -> int | None:
        stage = self._stage
        if stage is None or at < stage.start:
            return None
        return (at - stage.start) // slice_length(stage.load)

    def _row(self, number: int) -> Row:
        self._changed.add(number)
        return self._rows.setdefault(number, [0.0] * (OWN + 3 * len(self._objectives)))


class StageCounts:
    """All processes' counts of one stage."""

    def __init__(self, stage: Stage, objectives: int) -> None:
        self._length = slice_length(stage.load)
        self._start = stage.start
        self._width = OWN + 3 * objectives
        self._rows: list[Row] = []
        self._of_worker: dict[tuple[str, int], Row] = {}
        self._parts: dict[str, list[float]] = {}
        self._closed = 0

    def take(self, worker: str, message: Mapping[str, Sequence[Sequence[float]]]) -> None:
        for number, *row in message["rows"]:
            self._reach(int(number) + 1)
            known = self._of_worker.get((worker, int(number)), [0.0] * self._width)
            total = self._rows[int(number)]
            for k, value in enumerate(row):
                total[k] += value - known[k]
            self._of_worker[worker, int(number)] = row
        self._parts[worker] = [float(value) for value in message["parts"]]  # type: ignore[arg-type]

    @property
    def late_parts(self) -> tuple[float, float, float] | None:
        """Mean seconds of queue, prefill and decode of the requests that missed an objective."""
        sums = [sum(column) for column in zip(*self._parts.values(), strict=True)]
        return (sums[1] / sums[0], sums[2] / sums[0], sums[3] / sums[0]) if sums and sums[0] else None

    def close(self, until: Nanoseconds) -> int:
        """How many slices from the first one on are over at `until` and have all their answers."""
        over = max(0, until - self._start) // self._length
        self._reach(over)
        while self._closed < over and self._rows[self._closed][SCHEDULED] == self._rows[self._closed][ENDED]:
            self._closed += 1
        return self._closed

    def first(self, steady_start: Nanoseconds) -> int:
        """The first slice that lies inside the window."""
        return -((self._start - steady_start) // self._length)

    def requests(self, first: int, last: int) -> int:
        return round(sum(row[SCHEDULED] for row in self._rows[first:last]))

    def evidence(self, first: int, last: int, now: Nanoseconds) -> Evidence:
        """What slices `first` to `last` (excluded) have shown."""
        rows, present = self._rows[first:last], max(0, now - self._start) // self._length
        columns = range(OWN, self._width, 3)
        series = [
            Series([round(row[c]) for row in rows], [row[c + 1] for row in rows], [row[c + 2] for row in rows])
            for c in columns
        ]
        return Evidence([round(row[SCHEDULED]) for row in rows], series, list(_in_flight(self._rows[:present]))[first:])

    def seconds(self, slices: int) -> float:
        return slices * self._length / SECOND

    def _reach(self, slices: int) -> None:
        while len(self._rows) < slices:
            self._rows.append([0.0] * self._width)


def _in_flight(rows: Iterable[Row]) -> Iterable[int]:
    level = 0.0
    for row in rows:
        level += row[SCHEDULED] - row[LEFT]
        yield round(level)
