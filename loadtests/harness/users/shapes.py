"""The stage plan as Locust's load shape.

Locust asks a shape once a second how many users there shall be. A second is long for a short stage, so the answer waits
where a stage begins within it, and is given at the very instant.
"""

from __future__ import annotations

import time

import gevent
from locust import LoadTestShape

from loadtests.harness.run import plan as plans
from loadtests.harness.run.options import DEFAULT_STOP_TIMEOUT, Settings
from loadtests.harness.schedule.stages import SECOND, stage_at
from loadtests.harness.users.lifecycle import Run, current_run, refusal
from records.record import Stage

LOOK_AHEAD = SECOND  # Locust asks again after this long
MAX_SPAWN_RATE = 100  # users per second and process; beyond it Locust warns that its heartbeats may starve


class Stages(LoadTestShape):
    """Climbs through the stages of `--steps`, then lets the last requests finish. Subclass it in a scenario."""

    abstract = True

    def tick(self) -> tuple[int, float] | None:
        run = current_run()
        if run is None:
            return self._before_the_start()
        self._wait_for_boundary(run)
        self._tell_late_workers(run)
        t = time.monotonic_ns() - run.start
        stage = stage_at(run.stages, t)
        if stage is not None:
            return _users(stage, run.stages, self._processes())
        if self._drained(run):
            return None
        return _users(run.stages[-1], run.stages, self._processes())

    def _before_the_start(self) -> tuple[int, float]:
        """Locust starts the test on this first answer; until the run is laid down it asks again, and gets the same."""
        assert self.runner is not None
        try:
            stages = Settings.parse(vars(self.runner.environment.parsed_options)).stages
        except ValueError as error:
            raise refusal(self.runner.environment, error) from error
        return _users(stages[0], stages, self._processes())

    def _wait_for_boundary(self, run: Run) -> None:
        t = time.monotonic_ns() - run.start
        soon = next((stage.end for stage in run.stages if t < stage.end <= t + LOOK_AHEAD), t)
        while (left := run.start + soon - time.monotonic_ns()) > 0:  # a busy loop wakes sleepers early
            gevent.sleep(left / SECOND)

    def _drained(self, run: Run) -> bool:
        """Past the end no user asks anything new; each leaves when it has its answer, or when patience ends."""
        assert self.runner is not None
        give_up = run.end + round((run.plan.grace or DEFAULT_STOP_TIMEOUT) * SECOND)
        looked = time.monotonic_ns()
        while self.runner.user_count and time.monotonic_ns() < min(give_up, looked + LOOK_AHEAD):
            gevent.sleep(0.05)
        return self.runner.user_count == 0 or time.monotonic_ns() >= give_up

    def _tell_late_workers(self, run: Run) -> None:
        assert self.runner is not None
        options = self.runner.environment.parsed_options
        assert options is not None
        plans.send(run.plan, options)

    def _processes(self) -> int:
        return max(1, getattr(self.runner, "worker_count", 1))


def _users(stage: Stage, stages: tuple[Stage, ...], processes: int) -> tuple[int, float]:
    before = stages[stage.index - 1].users if stage.index else 0
    return stage.users, float(min(max(1, abs(stage.users - before)), MAX_SPAWN_RATE * processes))
