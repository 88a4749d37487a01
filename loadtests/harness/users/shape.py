"""The stages of a run as Locust's load shape, which every locustfile gets automatically."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import gevent
from locust import LoadTestShape, events
from locust.env import Environment
from locust.runners import WorkerRunner

from enginebench.records.load import Load, Users
from enginebench.records.stage import SECOND, Nanoseconds
from enginebench.settings.schema import UserMistake
from loadtests.harness.run import run_plan as plans
from loadtests.harness.run.options import DEFAULT_STOP_TIMEOUT, read_options
from loadtests.harness.users import locust_events
from loadtests.harness.users.failures import refusal
from loadtests.harness.users.locust_run import Run

LOOK_AHEAD = 1.0  # seconds after which Locust asks a shape again
LOCUST_OPTIONS = {"num_users": "users", "spawn_rate": "spawn-rate", "run_time": "run-time"}
MAX_SPAWN_RATE = 100  # users per second and process; beyond it Locust warns that its heartbeats may starve


class Stages(LoadTestShape):
    """Follow the stages of the run, then let the last requests finish."""

    _count = 0
    _rate = 1

    def tick(self) -> tuple[int, float] | None:
        run = locust_events.process.run
        if run is None:
            return self._before_the_start()
        assert run.planner is not None
        assert self.runner is not None
        options = self.runner.environment.parsed_options
        assert options is not None
        plans.send(replace(run.plan, meta=run.meta), options)  # for workers that join late
        planner = run.planner
        planner.changed.wait(LOOK_AHEAD)
        planner.changed.clear()
        if run.over and self._drained(run, planner.stage.end or 0):
            return None
        return self._users(planner.stage.load)

    def _before_the_start(self) -> tuple[int, float]:
        """Return the load of the first stage, with which Locust starts the test."""
        assert self.runner is not None
        try:
            scenario, _ = read_options(vars(self.runner.environment.parsed_options), locust_events.process.scenario)
            first = scenario.plan()[0]
        except ValueError as error:
            raise refusal(self.runner.environment, error) from error
        return self._users(first.load)

    def _drained(self, run: Run, end: Nanoseconds) -> bool:
        """Return whether all users have stopped after the last stage, each with its last answer or at the limit."""
        assert self.runner is not None
        limit = run.start + end + round((run.plan.grace or DEFAULT_STOP_TIMEOUT) * SECOND)
        looked = time.monotonic_ns()
        while self.runner.user_count and time.monotonic_ns() < min(limit, looked + round(LOOK_AHEAD * SECOND)):
            gevent.sleep(0.05)
        return self.runner.user_count == 0 or time.monotonic_ns() >= limit

    def _users(self, load: Load) -> tuple[int, float]:
        processes = max(1, getattr(self.runner, "worker_count", 1))
        count = load.count if isinstance(load, Users) else processes  # open loop: one user per process sends arrivals
        if count != self._count:  # the rate also applies to users who leave: they leave within a second
            self._count, self._rate = count, max(count, self._count)
        return count, float(min(self._rate, MAX_SPAWN_RATE * processes))


@events.init.add_listener
def _follow_the_scenario(environment: Environment, **_: Any) -> None:
    options = vars(environment.parsed_options) if environment.parsed_options is not None else {}
    ineffective = next((flag for name, flag in LOCUST_OPTIONS.items() if options.get(name)), None)
    if ineffective is not None and not isinstance(environment.runner, WorkerRunner):
        variable = f"LOCUST_{ineffective.replace('-', '_').upper()}"
        mistake = (
            f"--{ineffective} has no effect: users and times come from --stages or --rate; leave it out, as well as "
            f"{variable} and `{ineffective}` in Locust's configuration files."
        )
        raise refusal(environment, UserMistake(mistake))
    if environment.shape_class is not None:
        name = type(environment.shape_class).__name__
        mistake = f"the load shape {name} has no effect: users and times come from --stages or --rate; remove it."
        raise refusal(environment, UserMistake(mistake))
    environment.shape_class = shape = Stages()  # type: ignore[no-untyped-call]
    shape.runner = environment.runner
