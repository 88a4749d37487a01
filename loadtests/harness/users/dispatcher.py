"""The sender of this process's share of an open loop's arrivals, on time however many requests wait for an answer.

The schedule is drawn ahead (`schedule/rates.py`) and requests are built before they are due. An alarm hands each one to
an open connection when it is due. An arrival that cannot be sent because too many requests are in flight is recorded as
`dropped`. Latency counts from the schedule, so that neither a slow server nor a late client makes it look shorter:
there is no coordinated omission. The lateness of each sending is recorded, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, dropwhile
from math import ceil, inf
from random import Random
from time import monotonic_ns

import gevent

from enginebench.records.load import Rate
from enginebench.records.request import DROPPED, RequestRecord
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from loadtests.harness import event_loop
from loadtests.harness.client.call import Call
from loadtests.harness.client.client import Client
from loadtests.harness.schedule.control import UNDECIDED
from loadtests.harness.schedule.rates import most_arrivals, share_of
from loadtests.harness.schedule.retries import pause_before_retry
from loadtests.harness.users.alarm import Alarm
from loadtests.harness.users.generator import LoadGenerator
from loadtests.harness.users.senders import SenderPool

# Requests are built between `AHEAD` and `MIN_AHEAD` before they are due: in bursts, which take less CPU time.
AHEAD = SECOND
MIN_AHEAD = AHEAD * 7 // 10
BEHIND = AHEAD // 4  # requests that are due sooner are built without pauses
BUILD_TIME = SECOND // 3000  # spent building before the loop reads answers again
TURN = 0.01  # seconds between two checks of the next due time
STALL = 0.25  # seconds of a server's stall for which spare connections suffice
MIN_SPARE = 8
MAX_IN_FLIGHT = 20_000  # requests over all processes: an arrival beyond this limit is not sent, and fails as dropped
AT_ONCE = 32  # overdue arrivals sent before the loop reads answers again


@dataclass(frozen=True, slots=True)
class Arrival:
    """A planned request; `t_sched` is absolute. `number` is the arrival's in its stage, `index` the request's in a
    recorded session."""

    t_sched: Nanoseconds
    stage: Stage
    call: Call
    number: int
    index: int = 0


class Dispatcher:
    """Send arrivals, whose requests `next_request(stage, number, index)` builds."""

    def __init__(
        self,
        generator: LoadGenerator,
        new_client: Callable[[], Client],
        next_request: Callable[[Stage, int, int], Call],
    ) -> None:
        assert generator.share is not None
        run = generator.run
        self._run, self._generator, self._next_request, self._share = run, generator, next_request, generator.share
        self._created = monotonic_ns()
        self._pool = SenderPool(new_client, max(1, MAX_IN_FLIGHT // self._share[1]))
        self._stage: Stage | None = None
        self._source: Iterator[tuple[int, float]] = iter(())
        self._following: tuple[int, float] = (0, inf)
        self._queue: deque[Arrival] = deque()
        self._later: list[tuple[Nanoseconds, int, Arrival]] = []  # a heap of retries and of next requests of sessions
        self._put_off = count()
        trace = run.trace
        self._sessions = trace.arrivals if trace is not None and trace.has_sessions else ()
        self._open_sessions = 0
        self._jitter = Random(f"retries {run.plan.workload.seed}/{self._share[0]}")
        self._closing = False
        self._building = False
        self._alarm = Alarm(self._on_due)

    def run(self, stopping: Callable[[], bool]) -> None:
        """Send until the run is over or `stopping()` is true, then wait for everything in flight."""
        run, generator, tracker = self._run, self._generator, self._generator.tracker
        generator.dispatching = True
        try:
            while not (run.over or stopping()):
                load = generator.stage.load
                assert isinstance(load, Rate)
                self._pool.spare = MIN_SPARE + ceil(most_arrivals(load, STALL) / self._share[1])
                self._follow(generator.stage)
                pause = self._build_ahead()
                tracker.ready = tracker.ready or self._pool.complete
                waiting = self._queue or self._later or self._open_sessions
                tracker.played = self._stage is not None and self._following[1] == inf and not waiting
                gevent.sleep(pause)
            self._end_sending()
            while self._pool.in_flight:
                gevent.sleep(TURN)
        finally:
            self._end_sending()
            self._alarm.close()
            self._pool.close()

    def _end_sending(self) -> None:
        """Drop pending arrivals, retries and requests of sessions. Another dispatcher may take over the share."""
        if not self._closing:
            self._closing, self._generator.dispatching = True, False
        self._queue.clear()
        self._later.clear()

    def _follow(self, stage: Stage) -> None:
        """Switch to the announced stage once its start is decided."""
        if stage.start == UNDECIDED or (self._stage is not None and self._stage.index == stage.index):
            return
        begins = self._run.start + stage.start
        self._unsend([arrival for arrival in self._queue if arrival.t_sched >= begins])
        self._stage, load = stage, stage.load
        assert isinstance(load, Rate)
        times = self._run.arrival_times(stage)
        # Arrivals that were due before this dispatcher was created belonged to the one before it.
        missed = (self._created - begins) / SECOND
        self._source = dropwhile(lambda arrival: arrival[1] < missed, share_of(times, *self._share))
        self._following = next(self._source, (0, inf))

    def _unsend(self, arrivals: list[Arrival]) -> None:
        """Drop these arrivals, the last ones that were built."""
        for _ in arrivals:
            self._queue.pop()
        if self._generator.rows is not None:
            self._generator.rows.untake(len(arrivals))

    def _build_ahead(self) -> float:
        """Build requests for at most `BUILD_TIME`, and return the seconds until the next call."""
        stage = self._stage
        if stage is None:
            return TURN
        current = self._generator.stage
        if stage.plan.drains and current.index == stage.index and current.steady_end is not None:
            self._unsend(list(self._queue))
            self._source, self._following = iter(()), (0, inf)
            return TURN
        now = monotonic_ns()
        begins, pause = self._run.start + stage.start, now + BUILD_TIME
        self._building = self._building or begins + self._following[1] * SECOND < now + MIN_AHEAD
        while self._building and begins + (seconds := self._following[1]) * SECOND < monotonic_ns() + AHEAD:
            number = self._following[0]
            call = self._next_request(stage, number, 0)
            arrival = Arrival(begins + round(seconds * SECOND), stage, call, number)
            self._queue.append(arrival)
            if len(self._queue) == 1:
                self._set_alarm()
            self._following = next(self._source, (0, inf))
            if (now := monotonic_ns()) > pause:
                return 0 if begins + self._following[1] * SECOND < now + BEHIND else event_loop.TURN
        self._building = False
        return TURN

    def _on_due(self) -> None:
        """Send the requests that are due. The event loop calls this."""
        for _ in range(AT_ONCE):
            if self._next_due() > monotonic_ns():
                break
            if self._queue and self._queue[0].t_sched == self._next_due():
                self._send(self._queue.popleft())
            else:
                self._send(heappop(self._later)[2])
        self._set_alarm()

    def _next_due(self) -> float:
        planned = self._queue[0].t_sched if self._queue else inf
        return min(planned, self._later[0][0]) if self._later else planned

    def _set_alarm(self) -> None:
        if (due := self._next_due()) < inf:
            self._alarm.set(int(due))

    def _retry(self, arrival: Arrival, ended: RequestRecord, again: Call | None) -> bool:
        """Schedule a retry, if the outcome and the scenario's limit allow one."""
        pause = pause_before_retry(ended, self._run.scenario.retries, self._jitter)
        if pause is None or again is None or self._closing:
            return False
        due = monotonic_ns() + round(pause * SECOND)
        self._put(replace(arrival, t_sched=due, stage=self._generator.stage, call=again))
        return True

    def _put(self, arrival: Arrival) -> None:
        heappush(self._later, (arrival.t_sched, next(self._put_off), arrival))
        self._set_alarm()

    def _follow_up(self, arrival: Arrival, t_end: Nanoseconds) -> None:
        """Schedule the session's next request. It is built now, not when it is due."""
        if not self._sessions or self._closing:
            return
        requests, index = self._sessions[arrival.number % len(self._sessions)].requests, arrival.index + 1
        if index == len(requests):
            self._open_sessions -= 1
            return
        stage, pause = self._generator.stage, requests[index].pause
        assert pause is not None
        call = self._next_request(stage, arrival.number, index)
        self._put(replace(arrival, t_sched=t_end + round(pause * SECOND), stage=stage, call=call, index=index))

    def _send(self, arrival: Arrival) -> None:
        run, generator, call, record = self._run, self._generator, arrival.call, arrival.call.record
        self._open_sessions += bool(self._sessions) and arrival.index == 0 and record.attempt == 0
        again = call.again() if record.attempt < run.scenario.retries else None
        generator.request_scheduled(record, arrival.t_sched, arrival.stage, None)

        def end(ended: RequestRecord, answer_bytes: int) -> None:
            generator.request_ended(call, answer_bytes)
            if not self._retry(arrival, ended, again):
                self._follow_up(arrival, run.start + ended.t_end)

        def send(client: Client) -> None:
            generator.announce(record)
            client.request(call, lambda ended: end(ended, client.answer_bytes))

        if not self._pool.send(send):
            record.outcome, record.detail = DROPPED, f"{self._pool.in_flight} requests were in flight"
            record.t_end = monotonic_ns() - run.start
            end(record, 0)
