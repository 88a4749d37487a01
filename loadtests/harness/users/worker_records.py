"""The records of workers that share no disk with Locust's master come to it over Locust's own channel, in compressed
pieces, when the load has ended: never while anything is measured.

The master asks each worker for its files, piece by piece: that it asks for the next one is the acknowledgement of the
last. A worker keeps its own copy. What one that died leaves behind is what `enginebench collect` is for.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gevent
from gevent.queue import Empty, Queue
from locust.runners import MasterRunner, WorkerRunner

from records.formatting import counted, format_bytes

logger = logging.getLogger(__name__)

ASK, ANSWER = "enginebench_ask_for_records", "enginebench_records"
PIECE_BYTES = 1 << 20  # before compression: what a process holds in memory of a worker's file
PATIENCE = 30.0  # seconds without an answer after which a worker is given up
LEVEL = 1  # of zlib: records shrink to a fifth of their size at about 100 MB/s

Message = dict[str, Any]
"""A question is the name of a file and a position in it, or no name: for the names. An answer has `names`, a piece of
the file as `data`, or the `error` that kept the worker from reading it."""


def answer(files: Sequence[Path], question: Message) -> Message:
    """A worker's, of the `files` that it wrote."""
    if question["file"] is None:
        return {"names": [path.name for path in files]}
    try:
        with next(path for path in files if path.name == question["file"]).open("rb") as file:
            file.seek(question["at"])
            return {"data": zlib.compress(file.read(PIECE_BYTES), LEVEL)}
    except OSError as error:
        return {"error": str(error)}


def fetch(folder: Path, there: set[str], ask: Callable[[Message], Message]) -> int:
    """Write a worker's files into `folder` but for those that are `there`: one on the same disk has nothing to send.

    A file has its own name once it is whole. Returns the bytes received. Raises `Empty` where the worker does not
    answer, and `OSError`.
    """
    received = 0
    for name in ask({"file": None})["names"]:
        if name in there:
            continue
        path = folder / Path(name).name
        unfinished = path.with_name(f"{path.name}.partial")
        with unfinished.open("wb") as file:
            piece = bytes(PIECE_BYTES)
            while len(piece) == PIECE_BYTES:
                said = ask({"file": name, "at": file.tell()})
                if "error" in said:
                    raise OSError(said["error"])
                piece = zlib.decompress(said["data"])
                file.write(piece)
            received += file.tell()
        unfinished.replace(path)
    return received


def gather(runner: MasterRunner, folder: Path) -> None:
    """Ask every worker that is there for its records, and write them into the run's folder."""
    clients = runner.clients
    workers = [client.id for client in (*clients.ready, *clients.spawning, *clients.running)]
    answers: dict[str, Queue[Message]] = {worker: Queue() for worker in workers}

    def take(msg: Any, **_: Any) -> None:
        if msg.node_id in answers:
            answers[msg.node_id].put(msg.data)

    def ask(worker: str, question: Message) -> Message:
        runner.send_message(ASK, question, client_id=worker)
        return answers[worker].get(timeout=PATIENCE)

    runner.register_message(ANSWER, take)
    there = {path.name for path in folder.iterdir()}
    fetches = {worker: gevent.spawn(_fetched, worker, folder, there, partial(ask, worker)) for worker in workers}
    received = {worker: greenlet.get() for worker, greenlet in fetches.items()}
    if total := sum(filter(None, received.values())):
        logger.info("Records of workers on other hosts: %s", format_bytes(total))
    if missing := sorted(worker for worker, size in received.items() if size is None):
        who = f"{counted(len(missing), 'worker')} ({', '.join(missing)})"
        logger.warning("Of %s no records arrived: copy them from there and use `enginebench collect`.", who)


def _fetched(worker: str, folder: Path, there: set[str], ask: Callable[[Message], Message]) -> int | None:
    try:
        return fetch(folder, there, ask)
    except Empty:
        return None
    except OSError as error:
        logger.error("The records of %s stay there (%s).", worker, error)
        return None


def register_worker(runner: WorkerRunner, finished: Callable[[], tuple[Path, ...]]) -> None:
    """`finished` ends the run of this worker if it goes on, and returns the files that it wrote."""

    def reply(msg: Any, **_: Any) -> None:
        runner.send_message(ANSWER, answer(finished(), msg.data))

    runner.register_message(ASK, reply, concurrent=True)  # a run takes a moment to end
