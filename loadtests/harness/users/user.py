"""One simulated user, who sends a request, reads the whole answer, thinks, and sends the next one (a closed loop).

In an open loop, each process has one user, who sends the process's share of the arrivals.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from time import monotonic_ns
from typing import Any, ClassVar

import gevent
from locust import User, task
from locust.exception import StopUser
from locust.user.task import LOCUST_STATE_STOPPING

from enginebench.records.load import Rate
from enginebench.records.request import Outcome, RequestRecord
from enginebench.records.stage import SECOND, Stage, StagePlan
from loadtests.harness.client.call import Call
from loadtests.harness.client.client import Client
from loadtests.harness.scenario import Scenario
from loadtests.harness.schedule.retries import pause_before_retry
from loadtests.harness.users import (
    locust_events,
    page,  # noqa: F401  adds its tab to Locust's page
    shape,  # noqa: F401  gives Locust the scenario's stages
)
from loadtests.harness.users.dispatcher import Dispatcher

MAX_ARRIVALS = 10**9  # per stage
PAUSE_AFTER_FAILURE = 1.0  # seconds: a user whose request is refused does not repeat it at once


class ModelUser(User):
    """A locustfile defines one subclass, whose `scenario` decides the load shape. Override `next_request` to send other
    requests."""

    abstract = True
    host = "http://127.0.0.1:8000"
    scenario: ClassVar[Scenario]
    _leaving = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "scenario" in vars(cls):
            locust_events.process.take_scenario(cls.scenario)

    def on_start(self) -> None:
        run = locust_events.process.run
        if run is None or run.generator is None:  # the run could not start in this worker, which told the master
            raise StopUser
        self._run, self._generator = run, run.generator
        self._number = self._generator.next_user()
        self.workload = run.plan.workload
        if isinstance(self._generator.stage.load, Rate):
            return
        self._generator.tracker.user_started(self._number)
        self._requests = self.workload.requests_of(self._number, self._generator.rows)
        self._pauses = Random(f"pauses {self.workload.seed}/{self._number}")
        self._client = self._new_client()
        # Users that start together would stay synchronised for the rest of the run.
        gevent.sleep(Random(f"spread {self.workload.seed}/{self._number}").uniform(0, self._generator.start_spread()))
        with suppress(OSError):  # the first request fails with the same reason, and is recorded
            self._client.connect()
        self._ahead: tuple[StagePlan, Call] | None = None
        self._prepare()
        self._free_at = monotonic_ns()

    def stop(self, force: bool = False) -> bool:
        """Leave after the current request. Locust kills a user between two requests; a request that the user sends
        before that would be cut off."""
        self._leaving = True
        return bool(super().stop(force))

    def on_stop(self) -> None:
        if hasattr(self, "_client"):
            self._client.close()
            self._requests.close()
            self._generator.tracker.user_stopped(self._number)

    def next_request(self, stage: Stage) -> Call:
        """Build this user's next request in `stage`."""
        return self._requests.next(stage.plan.asks)

    def arrival_request(self, stage: Stage, number: int, index: int) -> Call:
        """Build a request of an open loop: `number` is the arrival's index in `stage`, `index` the request's index in
        its recorded session."""
        if self._run.trace is not None:
            return self.workload.arrival_request(self._run.trace, stage.index, number, index)
        self._requests = self.workload.requests_of(stage.index * MAX_ARRIVALS + number, self._generator.rows)
        return self.next_request(stage)

    def _new_client(self) -> Client:
        run = self._run
        return Client(
            run.plan.meta.url,
            access=run.access,
            request_timeout=run.scenario.request_timeout,
            patience=run.scenario.patience,
            epoch=run.start,
            traced_run=run.traced,
        )

    def _prepare(self) -> None:
        """Take the next request, built before it is due."""
        if self._ahead is None:
            self._ahead = self._built()
        (self._planned_for, self._call), self._ahead = self._ahead, None

    def _built(self) -> tuple[StagePlan, Call]:
        stage = self._generator.stage
        return stage.plan, self.next_request(stage)

    def _build_ahead(self) -> None:
        if self._ahead is None and not self._leaving:
            with suppress(Exception):  # `_prepare` builds the request again, and raises
                self._ahead = self._built()

    @task
    def ask(self) -> None:
        """Send requests one after the other. Return to Locust only for a pause, or if the end of a stage may depend on
        the last request: Locust's turn takes an iteration of the event loop."""
        if isinstance(self._generator.stage.load, Rate):
            self._send_arrivals()
            raise StopUser
        tracker = self._generator.tracker
        while self._ask() == "ok" and self._free_at <= monotonic_ns() and not tracker.waits_for_requests:
            pass

    def _send_arrivals(self) -> None:
        """Send this process's arrivals until the run is over or Locust stops this user. Do nothing if another user of
        this process sends them, or if the process has no share: Locust moves users of a lost worker to other processes,
        and some to workers that join late."""
        if self._generator.share is not None and not self._generator.dispatching:
            dispatcher = Dispatcher(self._generator, self._new_client, self.arrival_request)
            dispatcher.run(lambda: self._state == LOCUST_STATE_STOPPING)

    def _ask(self) -> Outcome:
        if self._leaving:
            raise StopUser
        # The loop's timers count from its last iteration, so a busy loop ends a sleep early. No request may be early.
        while (early := self._free_at - monotonic_ns()) > 0:
            gevent.sleep(early / SECOND)
        if self._run.over:  # during a think time
            raise StopUser
        # Latency counts from when the user was free, however late it sends: there is no coordinated omission.
        run, generator, t_sched = self._run, self._generator, self._free_at
        stage = generator.stage
        if stage.plan is not self._planned_for and stage.plan.asks != self._planned_for.asks:
            self._ahead = None  # the new stage needs other requests
            self._prepare()
        call, retries = self._call, run.scenario.retries
        again = call.again() if call.record.attempt < retries else None
        generator.request_scheduled(call.record, t_sched, stage, self._number)

        def on_end(record: RequestRecord) -> None:
            generator.request_ended(call, self._client.answer_bytes)

        generator.announce(call.record)
        if self._ahead is None and self._requests.independent and type(self).next_request is ModelUser.next_request:
            generator.build_soon(self._build_ahead)
        ended = self._client.request(call, on_end)
        retry = pause_before_retry(ended, retries, self._pauses)
        if retry is not None and again is not None:
            self._free_at = self._client.free_at + round(retry * SECOND)
            self._call = again
            return ended.outcome
        self._requests.answered(ended, self._client.answer_text)
        pause = run.scenario.think_time.sample(self._pauses)
        if ended.outcome != "ok":
            pause = max(pause, PAUSE_AFTER_FAILURE)
        self._free_at = max(run.start + ended.t_end, self._client.free_at) + round(pause * SECOND)
        self._prepare()
        return ended.outcome

    def wait_time(self) -> float:
        """Return the seconds until the next request is due. After the last stage, stop the user."""
        if self._run.over:
            raise StopUser
        return max(0.0, (self._free_at - monotonic_ns()) / SECOND)
