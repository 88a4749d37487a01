"""The outcomes of a probe's requests by slice of time, in the order in which they were scheduled.

Bets on batches of consecutive requests (`evidence.py`) need this order, which the counts of `live/` do not keep, and
need it immediately. Each process keeps its own slices, and the planning process adds them up and computes the evidence.

A slice is a row with the number of requests scheduled in it, the number that have ended, and their seconds in flight,
then for each objective the numbers of requests that missed it and that were slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginebench.records.load import Load, Rate
from enginebench.records.request import RequestRecord
from enginebench.records.slo import Objective
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from loadtests.harness.schedule.search.evidence import SLOW, ProbeOutcomes

SCHEDULED, ENDED, IN_FLIGHT = range(3)
FIRST_OBJECTIVE = 3  # column
Row = list[float]
Message = dict[str, list[list[float]] | int]
ARRIVALS_PER_SLICE = 4
MIN_SECONDS, MAX_SECONDS, USUAL = 0.05, 1.0, 0.25  # seconds of a slice


def slice_length(load: Load) -> Nanoseconds:
    seconds = USUAL
    if isinstance(load, Rate):
        seconds = min(max(ARRIVALS_PER_SLICE / load.per_second, MIN_SECONDS), MAX_SECONDS)
    return round(seconds * SECOND)


class ProcessSlices:
    """The slices of one process in the current stage."""

    def __init__(self, objectives: Sequence[Objective]) -> None:
        self._objectives = objectives
        self._stage: Stage | None = None
        self._rows: dict[int, Row] = {}
        self._changed: set[int] = set()

    def enter(self, stage: Stage) -> None:
        if self._stage is None or self._stage.index != stage.index:
            self._rows.clear()
            self._changed.clear()
        self._stage = stage

    def scheduled(self, request: RequestRecord) -> None:
        if (row := self._row_of(request)) is not None:
            row[SCHEDULED] += 1

    def ended(self, request: RequestRecord) -> None:
        row = self._row_of(request)
        if row is None:
            return
        row[ENDED] += 1
        row[IN_FLIGHT] += (request.t_end - request.t_sched) / SECOND
        for column, objective in enumerate(self._objectives):
            good, value = objective.judge(request)
            slow = value is not None and value > SLOW * objective.limit
            row[FIRST_OBJECTIVE + 2 * column] += not good
            row[FIRST_OBJECTIVE + 2 * column + 1] += slow or not good

    def changes(self) -> Message | None:
        """Return the rows changed since the last call, each preceded by its slice's number; `None` without any."""
        if self._stage is None or not self._changed:
            return None
        rows = [[float(number), *self._rows[number]] for number in sorted(self._changed)]
        self._changed.clear()
        return {"stage": self._stage.index, "rows": rows}

    def _row_of(self, request: RequestRecord) -> Row | None:
        """Return the row of a request; `None` if it belongs to an earlier stage."""
        stage = self._stage
        if stage is None or request.stage != stage.index or request.t_sched < stage.start:
            return None
        number = (request.t_sched - stage.start) // slice_length(stage.load)
        self._changed.add(number)
        return self._rows.setdefault(number, [0.0] * (FIRST_OBJECTIVE + 2 * len(self._objectives)))


class ProbeSlices:
    """The slices of one stage, added up over all processes."""

    def __init__(self, stage: Stage, objectives: int) -> None:
        self._length = slice_length(stage.load)
        self._start = stage.start
        self._width = FIRST_OBJECTIVE + 2 * objectives
        self._rows: list[Row] = []
        self._of_worker: dict[tuple[str, int], Row] = {}
        self._closed = 0

    def take(self, worker: str, message: Mapping[str, Sequence[Sequence[float]]]) -> None:
        for number, *row in message["rows"]:
            self._reach(int(number) + 1)
            before = self._of_worker.get((worker, int(number)), [0.0] * self._width)
            total = self._rows[int(number)]
            for k, value in enumerate(row):
                total[k] += value - before[k]
            self._of_worker[worker, int(number)] = row

    def close(self, until: Nanoseconds) -> int:
        """Count the slices, from the first one on, that are over at `until` and have all their answers."""
        over = max(0, until - self._start) // self._length
        self._reach(over)
        while self._closed < over and self._rows[self._closed][SCHEDULED] == self._rows[self._closed][ENDED]:
            self._closed += 1
        return self._closed

    def first(self, steady_start: Nanoseconds) -> int:
        """Return the first slice inside the window."""
        return -((self._start - steady_start) // self._length)

    def requests(self, first: int, last: int) -> int:
        return round(sum(row[SCHEDULED] for row in self._rows[first:last]))

    def outcomes(self, first: int, last: int) -> ProbeOutcomes:
        """Return the outcomes in slices `first` to `last` (excluded)."""
        rows = self._rows[first:last]
        missed, slow = (
            [[round(row[k]) for row in rows] for k in range(FIRST_OBJECTIVE + offset, self._width, 2)]
            for offset in (0, 1)
        )
        stay = sum(row[IN_FLIGHT] for row in rows) / max(1.0, sum(row[ENDED] for row in rows))
        return ProbeOutcomes(
            [round(row[SCHEDULED]) for row in rows], missed, slow, stay, len(rows) * self._length / SECOND
        )

    def _reach(self, slices: int) -> None:
        while len(self._rows) < slices:
            self._rows.append([0.0] * self._width)
