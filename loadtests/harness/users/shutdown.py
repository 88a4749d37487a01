"""Early ends of a process: Ctrl-C, SIGTERM, its own exit, and the end of the process that started it."""

from __future__ import annotations

import atexit
import logging
import os
import signal
from collections.abc import Callable

import gevent
from locust.env import Environment
from locust.runners import STATE_INIT, Runner, WorkerRunner

logger = logging.getLogger(__name__)

PARENT_CHECK = 0.5  # seconds


def end_at_exit(runner: Runner, running: Callable[[], bool], end: Callable[[], None]) -> None:
    """Call `end` when the process exits; if a run is `running`, each user first records its request as cut off."""

    def at_exit() -> None:
        if running():
            runner.user_greenlets.kill(timeout=5)
        end()

    atexit.register(at_exit)


def end_with_the_parent(runner: WorkerRunner) -> None:
    """End this worker when the master that forked it is killed. Locust would notice only after a minute, while the
    worker loads the server, perhaps during another run."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            gevent.sleep(PARENT_CHECK)
        logger.error("The process that started this worker was killed: this worker ends, too.")
        runner.quit()

    gevent.spawn(watch)


def handle_signals(environment: Environment) -> None:
    hub = gevent.get_hub()
    runner, options = environment.runner, environment.parsed_options
    assert runner is not None
    headless = options is not None and options.headless and not options.worker

    def end(error: BaseException) -> None:
        assert hub.parent is not None, "the hub's parent is the main greenlet, where Locust waits for Ctrl-C"
        hub.loop.run_callback(hub.parent.throw, error)

    # Python raises Ctrl-C in the greenlet that runs, such as a user's request, which then ends with a traceback. The
    # main greenlet must get it, and handles it except while it waits for workers to connect.
    def interrupt() -> None:
        end(SystemExit(2) if headless and runner.state == STATE_INIT else KeyboardInterrupt())

    # Without its page, Locust handles SIGTERM only after a shape has ended; until then, the process would exit.
    def terminate() -> None:
        if runner.shape_greenlet or runner.state == STATE_INIT:
            interrupt()

    gevent.signal_handler(signal.SIGINT, interrupt)
    if headless:
        gevent.signal_handler(signal.SIGTERM, terminate)
