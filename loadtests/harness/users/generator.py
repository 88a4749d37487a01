"""The requests of one process that makes load: numbered, recorded, counted, and built ahead."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from time import monotonic_ns

import gevent
from locust.env import Environment

from enginebench.records.files import requests_file
from enginebench.records.metrics import BY_NAME, E2E
from enginebench.records.request import RequestRecord, SentRecord
from enginebench.records.stage import Stage
from loadtests.harness.client.call import Call
from loadtests.harness.event_loop import yield_to_io
from loadtests.harness.live.counts import LiveCounts
from loadtests.harness.recording.recorder import Recorder
from loadtests.harness.schedule.tracker import StageTracker
from loadtests.harness.users.failure_watch import FailureWatch
from loadtests.harness.users.locust_statistics import LocustStatistics
from loadtests.harness.users.run_state import RunState

RECENT_ANSWERS = 200
COUNT_INTERVAL = 0.25  # seconds
MIN_SPREAD, MAX_SPREAD = 1.0, 60.0  # seconds over which the first requests of new users are spread
BUILD_INTERVAL = 0.2  # seconds between two bursts of building; a user whose answer comes sooner builds its own request
BUILD_TIME = 500_000  # nanoseconds spent building before the loop reads answers again


class LoadGenerator:
    """`requests` counts those that were due in this process. `dispatching` is true while a user sends this process's
    share of an open loop's arrivals. `wake_planner` is called if a request may have ended a stage."""

    def __init__(self, run: RunState, environment: Environment) -> None:
        self.run = run
        self.requests = 0
        self.dispatching = False
        self.counts = LiveCounts(run.metrics)
        self.recorder = Recorder(run.folder / requests_file(run.worker))
        workers = run.plan.meta.workers
        self.rows = run.plan.workload.rows_of(run.scenario.rows(), *(self.share or (run.worker % workers, workers)))
        search = run.scenario.search_plan()
        self.tracker = StageTracker(search.objectives if search else ())
        self._builds: deque[Callable[[], None]] = deque()
        self._users = 0
        self._answer_seconds: deque[float] = deque(maxlen=RECENT_ANSWERS)
        self._statistics = LocustStatistics(environment)
        self._watch = FailureWatch(environment)
        self.wake_planner: Callable[[], None] = lambda: None
        self._background = [gevent.spawn(self._count_ended), gevent.spawn(self._build_requests)]

    def settle(self) -> None:
        """Count all requests that have ended, after the last one."""
        gevent.killall(self._background)
        self._statistics.close()
        self.counts.settle_all()

    @property
    def stage(self) -> Stage:
        assert self.tracker.stage is not None
        return self.tracker.stage

    @property
    def share(self) -> tuple[int, int] | None:
        """Return the place of this process and the number of processes; `None` if it joined after the arrivals were
        shared out."""
        return self.run.plan.share(self.run.worker)

    def enter(self, stage: Stage) -> None:
        self.tracker.enter(stage)
        if self.share is None:  # the next stage does not wait for its arrivals
            self.tracker.ready = self.tracker.played = True
        self.counts.enter(stage)

    def next_user(self) -> int:
        """Return a number that no other user of the run has; over all workers, the numbers have no gaps."""
        local, self._users = self._users, self._users + 1
        if self.share is not None:
            return local * self.share[1] + self.share[0]
        return 1_000_000 * self.run.worker + local

    def start_spread(self) -> float:
        """Return the seconds over which new users begin: the duration of an answer, so that they are not
        synchronised."""
        if self._answer_seconds:
            seconds = statistics.median(self._answer_seconds)
        else:
            warm_up = self.stage.plan.warm_up
            seconds = warm_up.amount if warm_up.unit == "seconds" else 0.0
        return min(max(seconds, MIN_SPREAD), MAX_SPREAD)

    def request_scheduled(self, record: RequestRecord, t_sched: int, stage: Stage, user: int | None) -> None:
        """Complete the record of a request that is about to be sent; `t_sched` is absolute."""
        self.requests += 1
        record.request_id, record.worker = f"{self.run.worker}-{self.requests}", str(self.run.worker)
        record.scenario, record.stage, record.user = self.run.plan.meta.scenario, stage.index, user
        record.t_sched = t_sched - self.run.start
        self.counts.request_scheduled()
        self.tracker.request_scheduled(record)
        self._wake_if_stage_may_end()

    def announce(self, record: RequestRecord) -> None:
        """Record that a request is about to be sent: if this process is killed, this line is its only trace."""
        self.recorder.write(
            SentRecord(
                request_id=record.request_id,
                worker=record.worker,
                stage=record.stage,
                t_sched=record.t_sched,
                t_send=monotonic_ns() - self.run.start,
            )
        )

    def request_ended(self, call: Call, answer_bytes: int) -> None:
        """Write and count the call's record, which is complete."""
        record = call.record
        self.recorder.write(record)
        self.tracker.request_ended(record)
        self.counts.request_ended(record)
        self._watch.request_ended(record)
        self._statistics.request_ended(call.path, record, answer_bytes)
        if record.outcome == "ok" and (seconds := BY_NAME[E2E].read(record)) is not None:
            self._answer_seconds.append(seconds)
        self._wake_if_stage_may_end()

    def build_soon(self, build: Callable[[], None]) -> None:
        """Call `build` soon; it must do nothing if it is no longer needed, and must not raise.

        The next requests of a closed loop's users are built in bursts while the users wait for their answers. Built one
        by one, each just after an answer, they would take several times the CPU time, because the processor's caches
        are cold, and each request would be sent that much later.
        """
        self._builds.append(build)

    def _build_requests(self) -> None:
        while True:
            until = monotonic_ns() + BUILD_TIME
            while self._builds and monotonic_ns() < until:
                self._builds.popleft()()
            if self._builds:
                yield_to_io()
            else:
                gevent.sleep(BUILD_INTERVAL)

    def _wake_if_stage_may_end(self) -> None:
        if self.tracker.waits_for_requests:
            self.wake_planner()

    def _count_ended(self) -> None:
        """Count requests in bursts: counted one by one as they end, they take twice the CPU time, and delay requests
        that are due."""
        while True:
            while self.counts.settle(monotonic_ns() - self.run.start) | self._statistics.enter():
                yield_to_io()
            gevent.sleep(COUNT_INTERVAL)
