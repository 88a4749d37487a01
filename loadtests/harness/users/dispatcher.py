"""Sends this process's share of an open loop's arrivals on time, however many requests are waiting for an answer.

The schedule is drawn ahead (`schedule/rates.py`) and requests are built before they are due. An alarm fires when the
next one is due and hands it to an open connection. An arrival that cannot be sent because too many requests are in
flight is recorded as `dropped`. Latency counts from the schedule, so that neither a slow server nor a late client makes
it look shorter: there is no coordinated omission. How late each was sent is recorded, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import ceil, inf
from random import Random
from time import monotonic_ns

import gevent

from loadtests.harness.client.call import Call
from loadtests.harness.client.client import Client
from loadtests.harness.schedule.control import UNDECIDED
from loadtests.harness.schedule.rates import peak_rate, share_of
from loadtests.harness.schedule.retries import pause_before_retry
from loadtests.harness.users.alarm import Alarm
from loadtests.harness.users.run_process import RunProcess
from loadtests.harness.users.senders import SenderPool
from loadtests.harness.workload.workload import PlannedRequest
from records.load import Load, Rate
from records.request import RequestRecord
from records.stage import SECOND, Nanoseconds, Stage

AHEAD = SECOND  # how long before they are due requests are built
BUILD_TIME = SECOND // 2000  # for which requests are built before the loop reads answers again
TURN = 0.01  # seconds between two checks of what is due next
STALL = 0.25  # seconds of a stalled server for which spare connections suffice
FEWEST_SPARE = 8
AT_ONCE = 32  # overdue arrivals sent before the loop reads answers again


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request that is due; `t_sched` is absolute."""

    t_sched: Nanoseconds
    stage: Stage
    planned: PlannedRequest


class Dispatcher:
    """`next_request(stage, number)` builds the request of an arrival; `show` is called with each that has ended,
    and with the size of its answer in bytes."""

    def __init__(
        self,
        run: RunProcess,
        new_client: Callable[[], Client],
        next_request: Callable[[Stage, int], PlannedRequest],
        show: Callable[[Call, RequestRecord, int], None],
    ) -> None:
        self._run, self._next_request, self._show = run, next_request, show
        _, self._workers = run.share
        self._pool = SenderPool(new_client, max(1, run.scenario.max_in_flight // self._workers))
        self._stage: Stage | None = None
        self._source: Iterator[tuple[int, float]] = iter(())
        self._following: tuple[int, float] = (0, inf)
        self._queue: deque[Arrival] = deque()
        self._retries: list[tuple[Nanoseconds, int, Arrival]] = []  # a heap
        self._retried = count()
        self._jitter = Random(f"retries {run.plan.workload.seed}/{run.share[0]}")
        self._closing = False
        self._alarm = Alarm(self._on_due)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Until the run is over or `stopping()`, and everything in flight has its answer."""
        run, tracker = self._run, self._run.tracker
        assert tracker is not None
        try:
            while not (run.over or stopping()):
                self._pool.spare = self._spare(run.stage.load)
                self._follow(run.stage)
                complete = self._build_ahead()
                tracker.ready = tracker.ready or self._pool.complete
                gevent.sleep(TURN if complete else 0)
            self._closing = True  # pending retries are dropped
            self._queue.clear()
            self._retries.clear()
            while self._pool.in_flight:
                gevent.sleep(TURN)
        finally:
            self._closing = True
            self._queue.clear()
            self._alarm.close()
            self._pool.close()

    def _spare(self, load: Load) -> int:
        assert isinstance(load, Rate)
        return FEWEST_SPARE + ceil(peak_rate(load) * STALL / self._workers)

    def _follow(self, stage: Stage) -> None:
        """Switch to the announced stage once its start is decided."""
        known = self._stage
        if stage.start == UNDECIDED or (known is not None and known.index == stage.index):
            return
        begins = self._run.start + stage.start
        while self._queue and self._queue[-1].t_sched >= begins:
            self._queue.pop()
        self._stage, load = stage, stage.load
        assert isinstance(load, Rate)
        times = self._run.arrival_times(stage)
        self._source = share_of(times, *self._run.share)
        self._following = next(self._source, (0, inf))

    def _build_ahead(self) -> bool:
        """Build the requests that are due within `AHEAD`, for at most `BUILD_TIME`. Returns whether all are built."""
        stage = self._stage
        if stage is None:
            return True
        now_on = self._run.stage
        if stage.plan.drains and now_on.index == stage.index and now_on.steady_end is not None:
            self._queue.clear()
            self._source, self._following = iter(()), (0, inf)
            return True
        begins, pause = self._run.start + stage.start, monotonic_ns() + BUILD_TIME
        while begins + (seconds := self._following[1]) * SECOND < monotonic_ns() + AHEAD:
            number = self._following[0]
            arrival = Arrival(begins + round(seconds * SECOND), stage, self._next_request(stage, number))
            self._queue.append(arrival)
            if len(self._queue) == 1:
                self._set_alarm()
            self._following = next(self._source, (0, inf))
            if monotonic_ns() > pause:
                return False
        return True

    def _on_due(self) -> None:
        """Called by the event loop."""
        for _ in range(AT_ONCE):
            if self._next_due() > monotonic_ns():
                break
            if self._queue and self._queue[0].t_sched == self._next_due():
                self._send(self._queue.popleft())
            else:
                self._send(heappop(self._retries)[2])
        self._set_alarm()

    def _next_due(self) -> float:
        planned = self._queue[0].t_sched if self._queue else inf
        return min(planned, self._retries[0][0]) if self._retries else planned

    def _set_alarm(self) -> None:
        if (due := self._next_due()) < inf:
            self._alarm.set(int(due))

    def _retry(self, ended: RequestRecord, again: PlannedRequest | None) -> None:
        """Schedule a retry, if the outcome and the scenario's limit allow one."""
        pause = pause_before_retry(ended, self._run.scenario.retries, self._jitter)
        if pause is None or again is None or self._closing:
            return
        due = monotonic_ns() + round(pause * SECOND)
        heappush(self._retries, (due, next(self._retried), Arrival(due, self._run.stage, again)))
        self._set_alarm()

    def _send(self, arrival: Arrival) -> None:
        run, (call, record) = self._run, arrival.planned
        again = arrival.planned.again() if record.attempt < run.scenario.retries else None
        number = run.request_scheduled(record, arrival.t_sched, arrival.stage, None)

        def end(ended: RequestRecord, answer_bytes: int) -> None:
            run.request_ended(number, ended)
            self._show(call, ended, answer_bytes)
            self._retry(ended, again)

        def send(client: Client) -> None:
            run.announce(record)
            client.request(call, record, lambda ended: end(ended, client.answer_bytes))

        if not self._pool.send(send):
            record.outcome, record.detail = "dropped", f"{self._pool.in_flight} requests were in flight"
            record.t_end = monotonic_ns() - run.start
            end(record, 0)
