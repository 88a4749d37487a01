"""The transfer of records from workers on other hosts, over Locust's channel (`recording/transfer.py`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import gevent
from gevent.queue import Empty, Full, Queue
from locust.runners import MasterRunner, WorkerRunner

from enginebench.records.files import requests_file
from enginebench.records.formatting import counted, format_bytes
from loadtests.harness.recording.transfer import BadAnswer, Message, answer, fetch

logger = logging.getLogger(__name__)

ASK, ANSWER = "enginebench_ask_for_records", "enginebench_records"
PATIENCE = 30.0  # seconds that a worker has for each answer
MAX_SECONDS = 3600.0  # seconds that a worker has for all of its files


def gather(runner: MasterRunner, folder: Path, stopped: Iterable[str] = (), grace: float = 0.0) -> None:
    """Ask every connected worker for its records, and write them into the run's folder.

    A worker that has stopped its users is not connected, in Locust's view, until the `grace` of its last requests is
    over; only then does it answer. `stopped` are workers that may be in this state.
    """
    clients = runner.clients
    connected = [client.id for client in (*clients.ready, *clients.spawning, *clients.running)]
    workers = list(dict.fromkeys([*connected, *stopped]))
    answers: dict[str, Queue[Any]] = {worker: Queue(1) for worker in workers}

    def take(msg: Any, **_: Any) -> None:
        if msg.node_id in answers:
            with suppress(Full):  # an answer without a question
                answers[msg.node_id].put_nowait(msg.data)

    def ask(worker: str, question: Message) -> Any:
        runner.send_message(ASK, question, client_id=worker)
        return answers[worker].get(timeout=PATIENCE + grace)

    runner.register_message(ANSWER, take)
    present = {path.name for path in folder.iterdir()}
    fetches = {worker: gevent.spawn(_fetch, worker, folder, present, partial(ask, worker)) for worker in workers}
    received = {worker: greenlet.get() for worker, greenlet in fetches.items()}
    del runner.custom_messages[ANSWER]  # the next run from Locust's page registers its own listener
    if total := sum(filter(None, received.values())):
        logger.info("Records of workers on other hosts: %s", format_bytes(total))
    if missing := sorted(worker for worker, size in received.items() if size is None):
        who = f"{counted(len(missing), 'worker')} ({', '.join(missing)})"
        logger.warning("No records arrived from %s: copy their %s into the run's folder.", who, requests_file("*"))


def _fetch(worker: str, folder: Path, present: set[str], ask: Callable[[Message], Any]) -> int | None:
    """Return the bytes received from one worker; `None` if its transfer failed."""
    try:
        with gevent.Timeout(MAX_SECONDS, Empty):
            return fetch(folder, present, ask)
    except Empty:
        return None
    except (OSError, BadAnswer) as error:
        logger.error("The records of %s were not copied (%s).", worker, error)
        return None


def register_worker(runner: WorkerRunner, finished: Callable[[], tuple[Path, ...]]) -> None:
    """Answer the master's questions. `finished` ends this worker's run if necessary, and returns its files."""

    def reply(msg: Any, **_: Any) -> None:
        runner.send_message(ANSWER, answer(finished(), msg.data))

    runner.register_message(ASK, reply, concurrent=True)  # ending a run takes a moment
