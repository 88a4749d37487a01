"""One simulated person: asks, reads the answer to its end, thinks, asks again (a closed loop).

Locust's own page shows each request once, with its end-to-end time, and beside it the rows TTFT and TPOT, which are not
requests and leave Aggregated alone. Those numbers are rounded and for watching only; what a report says comes from the
records, of which every request leaves one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from time import monotonic_ns

import gevent
from locust import User, task
from locust.exception import StopUser

from loadtests.harness.client.client import Call, Client
from loadtests.harness.client.observation import Observation
from loadtests.harness.schedule.stages import SECOND
from loadtests.harness.users.lifecycle import current_run
from loadtests.harness.users.page import e2e, tpot, ttft

PAUSE_AFTER_FAILURE = (
    1.0  # seconds: nobody asks again within a millisecond of an error, and a refusing server needs air
)
SPREAD = 1.0  # seconds over which users that Locust starts at once begin


class RequestFailed(Exception):
    """What Locust's page lists under Failures."""


class ModelUser(User):
    """Subclass it in a scenario; override `calls` to ask something else."""

    abstract = True
    host = "http://127.0.0.1:8000"

    def on_start(self) -> None:
        run = current_run()
        assert run is not None, "Locust starts users after test_start"
        self._run = run
        self.workload, settings = run.plan.workload, run.settings
        number = run.next_user()
        self._calls = self.calls(number)
        self._client = Client(
            run.plan.meta.url,
            headers=settings.headers,
            insecure=settings.insecure,
            # A queued request is silent until its first token, however long that takes: only the whole has a limit.
            silence_timeout=settings.request_timeout,
            request_timeout=settings.request_timeout,
        )
        # Locust starts a second's worth of users in one instant; they must not send in one instant.
        gevent.sleep(Random(f"spread {self.workload.seed}/{number}").uniform(0, SPREAD))
        with suppress(OSError):  # the first request fails with the same reason, and is recorded
            self._client.connect()
        self._call = next(self._calls)
        self._free_at = monotonic_ns()

    def on_stop(self) -> None:
        if hasattr(self, "_client"):
            self._client.close()

    def calls(self, number: int) -> Iterator[Call]:
        """What this user asks, one after the other. `number` is the user's in the whole run, from 0."""
        return self.workload.calls(number)

    @task
    def ask(self) -> None:
        # The loop's timers count from its last turn, so a busy loop wakes sleepers early: nobody shall send too soon.
        while (early := self._free_at - monotonic_ns()) > 0:
            gevent.sleep(early / SECOND)
        observation = self._client.request(self._call, self._free_at, self._observed)
        pause = self._run.settings.think_time
        if observation.outcome != "ok":
            pause = max(pause, PAUSE_AFTER_FAILURE)
        self._free_at = observation.t_end + round(pause * SECOND)
        self._call = next(self._calls)

    def wait_time(self) -> float:
        """Seconds until the next request is due. A user whose next request lies past the plan's end is done."""
        if self._run.is_over(self._free_at):
            raise StopUser
        return max(0.0, (self._free_at - monotonic_ns()) / SECOND)

    def _observed(self, observation: Observation) -> None:
        self._run.record(observation)
        if observation.outcome == "cut_off":
            return  # stopped by the run's own end: no request that succeeded, none that failed
        name = self._call.path
        failure = None
        if observation.outcome == "ok":
            for row, time in (("TTFT", ttft(observation)), ("TPOT", tpot(observation))):
                if time is not None:
                    self.environment.stats.get(name, row).log(time / 1e6, 0)
        else:
            reason = observation.detail or observation.status or "no reason given"
            failure = RequestFailed(f"{observation.outcome}: {reason}")
        self.environment.events.request.fire(
            request_type="POST",
            name=name,
            response_time=e2e(observation) / 1e6,  # Locust counts in milliseconds
            response_length=observation.size,
            exception=failure,
            context={},
        )
