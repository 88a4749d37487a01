"""The end of a run that cannot start or whose users cannot send: one sentence and exit code 2.

Locust logs an exception in a listener and goes on: users without a run start and fail one by one, a load shape never
ends, and the master does not notice a worker's failure. Here the exception ends the run, a worker tells its master, and
Locust's page shows the sentence.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

import gevent
from locust import events
from locust.env import Environment
from locust.event import EventHook
from locust.exception import InterruptTaskSet, RescheduleTask, StopTest, StopUser
from locust.runners import WorkerRunner

from enginebench.records.exit_codes import INVALID

logger = logging.getLogger(__name__)

MESSAGE = "enginebench_cannot_start"  # from a worker to its master: the sentence
REQUIRED = ("init", "test_start", "spawning_complete")

_environment: Environment | None = None
_last: str | None = None


def last_failure() -> str | None:
    """Return why the current or last run failed, in one sentence; `None` if it did not."""
    return _last


def forget() -> None:
    """Forget the failure of the last run, when a new one begins."""
    global _last
    _last = None


def refusal(environment: Environment, error: Exception) -> StopTest:
    """Return an exception to raise while a test starts: Locust prints the error's sentence and exits with code 2."""
    global _last
    environment.process_exit_code, _last = INVALID, str(error)
    return StopTest(str(error))


def end_run(environment: Environment, sentence: str) -> None:
    """End the run with the first such sentence; a worker asks its master to end it."""
    global _last
    runner, options = environment.runner, environment.parsed_options
    if _last is not None or runner is None:
        return
    environment.process_exit_code, _last = INVALID, sentence
    logger.error(sentence)
    if isinstance(runner, WorkerRunner):
        runner.send_message(MESSAGE, {"sentence": sentence})
        return
    runner.log_exception("enginebench", sentence, "")  # for the page
    gevent.spawn(runner.quit if options is not None and options.headless else runner.stop)


class RequiredEvent(EventHook):
    """An event of Locust's whose listeners must all succeed, including those in a user's own file."""

    def __init__(self, name: str, before: EventHook) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._name = name
        self._handlers = list(before._handlers)

    def fire(self, *, reverse: bool = False, **arguments: Any) -> None:
        for listener in self._handlers[::-1] if reverse else list(self._handlers):
            try:
                listener(**arguments)
            except (StopUser, RescheduleTask, InterruptTaskSet):
                raise
            except Exception as error:
                environment = arguments.get("environment", _environment)
                assert environment is not None
                if not isinstance(error, StopTest):
                    logger.warning("Exception in a listener of %s:\n%s", self._name, traceback.format_exc())
                    error = ValueError(f"The test cannot start: {describe(error)}")
                self._fail(environment, error)

    def _fail(self, environment: Environment, error: Exception) -> None:
        if self._name == "init":  # no run has begun
            logger.error(str(error))
            raise SystemExit(2) from error
        if isinstance(environment.runner, WorkerRunner):
            forget()
            end_run(environment, str(error))
        elif isinstance(error, StopTest):
            raise error
        else:
            raise refusal(environment, error) from error


def describe(error: BaseException) -> str:
    """Return text such as `"ValueError in my_file.py, line 7: no such prompt"`."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}: {error}"


for name in REQUIRED:
    setattr(events, name, RequiredEvent(name, getattr(events, name)))


@events.init.add_listener
def _know_the_environment(environment: Environment, **_: Any) -> None:
    global _environment
    _environment = environment
    if environment.runner is not None and not isinstance(environment.runner, WorkerRunner):
        environment.runner.register_message(MESSAGE, _take)


def _take(environment: Environment, msg: Any, **_: Any) -> None:
    end_run(environment, f"{msg.data['sentence']} (worker {msg.node_id})")
