"""The preparation of a run: query the server, name the run, and write its folder and plan."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime

from enginebench.records.files import write_meta
from enginebench.records.run import RunEvent, RunMeta
from enginebench.records.stage import StagePlan
from loadtests.harness.client.authentication import KEY_VARIABLE
from loadtests.harness.client.server_address import Address, is_same_server, with_scheme
from loadtests.harness.run.fitting import fitted, within_context
from loadtests.harness.run.host import clock_id, commit_here, host_facts, versions
from loadtests.harness.run.options import PROMPT_SET, REPEAT, SERVER_EVENTS, command_of_run
from loadtests.harness.run.own_limits import raise_priority
from loadtests.harness.run.results_folder import new_folder
from loadtests.harness.run.run_plan import RunPlan
from loadtests.harness.run.saved_calibration import load, path_here
from loadtests.harness.run.target import Target, label_of
from loadtests.harness.scenario import Scenario
from loadtests.harness.schedule.stages import in_seconds
from loadtests.harness.settings.run_settings import RunSettings

logger = logging.getLogger(__name__)


def prepare(
    scenario_name: str,
    scenario: Scenario,
    settings: RunSettings,
    url: str,
    stages: tuple[StagePlan, ...],
    processes: tuple[int, ...],
    hosts: int,
    grace: float,
    named: str | None = None,
) -> RunPlan:
    """Prepare a run of `processes` against `url`. If `named` is not `None`, keys are sent only if `url` is the same
    server.

    Raises `UserMistake` or `OSError`.
    """
    url = with_scheme(url)
    Address.parse(url).check(scenario.endpoint)
    with_keys = is_same_server(url, url if named is None else with_scheme(named))
    access = settings.access(url, scenario.endpoint, with_keys=with_keys)
    if not with_keys:
        logger.warning("No key and no --header is sent to %s: the command line names %s.", url, named or "none")
    if access.withheld is not None:
        logger.warning(
            "%s is not sent to %s, which is not this machine and has no https. A key in %s is sent to any server.",
            access.withheld,
            url,
            KEY_VARIABLE,
        )
    with Target(url, access) as target:
        workload, engine = fitted(target, scenario, settings)
        startup = (engine or {}).get("startup") or {}
        engine = engine and {name: fact for name, fact in engine.items() if name != "startup"}
        quality = target.quality(workload.model, (engine or {}).get("dtype")) if scenario.quality else None
    label = label_of(settings.label, engine, url)
    at = datetime.now(UTC)
    stages = in_seconds(within_context(stages, scenario, workload.context), scenario.seed)
    folder = new_folder(settings, label, at)
    prompt_set = "" if scenario.seed else os.environ.get(PROMPT_SET, folder.name)
    workload = replace(workload, prompt_set=prompt_set)
    facts = {
        "ignore_eos": workload.sampling.to_full_length,
        "prompt_set": prompt_set,
        "prompt_length_measured": workload.source.length_measured,
        "max_tokens_field": workload.max_tokens_field,
        "context": workload.context,
        "class_objectives": {kind.name: kind.slo for kind in scenario.classes if kind.slo},
    }
    meta = RunMeta(
        run_id=folder.name,
        started_at=at.isoformat(timespec="milliseconds"),
        scenario=scenario_name,
        url=url,
        model=workload.model,
        plan=stages,
        workload=replace(scenario, **asdict(workload.sampling)).facts() | facts,
        engine=engine,
        host=host_facts() | {"niceness": raise_priority()},
        versions=versions("enginebench", "locust", "gevent"),
        label=label,
        command=command_of_run(),
        repeat=int(os.environ.get(REPEAT, 0)),
        commit=commit_here(),
        startup=startup,
        workers=len(processes),
        hosts=hosts,
        quality=quality,
        client_error=_client_error(len(processes)) if hosts == 1 else (),  # several hosts are not calibrated together
    )
    start, start_wall = time.monotonic_ns(), time.time_ns()
    instants = ((what, os.environ.get(variable)) for what, variable in SERVER_EVENTS.items())
    meta = replace(meta, events=tuple(RunEvent(int(at) - start, what) for what, at in instants if at))
    write_meta(folder, meta)
    return RunPlan(meta, workload, str(folder), clock_id(), start, start_wall, grace, with_keys, processes)


def _client_error(processes: int) -> tuple[tuple[float, float, float], ...]:
    """Return the last result of `enginebench calibrate` on this host, lowest load first; nothing if it never ran."""
    calibration = load(path_here(processes))
    if calibration is None:
        return ()
    return tuple(sorted((c.tokens_per_second, c.run_delay or 0.0, c.ttft.p99) for c in calibration.cells))
