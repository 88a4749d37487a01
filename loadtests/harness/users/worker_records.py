"""Locust's channel, over which the records of workers on other hosts come to the master (`recording/transfer.py`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import gevent
from gevent.queue import Empty, Full, Queue
from locust.runners import MasterRunner, WorkerRunner

from enginebench.records.formatting import counted, format_bytes
from loadtests.harness.recording.transfer import BadAnswer, Message, answer, fetch

logger = logging.getLogger(__name__)

ASK, ANSWER = "enginebench_ask_for_records", "enginebench_records"
PATIENCE = 30.0  # seconds without an answer after which a worker is given up
MAX_SECONDS = 3600.0  # seconds after which one that answers is given up, too


def gather(runner: MasterRunner, folder: Path) -> None:
    """Ask every worker that is there for its records, and write them into the run's folder."""
    clients = runner.clients
    workers = [client.id for client in (*clients.ready, *clients.spawning, *clients.running)]
    answers: dict[str, Queue[Any]] = {worker: Queue(1) for worker in workers}

    def take(msg: Any, **_: Any) -> None:
        if msg.node_id in answers:
            with suppress(Full):  # nobody has asked
                answers[msg.node_id].put_nowait(msg.data)

    def ask(worker: str, question: Message) -> Any:
        runner.send_message(ASK, question, client_id=worker)
        return answers[worker].get(timeout=PATIENCE)

    runner.register_message(ANSWER, take)
    there = {path.name for path in folder.iterdir()}
    fetches = {worker: gevent.spawn(_fetched, worker, folder, there, partial(ask, worker)) for worker in workers}
    received = {worker: greenlet.get() for worker, greenlet in fetches.items()}
    del runner.custom_messages[ANSWER]  # the next run of a page that stays open has a listener of its own
    if total := sum(filter(None, received.values())):
        logger.info("Records of workers on other hosts: %s", format_bytes(total))
    if missing := sorted(worker for worker, size in received.items() if size is None):
        who = f"{counted(len(missing), 'worker')} ({', '.join(missing)})"
        logger.warning("Of %s no records arrived: copy requests-*.jsonl from there into the run's folder.", who)


def _fetched(worker: str, folder: Path, there: set[str], ask: Callable[[Message], Any]) -> int | None:
    """The bytes received of one worker; `None` if it is given up."""
    try:
        with gevent.Timeout(MAX_SECONDS, Empty):
            return fetch(folder, there, ask)
    except Empty:
        return None
    except (OSError, BadAnswer) as error:
        logger.error("The records of %s stay there (%s).", worker, error)
        return None


def register_worker(runner: WorkerRunner, finished: Callable[[], tuple[Path, ...]]) -> None:
    """`finished` ends the run of this worker if it goes on, and returns the files that it wrote."""

    def reply(msg: Any, **_: Any) -> None:
        runner.send_message(ANSWER, answer(finished(), msg.data))

    runner.register_message(ASK, reply, concurrent=True)  # a run takes a moment to end
