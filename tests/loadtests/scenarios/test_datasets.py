"""A dataset in a real run: every row once before any row twice, over users, stages and processes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.support.loadtests.locust_process import start
from tests.support.servers.scripted import Script, ScriptedServer


@pytest.mark.parametrize(
    ("processes", "rows", "load", "sent"),
    [
        pytest.param(1, 50, ("--stages", "4x2,12x2,2x2"), 100, id="users who come and go, row after row"),
        pytest.param(
            2, 1000, ("--rate", "20x2,40x2"), 80, id="an open loop of two processes, whose stages go on where one ended"
        ),
    ],
)
def test_every_row_once_before_any_row_twice(
    tmp_path: Path, processes: int, rows: int, load: tuple[str, ...], sent: int
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"Question {n}?"}) + "\n" for n in range(rows)))
    with ScriptedServer(Script(ttft=0.1)) as server:  # the users of two processes do not come to the 1,000th row
        start(server, tmp_path, *load, "--dataset", str(path), processes=processes).finish()
        asked = Counter(body["messages"][0]["content"] for body in server.bodies)
    assert len(server.bodies) > sent
    assert max(asked.values()) - min(asked.values()) <= 1
    assert len(asked) == min(rows, len(server.bodies))
