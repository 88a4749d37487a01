"""One run, from Locust's test_start to its test_stop: importing this module hangs it up on Locust's events.

The planning process (the only one, or Locust's master) asks the server what it is, names the run and lays down its
folder and `meta.json`. Every process that has users writes their requests as they end. Whatever ends the run (its plan,
the Stop button, Ctrl-C, SIGTERM, a full disk), the files are complete up to that moment.
"""

from __future__ import annotations

import atexit
import logging
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gevent
from locust import argument_parser, events
from locust.env import Environment
from locust.exception import StopTest
from locust.runners import STATE_INIT, MasterRunner, Runner, WorkerRunner

from loadtests.harness.calibration.result import of_this_host
from loadtests.harness.client.observation import Observation
from loadtests.harness.run import plan as plans
from loadtests.harness.run.host import clock_id, host_facts, versions
from loadtests.harness.run.options import DEFAULT_STOP_TIMEOUT, Settings, add_options, without_secrets
from loadtests.harness.run.plan import Plan
from loadtests.harness.run.recorder import Recorder
from loadtests.harness.run.run_id import new_run_id
from loadtests.harness.run.target import Target, Unfit
from loadtests.harness.run.telemetry import Scraper, Telemetry
from loadtests.harness.schedule.stages import SECOND, cut_stages, stage_at
from loadtests.harness.workload.workload import Workload
from records.record import RequestRecord, RunMeta, Stage, write_meta

logger = logging.getLogger(__name__)
logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log a line per scrape

UNLIMITED = 24 * 3600 * SECOND  # of a run without a shape and without --run-time, until it is stopped
OBSERVED = tuple({f.name for f in fields(Observation)} & {f.name for f in fields(RequestRecord)})
# For every message that changes the number of users, Locust's workers build the whole argument parser once per option:
# a tenth of a second in which the loop stands still, just when a stage begins. What it builds never changes.
argument_parser.default_args_dict = cache(argument_parser.default_args_dict)

STAMPS = ("t_sched", "t_send", "t_headers", "t_first", "t_first_out", "t_last", "t_end", "read_first")


class Run:
    """This process's part in the run that is on. Users take their number from it and give it what they observed."""

    def __init__(self, environment: Environment, settings: Settings, plan: Plan) -> None:
        runner = environment.runner
        assert runner is not None
        self.settings = settings
        self.plan = plan
        self.start = plan.start_here()
        self.stages = plan.meta.stages
        self.end = self.start + self.stages[-1].end
        self.plans = not isinstance(runner, WorkerRunner)
        self.folder = plan.folder_here(settings.runs)
        self._worker = getattr(runner, "worker_index", 0)  # a master has none, and needs none
        self._users = 0
        self._requests = 0

        if not self.plans and not (self.folder / "meta.json").exists():  # a worker on another host
            self.folder.mkdir(parents=True, exist_ok=True)
            write_meta(self.folder, plan.meta)
        makes_load = not isinstance(runner, MasterRunner)
        self._recorder = Recorder(self.folder / f"requests-{self._worker}.jsonl") if makes_load else None
        self._telemetry = Telemetry(
            Recorder(self.folder / ("telemetry.jsonl" if self.plans else f"telemetry-{self._worker}.jsonl")),
            self.start,
            Scraper(plan.meta.url, settings.headers, settings.insecure) if self.plans else None,
            (lambda: int(runner.user_count)) if makes_load else None,
            self._recorder,
        )
        self._telemetry.start()

    def next_user(self) -> int:
        """A number that no other user of the run has; over all workers they run from 0 without gaps."""
        local, self._users = self._users, self._users + 1
        workers = self.plan.meta.workers
        if self._worker < workers:
            return local * workers + self._worker
        return 1_000_000 * self._worker + local  # a worker that joined after the plan was made

    def is_over(self, at: int) -> bool:
        """Whether the plan has ended at `at`, an absolute reading of the monotonic clock."""
        return at >= self.end

    def stage(self, at: int) -> Stage:
        t = at - self.start
        return stage_at(self.stages, t) or self.stages[0 if t < 0 else -1]

    def record(self, observation: Observation) -> None:
        values: dict[str, Any] = {name: getattr(observation, name) for name in OBSERVED}
        for name in STAMPS:
            if values[name] is not None:
                values[name] -= self.start
        stage = self.stage(observation.t_sched)
        self._requests += 1
        assert self._recorder is not None, "Locust's master has no users"
        self._recorder.write(
            RequestRecord(
                request_id=f"{self._worker}-{self._requests}",
                worker=str(self._worker),
                scenario=self.plan.meta.scenario,
                stage=stage.index,
                users=stage.users,
                **values,
            )
        )

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
        self._telemetry.stop()
        if self.plans:
            ended = time.monotonic_ns() - self.start
            if ended < self.stages[-1].end:
                meta = replace(self.plan.meta, stages=cut_stages(self.stages, ended))
                try:
                    write_meta(self.folder, meta)
                except OSError as error:
                    logger.error("Cannot write to %s (%s).", self.folder, error)
            logger.info("This run is in %s", self.folder)


_current: Run | None = None


def current_run() -> Run | None:
    """The run that is on in this process; `None` before the first and between two."""
    return _current


def refusal(environment: Environment, error: Exception) -> StopTest:
    """Raise what this gives, and Locust says the error's sentence, stops, and leaves with exit code 2."""
    environment.process_exit_code = 2
    return StopTest(str(error))


@events.init_command_line_parser.add_listener
def _add_options(parser: Any) -> None:
    add_options(parser, for_locust=True)


@events.test_start.add_listener
def _begin(environment: Environment, **_: Any) -> None:
    global _current
    assert environment.parsed_options is not None
    try:
        settings = Settings.parse(vars(environment.parsed_options))
        if isinstance(environment.runner, WorkerRunner):
            plan = plans.received(environment.parsed_options)
        else:
            plan = _plan(environment, settings)
            plans.send(plan, environment.parsed_options)
            environment.stop_timeout = plan.grace or DEFAULT_STOP_TIMEOUT
        _current = Run(environment, settings, plan)
    except (ValueError, Unfit, OSError) as error:
        raise refusal(environment, error) from error
    environment.process_exit_code = None


@events.test_stopping.add_listener
def _stop(environment: Environment, **_: Any) -> None:
    # A run that reaches its end has let its last requests finish by now. One that is stopped before stops at once, and
    # what was in flight is recorded as cut off, unless --stop-timeout asks for patience.
    if _current is not None:
        environment.stop_timeout = _current.plan.grace


@events.test_stop.add_listener
@events.quit.add_listener
def _end(**_: Any) -> None:
    global _current
    run, _current = _current, None
    if run is not None:
        run.close()


@events.init.add_listener
def _settle_the_loop(**_: Any) -> None:
    hub = gevent.get_hub()
    # Locust answers a StopTest with its message and stops; gevent would add the traceback that nobody needs.
    hub.NOT_ERROR += (StopTest,)
    # Timers count from the loop's last turn, which was before all imports: --run-time would end seconds early.
    hub.loop.update_now()


@events.init.add_listener
def _end_at_exit(environment: Environment, **_: Any) -> None:
    def end() -> None:
        if _current is not None and environment.runner is not None:
            environment.runner.user_greenlets.kill(timeout=5)  # each records its request as cut off
        _end()

    atexit.register(end)


@events.init.add_listener
def _obey_signals(environment: Environment, **_: Any) -> None:
    hub = gevent.get_hub()
    runner, options = environment.runner, environment.parsed_options
    assert runner is not None
    headless = options is not None and options.headless and not options.worker

    def end(error: BaseException) -> None:
        assert hub.parent is not None, "the hub's parent is the main greenlet, where Locust waits for Ctrl-C"
        hub.loop.run_callback(hub.parent.throw, error)

    # Python raises Ctrl-C wherever it finds the process: in a user's request, or in a scrape, which then die with a
    # traceback. It belongs to the main greenlet, which waits for it everywhere but here: before the workers are there.
    def interrupt() -> None:
        end(SystemExit(2) if headless and runner.state == STATE_INIT else KeyboardInterrupt())

    # Without its page, Locust handles SIGTERM only after a shape has ended: until then it would die in mid-sentence.
    def terminate() -> None:
        if runner.shape_greenlet or runner.state == STATE_INIT:
            interrupt()

    gevent.signal_handler(signal.SIGINT, interrupt)
    if headless:
        gevent.signal_handler(signal.SIGTERM, terminate)


def _plan(environment: Environment, settings: Settings) -> Plan:
    """Ask the server, lay down the run's folder. Raises `Unfit`, `ValueError` or `OSError`, each with a sentence."""
    runner, options = environment.runner, environment.parsed_options
    assert runner is not None
    assert options is not None
    url = environment.host or runner.user_classes[0].host or ""
    if "@" in urlsplit(url).netloc:
        raise ValueError("an address with a password in it would end up in reports: give a key with --api-key instead.")
    with Target(url, settings.headers, settings.insecure) as target:
        model = target.model(settings.model)
        engine = target.engine()
        workload = _workload(settings, model, engine, target)
    stages = settings.stages
    if environment.shape_class is None:
        end = round(options.run_time * SECOND) if options.run_time else UNLIMITED
        stages = (Stage(0, runner.target_user_count, 0, 0, end, end),)
    label = settings.label or (engine or {}).get("name") or urlsplit(url).netloc
    start, at = time.monotonic_ns(), datetime.now(UTC)
    folder = _new_folder(settings, label, at)
    meta = RunMeta(
        run_id=folder.name,
        started_at=at.isoformat(timespec="milliseconds"),
        scenario=Path((environment.parsed_locustfiles or ["scenario"])[0]).stem,
        url=url,
        model=model,
        stages=stages,
        workload=workload.facts() | {"think_time": settings.think_time, "request_timeout": settings.request_timeout},
        engine=engine,
        host=host_facts(),
        versions=versions("enginebench", "locust", "gevent"),
        label=label,
        command=without_secrets(sys.argv),
        commit=_commit(),
        workers=(workers := getattr(runner, "worker_count", 1)),
        hosts=(hosts := _hosts(runner)),
        client_error=_client_error(workers) if hosts == 1 else (),  # nobody calibrates several hosts together
    )
    write_meta(folder, meta)
    grace = float(options.stop_timeout or 0)
    return Plan(meta, workload, str(folder), clock_id(), start, grace)


def _workload(settings: Settings, model: str, engine: dict[str, Any] | None, target: Target) -> Workload:
    features = (engine or {}).get("features") or ()
    return Workload(
        model=model,
        endpoint=settings.endpoint,
        streamed=settings.streamed,
        prompt_tokens=settings.prompt_tokens,
        shared_prefix_tokens=settings.shared_prefix_tokens,
        output_tokens=settings.output_tokens,
        temperature=settings.temperature,
        ignore_eos=settings.ignore_eos == "yes" or (settings.ignore_eos == "auto" and "ignore_eos" in features),
        seed=settings.seed,
        word_tokens=target.word_tokens(model, settings.endpoint),
    )


def _new_folder(settings: Settings, label: str, at: datetime) -> Path:
    run_id = settings.run_id or new_run_id(label, at)
    folder, again = (settings.runs / run_id).absolute(), 1
    while (folder / "meta.json").exists():  # started again from the web page under the same --run-id
        again += 1
        folder = (settings.runs / f"{run_id}-{again}").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _hosts(runner: Runner) -> int:
    """On how many machines users will run. Locust's workers call themselves by their host's name and a random one."""
    if not isinstance(runner, MasterRunner):
        return 1
    return max(1, len({client.id.rpartition("_")[0] for client in runner.clients.values()}))


def _client_error(processes: int) -> tuple[tuple[float, float], ...]:
    """What `enginebench calibrate` last found on this host, lightest load first; nothing where it was never run."""
    calibration = of_this_host(processes)
    if calibration is None:
        return ()
    return tuple(sorted((cell.tokens_per_second, cell.ttft.p99) for cell in calibration.cells))


def _commit() -> str | None:
    """The commit of this tool, when it runs from a clone."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
