"""Worker processes that end before their run, as the planning process notices them.

Locust gives the users of a lost worker to others, but no other process sends its share of an open loop's arrivals. A
worker is lost if it leaves during the run, or sends Locust no heartbeats for some seconds.
"""

from __future__ import annotations

import logging
import re
import time
from dataclasses import replace
from pathlib import Path

import gevent
from locust.runners import STATE_MISSING, STATE_RUNNING, STATE_SPAWNING, MasterRunner

from enginebench.records.files import blocks_of, requests_file
from enginebench.records.formatting import format_seconds
from enginebench.records.load import Rate
from enginebench.records.run import LostProcess
from enginebench.records.stage import SECOND, Nanoseconds
from loadtests.harness.schedule.rates import missing_arrivals
from loadtests.harness.users.run_state import RunState

logger = logging.getLogger(__name__)

CHECK_INTERVAL = 0.5  # seconds
T_SCHED = re.compile(rb'"t_sched":(\d+)')


class LostWorkers:
    """Keep `run.meta.lost` up to date. The arrivals that were not sent are counted when the run ends."""

    def __init__(self, run: RunState, runner: MasterRunner) -> None:
        self._run, self._runner = run, runner
        self._begun = indices_of_workers(runner)
        self._last_message: dict[str, Nanoseconds] = {}
        self._lost: dict[str, LostProcess] = {}

    @property
    def remaining(self) -> tuple[str, ...]:
        return tuple(worker for worker in self._begun if worker not in self._lost)

    def note_message(self, worker: str) -> None:
        self._last_message[worker] = self._now()

    def watch(self) -> None:
        """Look for lost workers until this greenlet is killed."""
        while True:
            if self._runner.state in {STATE_SPAWNING, STATE_RUNNING}:  # at the end of a run, workers may leave
                self._update(self._missing() | (self._begun.keys() - set(self._runner.clients)))
            gevent.sleep(CHECK_INTERVAL)

    def finish(self) -> None:
        self._update(self._missing())
        run, now = self._run, self._now()
        lost = []
        for process in self._lost.values():
            index = int(process.worker)
            last = last_scheduled(run.folder / requests_file(index), process.t)  # it sent some more as it ended
            missing = missing_arrivals(last, run.plan.share(index), run.meta.stages, run.arrival_times, now)
            lost.append(replace(process, t=last, arrivals=missing))
        run.meta = replace(run.meta, lost=tuple(lost))

    def _missing(self) -> set[str]:
        return {client.id for client in self._runner.clients.missing}

    def _update(self, gone: set[str]) -> None:
        for worker, index in self._begun.items():
            if worker in gone and worker not in self._lost:
                self._lose(worker, index)
            elif worker in self._lost and worker in self._runner.clients and worker not in gone:
                del self._lost[worker]
                logger.warning("Worker process %d answers again.", index)
        self._run.meta = replace(self._run.meta, lost=tuple(self._lost.values()))

    def _lose(self, worker: str, index: int) -> None:
        last = last_scheduled(self._run.folder / requests_file(index), self._last_message.get(worker, 0))
        self._lost[worker] = LostProcess(str(index), last, 0)
        stages = self._run.meta.stages
        is_open = bool(stages) and isinstance(stages[-1].load, Rate)
        consequence = "its share of the arrivals is not sent" if is_open else "its users go to the others"
        after = format_seconds(last / SECOND)
        logger.warning("Worker process %d was lost %s after the start of the run: %s.", index, after, consequence)

    def _now(self) -> Nanoseconds:
        return time.monotonic_ns() - self._run.start


def indices_of_workers(runner: MasterRunner) -> dict[str, int]:
    """Return the index of each worker that answers, by its id."""
    return {
        client: runner.get_worker_index(client)  # type: ignore[no-untyped-call]
        for client in runner.clients
        if runner.clients[client].state != STATE_MISSING
    }


def last_scheduled(file: Path, otherwise: Nanoseconds) -> Nanoseconds:
    """Return when the last request in a worker's file was due, or `otherwise` if the file is on another host."""
    try:
        return max((int(at) for block in blocks_of(file) for at in T_SCHED.findall(block)), default=0)
    except FileNotFoundError:
        return otherwise
