"""Locust's channel for the records of workers. In a process of its own: importing Locust patches the one that does.

Run after run of a page that stays open: test_page_orders.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from enginebench.settings.system import free_port

HOSTILE = """
import sys, zlib
from pathlib import Path
import gevent
from locust.env import Environment
from locust.rpc import Message, zmqrpc
from loadtests.harness.recording.transfer import answer
from loadtests.harness.users import worker_records

port, folder = int(sys.argv[1]), Path(sys.argv[2])
worker_records.PATIENCE, worker_records.MAX_SECONDS = 3.0, 3.0
own = folder.parent / "requests-good.jsonl"
own.write_text("{}")

def of(name, data):
    return lambda question: {"names": [name]} if question["file"] is None else {"data": data}

answers = {
    "good": lambda question: answer([own], question),
    "overwrites": of("x/../meta.json", zlib.compress(b"overwritten")),
    "bomb": of("requests-bomb.jsonl", zlib.compress(bytes(1 << 24))),
    "broken": of("requests-broken.jsonl", b"broken"),
    "mute": lambda question: None,
    "endless": of("requests-endless.jsonl", zlib.compress(bytes(1 << 20))),
}

def work(name):
    client = zmqrpc.Client("127.0.0.1", port, name)
    client.send(Message("client_ready", -1, name))
    while True:
        message = client.recv()
        if message.type == worker_records.ASK:
            gevent.sleep(0.05)
            client.send(Message(worker_records.ANSWER, answers[name](message.data), name))

runner = Environment().create_master_runner("127.0.0.1", port)
for name in answers:
    gevent.spawn(work, name)
while len(runner.clients.ready) < len(answers):
    gevent.sleep(0.05)
worker_records.gather(runner, folder)
runner.quit()
"""


def test_each_worker_is_treated_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "meta.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE, str(free_port()), str(folder)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "meta.json": "{}",
        "requests-good.jsonl": "{}",
    }
    for reason in (
        "The records of overwrites were not copied (it named a file that no worker writes).",
        "The records of bomb were not copied (a piece of a file is larger than a piece, or cut off).",
        "The records of broken were not copied (a piece of a file cannot be expanded).",
        "The records of mute were not copied (its answer cannot be read).",
        "No records arrived from 5 workers (bomb, broken, endless, mute, overwrites):",
    ):
        assert reason in done.stderr
    assert "Traceback" not in done.stderr
