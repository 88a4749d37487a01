"""The two sides of Locust's channel over which the records of workers on other hosts come to the master.

When the load has ended, the master says which files its folder has. A worker on the same disk finds its own among them
and has nothing to send.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from locust.runners import MasterRunner, WorkerRunner

from loadtests.harness.recording.transfer import GOT, PIECE, SEND, RecordReceiver, RecordSender, TransferFailed
from records.formatting import counted, format_bytes

logger = logging.getLogger(__name__)

_receiver: RecordReceiver | None = None
_sender: RecordSender | None = None


def register_master(runner: MasterRunner) -> None:
    def take(msg: Any, **_: Any) -> None:
        if _receiver is None:  # it was given up
            return
        try:
            if _receiver.take(msg.node_id, msg.data):
                runner.send_message(GOT, client_id=msg.node_id)
        except OSError as error:
            logger.error("Records of %s cannot be written here (%s).", msg.node_id, error)

    runner.register_message(PIECE, take)


def gather(runner: MasterRunner, folder: Path) -> None:
    """Ask every worker that is there for its records, and write them into the run's folder."""
    global _receiver
    clients = runner.clients
    workers = {client.id for client in (*clients.ready, *clients.spawning, *clients.running)}
    receiver = _receiver = RecordReceiver(folder, workers)
    runner.send_message(SEND, {"have": [path.name for path in folder.iterdir()]})
    receiver.wait()
    _receiver = None
    if receiver.received:
        logger.info("Records of workers on other hosts: %s", format_bytes(receiver.received))
    if receiver.missing:
        who = f"{counted(len(receiver.missing), 'worker')} ({', '.join(sorted(receiver.missing))})"
        logger.warning("Of %s no records arrived: copy them from there and use `enginebench collect`.", who)


def register_worker(runner: WorkerRunner, finished: Callable[[], tuple[Path, ...]]) -> None:
    """`finished` ends the run of this worker if it goes on, and returns the files that it wrote."""

    def send(msg: Any, **_: Any) -> None:
        global _sender
        files = [path for path in finished() if path.name not in msg.data["have"]]
        _sender = RecordSender(files, lambda data: runner.send_message(PIECE, data))
        try:
            _sender.run()
        except (TransferFailed, OSError) as error:
            logger.error("The records stay on this host, in %s (%s).", files[0].parent, error)

    def acknowledged(msg: Any, **_: Any) -> None:
        if _sender is not None:
            _sender.acknowledged()

    runner.register_message(SEND, send, concurrent=True)  # it waits for acknowledgements
    runner.register_message(GOT, acknowledged)
