"""A dataset in a real run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.support.loadtests.locust_process import start
from tests.support.servers.scripted import Script, ScriptedServer


def test_an_open_loop_of_two_processes_sends_every_row_once_before_any_twice(tmp_path: Path) -> None:
    """Its stages go on where one ended. Users who come and go: test_concurrent.py."""
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"Question {n}?"}) + "\n" for n in range(1000)))
    with ScriptedServer(Script(ttft=0.1)) as server:
        start(server, tmp_path, "--rate", "20x2,40x2", "--dataset", str(path), processes=2).finish()
        asked = Counter(body["messages"][0]["content"] for body in server.bodies)
    assert len(asked) == len(server.bodies) > 80
