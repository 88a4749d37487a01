"""A run from Locust's test_start to its test_stop: importing this module adds listeners to Locust's events.

The planning process (the only one, or Locust's master) prepares the run. Every process that has users writes their
requests as they end. Whatever ends the run (its plan, the Stop button, Ctrl-C, SIGTERM, a full disk), the files are
complete up to that moment.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import gevent
import msgspec
from gevent.event import Event
from locust import argument_parser, events
from locust.env import Environment
from locust.exception import StopTest
from locust.runners import STATE_INIT, MasterRunner, Runner, WorkerRunner

from enginebench.records.files import read_requests
from enginebench.records.load import Rate, Users
from enginebench.records.stage import SECOND, Extent, Stage, StagePlan
from loadtests.harness.live.exporter import MetricsServer, serve
from loadtests.harness.live.live_run import MESSAGE as COUNTS_MESSAGE
from loadtests.harness.live.live_run import LiveRun
from loadtests.harness.run import plan as plans
from loadtests.harness.run.duration import duration_of
from loadtests.harness.run.options import DEFAULT_STOP_TIMEOUT, add_options, read_options
from loadtests.harness.run.own_limits import check_users_fit, raise_priority
from loadtests.harness.run.plan import RunPlan
from loadtests.harness.run.prepare import prepare
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run import RunSettings
from loadtests.harness.standard_names import restore_standard_names
from loadtests.harness.users import worker_records
from loadtests.harness.users.conductor import PROGRESS_MESSAGE, STAGE_MESSAGE
from loadtests.harness.users.failure_watch import why_all_failed
from loadtests.harness.users.failures import describe, end_run, forget, last_failure, refusal
from loadtests.harness.users.lost_workers import PRESENCE, sentence
from loadtests.harness.users.run_process import RunProcess
from loadtests.harness.users.timed_command import complete

logger = logging.getLogger(__name__)
logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log a line per scrape

GC_THRESHOLDS = (20_000, 10, 100)  # of the three generations; requests leave few cycles
PARENT_CHECK = 0.5  # seconds
LAST_SCRAPE = 15.0  # seconds for which the exporter outlives its run, so that Prometheus sees how it ended
FIRST_REQUEST = 20.0  # seconds after the first request was due, after which a run has failed
Read = TypeVar("Read")
UNLIMITED = 24 * 3600.0  # seconds of a run without a shape and without --run-time, until it is stopped
# For every message that changes the number of users, Locust's workers build the whole argument parser once per option:
# the event loop is blocked for a tenth of a second, just when a stage begins. What is built never changes.
argument_parser.default_args_dict = cache(argument_parser.default_args_dict)

scenario: Scenario | None = None
"""The scenario of this process, once its file has been loaded."""


def take_scenario(given: Scenario | None) -> None:
    """A user class with this scenario has been defined."""
    global scenario
    if scenario is not None:
        sys.exit("one scenario at a time: give Locust a single file, with one user class that has a scenario.")
    scenario = given


_current: RunProcess | None = None
_live: LiveRun | None = None
_exporter: MetricsServer | None = None
"""Of the current run, or the last one."""

_files: tuple[Path, ...] = ()
"""Those that this process wrote in the last run."""

_initialised = Event()
_command: str | None = None
"""The shell command of the command line. Locust's page can change options, but must not change this one."""

_host = ""
"""The server that the command line names. Locust's page can name another one, which gets no keys."""


def current_run() -> RunProcess | None:
    """The current run in this process; `None` before the first and between two."""
    return _current


@events.init_command_line_parser.add_listener
def _add_options(parser: Any) -> None:
    add_options(parser, scenario or Scenario())


@events.init.add_listener
def _register_messages(environment: Environment, **_: Any) -> None:
    global _command, _host
    runner, _command = environment.runner, getattr(environment.parsed_options, "command", None)
    _host = _host_of(environment)
    if isinstance(runner, MasterRunner):
        runner.register_message(PROGRESS_MESSAGE, _take_report)
        runner.register_message(COUNTS_MESSAGE, _take_counts)
        runner.register_message(PRESENCE, _meet)
    elif isinstance(runner, WorkerRunner):
        runner.register_message(STAGE_MESSAGE, _enter_stage)
        worker_records.register_worker(runner, lambda: _finished_files(runner))
    _initialised.set()


def _finished_files(runner: Runner) -> tuple[Path, ...]:
    if _current is not None:
        runner.stop()
    return _files


def _take_report(msg: Any, **_: Any) -> None:
    if _current is not None and _current.conductor is not None:
        with _reading(msg):
            _current.conductor.take_report(msg.node_id, msg.data)


def _take_counts(msg: Any, **_: Any) -> None:
    if _live is not None:
        with _reading(msg):
            _live.take(msg.node_id, msg.data)
    if _current is not None and _current.lost_workers is not None:
        _current.lost_workers.hear(msg.node_id)


def _meet(msg: Any, **_: Any) -> None:
    if _current is not None and _current.lost_workers is not None:
        with _reading(msg):
            _current.lost_workers.meet(msg.node_id, msg.data["pid"])


@contextmanager
def _reading(msg: Any) -> Iterator[None]:
    """A message that is not as workers of this program send it concerns its worker alone."""
    try:
        yield
    except (LookupError, TypeError, ValueError, msgspec.MsgspecError):
        logger.error("A message of the worker %s cannot be read: is its enginebench as old as this one?", msg.node_id)


def _enter_stage(msg: Any, **_: Any) -> None:
    data: Mapping[str, Any] = msg.data
    if _current is not None and _current.tracker is not None:
        _current.enter(msgspec.convert(data["stage"], Stage), bool(data["over"]))


@events.test_start.add_listener
def _begin(environment: Environment, **_: Any) -> None:
    global _current
    _initialised.wait()  # on a busy machine, a worker may receive the start while Locust is still creating its runner
    options, runner = environment.parsed_options, environment.runner
    assert options is not None
    assert runner is not None
    forget()
    raise_priority()
    try:
        given = vars(options) | {"command": _command}
        in_force, settings = _in_thread(lambda: read_options(given, scenario or Scenario()))
        _in_thread(in_force.recorded)  # from here on it is cached
        if in_force.command is not None and not isinstance(runner, WorkerRunner):
            complete(in_force.command)
        if isinstance(runner, WorkerRunner):
            plan = plans.received(options)
            check_users_fit(plan.meta.plan, plan.meta.workers)
        else:
            plan = _plan(environment, runner, in_force, settings)
            if environment.shape_class is not None:
                logger.info(duration_of(in_force).sentence())
            plans.send(plan, options)
            environment.stop_timeout = plan.grace or DEFAULT_STOP_TIMEOUT
        _current = RunProcess(environment, in_force, settings, plan)
        _export(_current)
        _collect_rarely()
    except (ValueError, OSError) as error:
        raise refusal(environment, error) from error
    environment.process_exit_code = None
    if not isinstance(runner, WorkerRunner):
        gevent.spawn(_expect_a_request, environment, _current)


def _expect_a_request(environment: Environment, run: RunProcess) -> None:
    """End a run in which users were started and none of them sends anything."""
    began, limit = time.monotonic(), run.first_request_due() + FIRST_REQUEST
    while run is _current and not (run.sending or run.over):
        if (waited := time.monotonic() - began) > limit:
            said = f"No request was sent in {waited:.0f} s: see the messages above, or those of the workers."
            end_run(environment, said)
        gevent.sleep(PARENT_CHECK)


@events.user_error.add_listener
def _user_failed(user_instance: Any, exception: Exception, **_: Any) -> None:
    """One whose first request cannot be made is like a run that cannot start. So is one that sends for all."""
    run = _current
    if run is not None and not run.over and (not run.sending or isinstance(run.stage.load, Rate)):
        end_run(user_instance.environment, f"A user cannot send: {describe(exception)}")


def _in_thread(read: Callable[[], Read]) -> Read:
    """Files of a million lines take seconds to read. A worker without heartbeats for three is taken for dead."""
    return gevent.get_hub().threadpool.apply(read)


def _export(run: RunProcess) -> None:
    """Raises `UserMistake` where the chosen address cannot be listened on."""
    global _live, _exporter
    if _exporter is not None:
        _exporter.close()
    _live, _exporter = run.live, None
    if run.live is not None and run.settings.exporter is not None:
        _exporter = serve(run.settings.exporter, run.live, run.plan.start_wall / SECOND)


def _collect_rarely() -> None:
    """Imported modules are never garbage, and a collection that scans them blocks the event loop for 50 to 90 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _plan(environment: Environment, runner: Runner, in_force: Scenario, settings: RunSettings) -> RunPlan:
    options = environment.parsed_options
    assert options is not None
    stages = in_force.plan()
    if environment.shape_class is None:  # a locustfile without a shape: Locust's --users and --run-time apply
        seconds = float(options.run_time or UNLIMITED)
        stages = (StagePlan(Users(runner.target_user_count), Extent(0), Extent(seconds), seconds),)
    workers, hosts = getattr(runner, "worker_count", 1), _hosts(runner)
    if hosts == 1:
        check_users_fit(stages, workers)
    return prepare(
        Path((environment.parsed_locustfiles or ["scenario"])[0]).stem,
        in_force,
        settings,
        _host_of(environment),
        stages,
        named=_host,
        workers=workers,
        hosts=hosts,
        grace=float(options.stop_timeout or 0),
    )


def _host_of(environment: Environment) -> str:
    return environment.host or next((user.host for user in environment.user_classes if user.host), "")


def _hosts(runner: Runner) -> int:
    """On how many machines users will run. The id of a Locust worker is its host's name and a random suffix."""
    if not isinstance(runner, MasterRunner):
        return 1
    return max(1, len({client.id.rpartition("_")[0] for client in runner.clients.values()}))


@events.test_stopping.add_listener
def _stop(environment: Environment, **_: Any) -> None:
    # The last requests of a completed run have finished by now. An interrupted run stops at once, and requests in
    # flight are recorded as cut off, unless --stop-timeout gives them time.
    if _current is not None:
        environment.stop_timeout = _current.plan.grace


@events.test_stop.add_listener
@events.quit.add_listener
def _end(environment: Environment | None = None, **_: Any) -> None:
    global _current, _files
    run, _current = _current, None
    if run is not None:
        run.close()
        _files = run.files
        if environment is not None and isinstance(environment.runner, MasterRunner):
            worker_records.gather(environment.runner, run.folder)
        _say_why_all_failed(run)
        if run.lost and environment is not None:
            environment.process_exit_code = 2
            logger.error("%s.", sentence(run.lost))
        if _exporter is not None:  # a page that stays open must not keep the next load test from its port
            gevent.spawn_later(LAST_SCRAPE, _exporter.close)
            if environment is not None and environment.web_ui is None:
                _exporter.wait_for_scrape(LAST_SCRAPE)
        search = run.conductor.search if run.conductor is not None else None
        if search is not None and environment is not None:
            print(search.sentence)
            if environment.process_exit_code is None:
                environment.process_exit_code = 0 if search.state == "found" else 1


def _say_why_all_failed(run: RunProcess) -> None:
    """A run that was ended for its failures has said it."""
    if run.live is None or last_failure() is not None:
        return
    reason = why_all_failed(run.live.document.outcomes, read_requests(run.folder))
    if reason is not None:
        logger.warning("All requests failed, most of them so: %s", reason)


@events.init.add_listener
def _prepare_the_process(**_: Any) -> None:
    restore_standard_names()  # a second locustfile may have hidden another one
    hub = gevent.get_hub()
    # Locust logs a StopTest's message and stops; gevent would add a traceback.
    hub.NOT_ERROR += (StopTest,)
    # Timers count from the loop's last iteration, which was before all imports: --run-time would end seconds early.
    hub.loop.update_now()


@events.init.add_listener
def _end_at_exit(environment: Environment, **_: Any) -> None:
    def end() -> None:
        if _current is not None and environment.runner is not None:
            environment.runner.user_greenlets.kill(timeout=5)  # each records its request as cut off
        _end(environment)

    atexit.register(end)


@events.init.add_listener
def _end_with_the_parent(environment: Environment, **_: Any) -> None:
    """Locust's workers notice only after a minute that the master that forked them was killed, and until then they
    load the server, perhaps in another run."""
    runner, options, parent = environment.runner, environment.parsed_options, os.getppid()

    def watch(runner: WorkerRunner) -> None:
        while os.getppid() == parent:
            gevent.sleep(PARENT_CHECK)
        logger.error("The process that started this worker was killed: this worker ends, too.")
        runner.quit()

    if isinstance(runner, WorkerRunner) and options is not None and options.processes:
        gevent.spawn(watch, runner)


@events.init.add_listener
def _handle_signals(environment: Environment, **_: Any) -> None:
    hub = gevent.get_hub()
    runner, options = environment.runner, environment.parsed_options
    assert runner is not None
    headless = options is not None and options.headless and not options.worker

    def end(error: BaseException) -> None:
        assert hub.parent is not None, "the hub's parent is the main greenlet, where Locust waits for Ctrl-C"
        hub.loop.run_callback(hub.parent.throw, error)

    # Python raises Ctrl-C in whichever greenlet runs, such as a user's request, which then ends with a traceback. The
    # main greenlet must get it. It handles it at all times but one: while it waits for workers to connect.
    def interrupt() -> None:
        end(SystemExit(2) if headless and runner.state == STATE_INIT else KeyboardInterrupt())

    # Without its page, Locust handles SIGTERM only after a shape has ended; until then, the process would exit.
    def terminate() -> None:
        if runner.shape_greenlet or runner.state == STATE_INIT:
            interrupt()

    gevent.signal_handler(signal.SIGINT, interrupt)
    if headless:
        gevent.signal_handler(signal.SIGTERM, terminate)
