"""Worker processes that end before their run: in the planning process, which says so at once.

Locust gives the users of a lost worker to others, but its share of an open loop's arrivals is sent by nobody. A worker
on this machine is missed as soon as it has ended, another one when it has sent no heartbeats for some seconds.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import gevent
import psutil
from locust.runners import STATE_MISSING, STATE_RUNNING, STATE_SPAWNING, MasterRunner, WorkerRunner

from enginebench.records.formatting import counted, format_seconds
from enginebench.records.load import Rate
from enginebench.records.run import LostProcess
from enginebench.records.stage import SECOND, Nanoseconds, Stage
from loadtests.harness.users.lost_share import Share, last_scheduled

logger = logging.getLogger(__name__)

PRESENCE = "enginebench_process"  # from a worker to its master
LOOK = 0.5  # seconds between two looks at who is there


def introduce(runner: WorkerRunner) -> None:
    """Tell the master which of its child processes this worker is, if it is one."""
    runner.send_message(PRESENCE, {"pid": os.getpid()})


class LostWorkers:
    """Of one run of so many `processes`. `times` are the seconds from a stage's start to each arrival of all of them,
    `changed` gets what is known of the lost ones whenever that changes."""

    def __init__(
        self,
        runner: MasterRunner,
        processes: int,
        start: Nanoseconds,
        folder: Path,
        stages: Callable[[], tuple[Stage, ...]],
        times: Callable[[Stage], Iterator[float]],
        changed: Callable[[tuple[LostProcess, ...]], None],
    ) -> None:
        self._runner, self._processes, self._start, self._folder = runner, processes, start, folder
        self._stages, self._times, self._changed = stages, times, changed
        self._begun: dict[str, int] = {
            client: runner.get_worker_index(client)  # type: ignore[no-untyped-call]
            for client in runner.clients
            if runner.clients[client].state != STATE_MISSING
        }
        self._children: dict[str, psutil.Process] = {}
        self._heard: dict[str, Nanoseconds] = {}
        self._lost: dict[str, Share] = {}

    def hear(self, worker: str) -> None:
        """A message of a worker has come."""
        self._heard[worker] = self._now()

    def meet(self, worker: str, pid: int) -> None:
        """It says who it is; what is no child of this process runs elsewhere."""
        for child in psutil.Process().children():
            if child.pid == pid:
                self._children[worker] = child

    def watch(self) -> None:
        """A greenlet's; without end."""
        while True:
            if self._runner.state in {STATE_SPAWNING, STATE_RUNNING}:  # afterwards, workers leave as they should
                self._look(lambda worker: worker not in self._runner.clients)
            gevent.sleep(LOOK)

    def finish(self, as_planned: bool) -> None:
        """The run ends. The processes of one that was stopped by hand may have ended already, as they should."""
        if as_planned or self._runner.clients.missing:
            self._look(lambda worker: False)

    def _look(self, has_left: Callable[[str], bool]) -> None:
        missing, known = {client.id for client in self._runner.clients.missing}, bool(self._lost)
        for worker, index in self._begun.items():
            gone = worker in missing or has_left(worker) or self._has_ended(worker)
            if gone and worker not in self._lost:
                self._lose(worker, index)
            elif worker in self._lost and worker in self._runner.clients and not gone:
                del self._lost[worker]
                logger.warning("Worker process %d answers again.", index)
        if self._lost or known:
            stages, now = self._stages(), self._now()
            self._changed(tuple(share.lost(stages, now) for share in self._lost.values()))

    def _has_ended(self, worker: str) -> bool:
        child = self._children.get(worker)
        try:
            return child is not None and (not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    def _lose(self, worker: str, index: int) -> None:
        last = last_scheduled(self._folder / f"requests-{index}.jsonl", self._heard.get(worker, 0))
        self._lost[worker] = Share(index, self._processes, last, self._times)
        stages = self._stages()
        loop = "nobody sends its share of the arrivals" if _is_open(stages) else "its users go to the others"
        after = format_seconds(last / SECOND)
        logger.warning("Worker process %d was lost %s after the start of the run: %s.", index, after, loop)

    def _now(self) -> Nanoseconds:
        return time.monotonic_ns() - self._start


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


def _is_open(stages: tuple[Stage, ...]) -> bool:
    return any(isinstance(stage.load, Rate) for stage in stages[-1:])
