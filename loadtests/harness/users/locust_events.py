"""Locust's events and messages, which begin and end the runs of this process.

The planning process (the only one, or Locust's master) prepares a run. Every process that has users writes their
requests as they end. However a run ends (by its plan, the Stop button, Ctrl-C, SIGTERM or a full disk), its files are
complete up to that moment.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Callable, Iterator
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
from locust.runners import MasterRunner, Runner, WorkerRunner

from enginebench.records.exit_codes import GOOD, INVALID, NOT_ENOUGH
from enginebench.records.files import read_requests
from enginebench.records.findings.load_generator import process_lost
from enginebench.records.load import Rate
from enginebench.records.stage import SECOND, Stage
from loadtests.harness.live.live_run import MESSAGE as COUNTS_MESSAGE
from loadtests.harness.live.metrics_server import MetricsServer, serve
from loadtests.harness.recording.otel import SpanSender, check_installed
from loadtests.harness.run import run_plan as plans
from loadtests.harness.run.duration import duration_of
from loadtests.harness.run.options import DEFAULT_STOP_TIMEOUT, add_options, read_options
from loadtests.harness.run.own_limits import check_users_fit, raise_priority
from loadtests.harness.run.prepare import prepare
from loadtests.harness.run.run_plan import RunPlan
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run_settings import RunSettings
from loadtests.harness.standard_names import restore_standard_names
from loadtests.harness.users import worker_records
from loadtests.harness.users.failure_watch import why_all_failed
from loadtests.harness.users.failures import describe, end_run, forget, last_failure, refusal
from loadtests.harness.users.locust_run import Run
from loadtests.harness.users.lost_workers import indices_of_workers
from loadtests.harness.users.planner import PROGRESS_MESSAGE, STAGE_MESSAGE
from loadtests.harness.users.shutdown import end_at_exit, end_with_the_parent, handle_signals
from loadtests.harness.users.timed_command import check

logger = logging.getLogger(__name__)
logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log a line per scrape

GC_THRESHOLDS = (20_000, 10, 100)  # for the three generations; requests leave few cycles
LAST_SCRAPE = 15.0  # seconds for which the exporter outlives its run, so that Prometheus sees how it ended
DEFAULT = Scenario()  # for a locustfile without a scenario
Read = TypeVar("Read")
# For every message that changes the number of users, Locust's workers build the whole argument parser once per option,
# which blocks the event loop for a tenth of a second when a stage begins. The result never changes.
argument_parser.default_args_dict = cache(argument_parser.default_args_dict)


class LocustProcess:
    """`scenario` is set when its file is loaded. `run` is the current one; from Locust's page, a process can begin
    several runs.

    The command line sets `--command` and the server that gets keys for all runs: Locust's page can name another server,
    which gets no keys, and must not be able to change a shell command.
    """

    def __init__(self) -> None:
        self.scenario = DEFAULT
        self.run: Run | None = None
        self.last: Run | None = None  # the current run, or the one before
        self._exporter: MetricsServer | None = None  # exporter of `last`
        self._spans: SpanSender | None = None  # span sender of `run`
        self._environment: Environment | None = None
        self._initialised = Event()
        self._command: str | None = None
        self._host = ""
        for event, listener in (
            (events.init_command_line_parser, self._add_options),
            (events.init, self._initialise),
            (events.test_start, self._begin),
            (events.user_error, self._user_failed),
            (events.test_stopping, self._stop),
            (events.test_stop, self._end),
            (events.quit, self._end),
        ):
            event.add_listener(listener)  # type: ignore[no-untyped-call]

    def take_scenario(self, scenario: Scenario) -> None:
        if self.scenario is not DEFAULT:
            sys.exit("one scenario at a time: give Locust a single file, with one user class that has a scenario.")
        self.scenario = scenario

    def _add_options(self, parser: Any, **_: Any) -> None:
        add_options(parser, self.scenario)

    def _initialise(self, environment: Environment, **_: Any) -> None:
        runner, options = environment.runner, environment.parsed_options
        assert runner is not None
        self._environment = environment
        self._command, self._host = getattr(options, "command", None), _host_of(environment)
        if isinstance(runner, MasterRunner):
            runner.register_message(PROGRESS_MESSAGE, self._take_progress)
            runner.register_message(COUNTS_MESSAGE, self._take_counts)
        elif isinstance(runner, WorkerRunner):
            runner.register_message(STAGE_MESSAGE, self._enter_stage)
            worker_records.register_worker(runner, lambda: self._finished_files(runner))
            if options is not None and options.processes:
                end_with_the_parent(runner)
        self._initialised.set()
        restore_standard_names()  # a second locustfile may have hidden another name
        hub = gevent.get_hub()
        # Locust logs a StopTest's message and stops; gevent would add a traceback.
        hub.NOT_ERROR += (StopTest,)
        # Timers count from the loop's last iteration, which was before all imports: --run-time would end seconds early.
        hub.loop.update_now()
        end_at_exit(runner, lambda: self.run is not None, self._end)
        handle_signals(environment)

    # The start of a run.

    def _begin(self, environment: Environment, **_: Any) -> None:
        self._initialised.wait()  # on a busy machine, a worker may receive the start while Locust creates its runner
        options, runner = environment.parsed_options, environment.runner
        assert options is not None
        assert runner is not None
        forget()
        raise_priority()
        try:
            values = vars(options) | {"command": self._command}
            scenario, settings = _in_thread(lambda: read_options(values, self.scenario))
            if settings.opentelemetry:
                check_installed()
            _in_thread(scenario.recorded)  # from now on it is cached
            if isinstance(runner, WorkerRunner):
                plan = plans.received(options)
                check_users_fit(plan.meta.plan, plan.meta.workers)
            else:
                plan = self._plan(environment, runner, scenario, settings)
                logger.info(duration_of(scenario).sentence())
                plans.send(plan, options)
                environment.stop_timeout = plan.grace or DEFAULT_STOP_TIMEOUT
            self.run = self.last = Run(environment, scenario, settings, plan)
            self._export(self.run)
            if self.run.planner is not None and settings.opentelemetry:
                self._spans = SpanSender(self.run.folder, self.run.traced, plan.start_wall)
        except (ValueError, OSError) as error:
            raise refusal(environment, error) from error
        # Imported modules are never garbage, and a collection that scans them blocks the event loop for 50 to 90 ms.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        environment.process_exit_code = None

    def _plan(self, environment: Environment, runner: Runner, scenario: Scenario, settings: RunSettings) -> RunPlan:
        options = environment.parsed_options
        assert options is not None
        stages = scenario.plan()
        if scenario.command is not None:
            check(scenario.command, stages[0])
        processes: tuple[int, ...] = (0,)
        hosts = 1
        if isinstance(runner, MasterRunner):  # the id of a worker is its host's name and a random suffix
            processes = tuple(sorted(indices_of_workers(runner).values()))
            hosts = max(1, len({client.id.rpartition("_")[0] for client in runner.clients.values()}))
        if hosts == 1:
            check_users_fit(stages, len(processes))
        return prepare(
            Path((environment.parsed_locustfiles or ["scenario"])[0]).stem,
            scenario,
            settings,
            _host_of(environment),
            stages,
            named=self._host,
            processes=processes,
            hosts=hosts,
            grace=float(options.stop_timeout or 0),
        )

    def _export(self, run: Run) -> None:
        """Raise `UserMistake` if the chosen address cannot be listened on."""
        if self._exporter is not None:
            self._exporter.close()
        self._exporter = None
        if run.planner is not None and run.settings.exporter is not None:
            self._exporter = serve(run.settings.exporter, run.planner.live, run.plan.start_wall / SECOND)

    def _user_failed(self, user_instance: Any, exception: Exception, **_: Any) -> None:
        """End the run if the first request cannot be made, or if the user that sends the arrivals fails."""
        run = self.run
        if run is None or run.generator is None or run.over:
            return
        if not run.generator.requests or isinstance(run.generator.stage.load, Rate):
            end_run(user_instance.environment, f"A user cannot send: {describe(exception)}")

    # Messages between Locust's master and its workers.

    def _take_progress(self, msg: Any, **_: Any) -> None:
        if self.run is not None and self.run.planner is not None:
            with _reading(msg):
                self.run.planner.take_progress(msg.node_id, msg.data)

    def _take_counts(self, msg: Any, **_: Any) -> None:
        if self.last is not None and self.last.planner is not None:  # the last counts come after the run's end
            with _reading(msg):
                self.last.planner.take_counts(msg.node_id, msg.data)

    def _enter_stage(self, msg: Any, **_: Any) -> None:
        if self.run is not None and self.run.generator is not None:
            self.run.generator.enter(msgspec.convert(msg.data["stage"], Stage))
            self.run.over = bool(msg.data["over"])

    def _finished_files(self, runner: Runner) -> tuple[Path, ...]:
        if self.run is not None:
            runner.stop()
        return self.last.files if self.last is not None else ()

    # The end of a run.

    def _stop(self, environment: Environment, **_: Any) -> None:
        # The last requests of a completed run have ended. An interrupted run stops at once, and its requests in flight
        # are recorded as cut off, unless --stop-timeout gives them time.
        if self.run is not None:
            environment.stop_timeout = self.run.plan.grace

    def _end(self, **_: Any) -> None:
        run, self.run, environment = self.run, None, self._environment
        if run is None:
            return
        run.end()
        assert environment is not None
        if run.planner is None:
            return
        if isinstance(environment.runner, MasterRunner):
            stopped = run.planner.workers if run.plan.meta.hosts > 1 else ()  # one host has one disk
            worker_records.gather(environment.runner, run.folder, stopped, run.plan.grace)
        if self._spans is not None:
            self._spans.finish()
            self._spans = None
        if last_failure() is None:  # otherwise the reason has been logged
            reason = why_all_failed(run.planner.live.document.outcomes, read_requests(run.folder))
            if reason is not None:
                logger.warning("All requests failed, most of them so: %s", reason)
        if run.meta.lost:
            environment.process_exit_code = INVALID
            logger.error("%s.", "; ".join(process_lost(lost).words for lost in run.meta.lost))
        if self._exporter is not None:  # while Locust's page stays open, the next load test needs the port
            gevent.spawn_later(LAST_SCRAPE, self._exporter.close)
            if environment.web_ui is None:
                self._exporter.wait_for_scrape(LAST_SCRAPE)
        search = run.planner.search
        if search is not None:
            print(search.sentence)
            if environment.process_exit_code is None:
                environment.process_exit_code = GOOD if search.state == "found" else NOT_ENOUGH


process = LocustProcess()


@contextmanager
def _reading(msg: Any) -> Iterator[None]:
    """Log a message that cannot be read, and go on: one worker of another version must not end the run."""
    try:
        yield
    except (LookupError, TypeError, ValueError, msgspec.MsgspecError):
        logger.error("A message of the worker %s cannot be read: is its enginebench as old as this one?", msg.node_id)


def _in_thread(read: Callable[[], Read]) -> Read:
    """Read outside of the event loop: a file of a million lines takes seconds, and Locust's master drops a worker that
    sends no heartbeats for three."""
    return gevent.get_hub().threadpool.apply(read)


def _host_of(environment: Environment) -> str:
    return environment.host or next((user.host for user in environment.user_classes if user.host), "")
