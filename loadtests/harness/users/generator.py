"""The part of a process that makes load: users ask it what is next, and report what they observed."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from time import monotonic_ns

import gevent
from locust.env import Environment

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
from loadtests.harness.users.run_facts import MAX_SPREAD, RunFacts

RECENT_ANSWERS = 200
COUNTED = 0.25  # seconds between two times at which requests are counted
MIN_SPREAD = 1.0  # seconds over which the first requests of new users are spread at least
BUILD_INTERVAL = 0.2  # seconds between two bursts of building; who has an answer sooner builds the next request itself
BUILD_TIME = 500_000  # nanoseconds for which requests are built before the loop reads answers again


class LoadGenerator:
    """`dispatching`: this process's share of an open loop's arrivals is being sent. `requests` were due here."""

    def __init__(self, run: RunFacts, environment: Environment) -> None:
        self.run = run
        self.requests = 0
        self.dispatching = False
        self.counts = LiveCounts(run.metrics)
        self.recorder = Recorder(run.folder / f"requests-{run.worker}.jsonl")
        self.rows = run.plan.workload.rows_of(run.worker % run.plan.meta.workers, run.plan.meta.workers, run.folder)
        search = run.scenario.search_plan()
        self.tracker = StageTracker(search.objectives if search else ())
        self._wanted: deque[Callable[[], None]] = deque()
        self._users = 0
        self._answer_seconds: deque[float] = deque(maxlen=RECENT_ANSWERS)
        self._statistics = LocustStatistics(environment)
        self._watch = FailureWatch(environment)
        self._nudge_planner: Callable[[], None] | None = None
        self._background: list[gevent.Greenlet[..., None]] = []

    def begin(self, nudge: Callable[[], None] | None) -> None:
        """`nudge` is called if a request may have ended a stage: in the process that plans."""
        self._nudge_planner = nudge
        self._background = [gevent.spawn(self._count_ended), gevent.spawn(self._build_wanted)]

    def settle(self) -> None:
        """No more requests will end: count those that have."""
        gevent.killall(self._background)
        self._statistics.close()
        self.counts.settle_all()
        if self.rows is not None:
            self.rows.close()

    @property
    def stage(self) -> Stage:
        """The current stage."""
        assert self.tracker.stage is not None
        return self.tracker.stage

    @property
    def share(self) -> tuple[int, int] | None:
        """Index of this process and number of processes; `None` if it joined after the arrivals were shared out."""
        workers = self.run.plan.meta.workers
        return (self.run.worker, workers) if self.run.worker < workers else None

    def enter(self, stage: Stage) -> None:
        """A boundary of a stage was crossed."""
        self.tracker.enter(stage)
        if self.share is None:  # the next stage does not wait for its arrivals
            self.tracker.ready = self.tracker.played = True
        self.counts.enter(stage)

    def next_user(self) -> int:
        """A number that no other user of the run has; over all workers they run from 0 without gaps."""
        local, self._users = self._users, self._users + 1
        if self.share is not None:
            return local * self.share[1] + self.share[0]
        return 1_000_000 * self.run.worker + local

    def start_spread(self) -> float:
        """Seconds over which new users begin: as long as an answer takes, so that they are not synchronised."""
        if self._answer_seconds:
            seconds = statistics.median(self._answer_seconds)
        else:
            warm_up = self.stage.plan.warm_up
            seconds = warm_up.amount if warm_up.unit == "seconds" else 0.0
        return min(max(seconds, MIN_SPREAD), MAX_SPREAD)

    def request_scheduled(self, record: RequestRecord, t_sched: int, stage: Stage, user: int | None) -> None:
        """A request is about to be sent; `t_sched` is absolute. Its record gets what was not known when it was
        planned."""
        self.requests += 1
        record.request_id, record.worker = f"{self.run.worker}-{self.requests}", str(self.run.worker)
        record.scenario, record.stage, record.user = self.run.plan.meta.scenario, stage.index, user
        record.t_sched = t_sched - self.run.start
        self.counts.request_scheduled()
        self.tracker.request_scheduled(record)
        self._nudge()

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
        """The call's record is complete: write and count it."""
        record = call.record
        self.recorder.write(record)
        self.tracker.request_ended(record)
        self.counts.request_ended(record)
        self._watch.request_ended(record)
        self._statistics.request_ended(call.path, record, answer_bytes)
        if record.outcome == "ok" and (seconds := BY_NAME[E2E].read(record)) is not None:
            self._answer_seconds.append(seconds)
        self._nudge()

    def build_soon(self, build: Callable[[], None]) -> None:
        """Call `build` in a moment; it must do nothing if it has become superfluous, and not raise.

        Users of a closed loop have their next requests built while they wait for their answers, many at a time. One by
        one, just when an answer has ended and others are due, they take several times the CPU time, because the
        processor has something else in its caches, and the user's own next request is that much later.
        """
        self._wanted.append(build)

    def _build_wanted(self) -> None:
        while True:
            until = monotonic_ns() + BUILD_TIME
            while self._wanted and monotonic_ns() < until:
                self._wanted.popleft()()
            if self._wanted:
                yield_to_io()
            else:
                gevent.sleep(BUILD_INTERVAL)

    def _nudge(self) -> None:
        if self._nudge_planner is not None and self.tracker.waits_for_requests:
            self._nudge_planner()

    def _count_ended(self) -> None:
        """Many requests at a time: to count one at the moment in which another ends takes twice the CPU time, and
        delays what is due."""
        while True:
            while self.counts.settle(monotonic_ns() - self.run.start) | self._statistics.enter():
                yield_to_io()
            gevent.sleep(COUNTED)
