"""Worker processes that end before their run: in the planning process, which says so at once.

Locust gives the users of a lost worker to others, but its share of an open loop's arrivals is sent by nobody. A worker
on this machine is missed as soon as it has ended, another one when it has sent no heartbeats for some seconds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace

import gevent
import psutil
from locust.runners import STATE_MISSING, STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

from enginebench.records.formatting import counted, format_seconds
from enginebench.records.load import Rate
from enginebench.records.run import LostProcess
from enginebench.records.stage import SECOND, Nanoseconds
from loadtests.harness.users.lost_share import last_scheduled, missing_arrivals
from loadtests.harness.users.run_facts import RunFacts

logger = logging.getLogger(__name__)

PRESENCE = "enginebench_process"  # from a worker to its master
LOOK = 0.5  # seconds between two looks at who is there


def introduce(runner: WorkerRunner) -> None:
    """Tell the master which of its child processes this worker is, if it is one."""
    runner.send_message(PRESENCE, {"pid": os.getpid()})


class LostWorkers:
    """Keep `run.meta.lost` up to date. How many arrivals were not sent is counted when the run ends."""

    def __init__(self, run: RunFacts, runner: MasterRunner) -> None:
        self._run, self._runner = run, runner
        self._begun: dict[str, int] = {
            client: runner.get_worker_index(client)  # type: ignore[no-untyped-call]
            for client in runner.clients
            if runner.clients[client].state != STATE_MISSING
        }
        self._children: dict[str, psutil.Process] = {}
        self._heard: dict[str, Nanoseconds] = {}
        self._lost: dict[str, LostProcess] = {}

    def hear(self, worker: str) -> None:
        """Note that a message of the worker has come."""
        self._heard[worker] = self._now()

    def meet(self, worker: str, pid: int) -> None:
        """Note which process the worker is, if it runs on this machine."""
        for child in psutil.Process().children():
            if child.pid == pid:
                self._children[worker] = child

    def watch(self) -> None:
        """Look for lost workers, without end."""
        while True:
            if self._runner.state in {STATE_SPAWNING, STATE_RUNNING}:  # afterwards, workers leave as they should
                self._look(lambda worker: worker not in self._runner.clients)
            gevent.sleep(LOOK)

    def finish(self, as_planned: bool) -> None:
        """The run ends. The processes of one that was stopped by hand may have ended already, as they should."""
        if as_planned or self._runner.clients.missing:
            self._look(lambda worker: False)
        run, now = self._run, self._now()
        run.meta = replace(
            run.meta,
            lost=tuple(
                replace(
                    lost,
                    arrivals=missing_arrivals(lost, run.plan.meta.workers, run.meta.stages, run.arrival_times, now),
                )
                for lost in self._lost.values()
            ),
        )

    def _look(self, has_left: Callable[[str], bool]) -> None:
        missing = {client.id for client in self._runner.clients.missing}
        for worker, index in self._begun.items():
            gone = worker in missing or has_left(worker) or self._has_ended(worker)
            if gone and worker not in self._lost:
                self._lose(worker, index)
            elif worker in self._lost and worker in self._runner.clients and not gone:
                del self._lost[worker]
                logger.warning("Worker process %d answers again.", index)
        self._run.meta = replace(self._run.meta, lost=tuple(self._lost.values()))

    def _has_ended(self, worker: str) -> bool:
        child = self._children.get(worker)
        try:
            return child is not None and (not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    def _lose(self, worker: str, index: int) -> None:
        last = last_scheduled(self._run.folder / f"requests-{index}.jsonl", self._heard.get(worker, 0))
        self._lost[worker] = LostProcess(str(index), last, 0)
        stages = self._run.meta.stages
        is_open = bool(stages) and isinstance(stages[-1].load, Rate)
        consequence = "its share of the arrivals is not sent" if is_open else "its users go to the others"
        after = format_seconds(last / SECOND)
        logger.warning("Worker process %d was lost %s after the start of the run: %s.", index, after, consequence)

    def _now(self) -> Nanoseconds:
        return time.monotonic_ns() - self._run.start


def sentence(lost: tuple[LostProcess, ...]) -> str:
    """`Worker process 1 was lost 3.20 s after the start of the run, and 57 arrivals of its share were not sent`"""
    parts = []
    for process in lost:
        arrivals = counted(process.arrivals, "arrival")
        were = "was" if process.arrivals == 1 else "were"
        unsent = f", and {arrivals} of its share {were} not sent" if process.arrivals else ""
        after = format_seconds(process.t / SECOND)
        parts.append(f"Worker process {process.worker} was lost {after} after the start of the run{unsent}")
    return "; ".join(parts)
