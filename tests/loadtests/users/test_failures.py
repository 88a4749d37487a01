"""A run that cannot start, or whose users cannot send, ends within seconds, with a sentence and exit code 2."""

from pathlib import Path

import pytest

from tests.support.loadtests.locust_process import start, with_page
from tests.support.loadtests.run_command import run_here
from tests.support.servers.scripted import ScriptedServer

SCENARIO = """
from locust import events
from locust.runners import WorkerRunner

from loadtests.harness.scenario import Scenario, users
from loadtests.harness.users.user import ModelUser


class User(ModelUser):
    scenario = Scenario(stages=users("4"), stage_seconds=30.0)
    {user}

{listener}
"""

LISTENER = """
@events.{event}.add_listener
def listen(**given):
    {condition}
    raise ValueError("no such prompt file")
"""
ONLY_IN_A_WORKER = 'if not isinstance(given["environment"].runner, WorkerRunner): return'
SAID = "ValueError in {file}, line 17: no such prompt file"


def scenario(folder: Path, event: str = "", user: str = "pass", condition: str = "") -> Path:
    own = folder / "own.py"
    listener = LISTENER.format(event=event, condition=condition) if event else ""
    own.write_text(SCENARIO.format(user=user, listener=listener))
    return own


@pytest.mark.parametrize(
    ("event", "condition", "processes"),
    [
        pytest.param("init", "", 1, id="before there is a run"),
        pytest.param("spawning_complete", "", 1, id="when the users are there"),
        pytest.param("test_start", "", 2, id="in the master"),
        pytest.param("test_start", ONLY_IN_A_WORKER, 2, id="in a worker only"),
    ],
)
def test_an_exception_in_a_listener_ends_the_run(tmp_path: Path, event: str, condition: str, processes: int) -> None:
    """One at the start of a single process is in the two last tests."""
    own = scenario(tmp_path, event, condition=condition)
    with ScriptedServer() as server:
        locust = start(server, tmp_path, scenario=own, processes=processes)
        output = locust.wait()
    assert locust.process.returncode == 2, output
    assert f"The test cannot start: {SAID.format(file=own)}" in output


def test_a_user_that_cannot_ask_ends_the_run(tmp_path: Path) -> None:
    own = scenario(tmp_path, user='def next_request(self, stage): raise LookupError("nothing to ask")')
    with ScriptedServer() as server:
        locust = start(server, tmp_path, scenario=own)
        output = locust.wait()
    assert locust.process.returncode == 2, output
    assert "A user cannot send: LookupError" in output
    assert "nothing to ask" in output
    assert not server.bodies


def test_locusts_page_says_it(tmp_path: Path) -> None:
    own = scenario(tmp_path, "test_start")
    with ScriptedServer() as server, with_page(server, tmp_path, scenario=own) as (locust, page):
        for _ in range(2):
            answer = page.post("/swarm", data={"host": server.url, "stages": "2"}).json()
            assert answer["success"] is False
            assert answer["message"] == f"The test cannot start: {SAID.format(file=own)}"
            locust.wait_until(lambda: page.get("/stats/requests").json()["state"] == "stopped")
        nowhere = page.post("/swarm", data={"host": "http://127.0.0.1:9", "stages": "2"}).json()
        assert not nowhere["success"]
        assert "cannot reach http://127.0.0.1:9" in nowhere["message"]


def test_enginebench_run_ends_with_the_sentence(tmp_path: Path) -> None:
    own = scenario(tmp_path, "test_start")
    with ScriptedServer() as server:
        done = run_here("run", own, "--url", server.url, "--runs", tmp_path / "runs")
    assert done.exit_code == 2
    assert f"The test cannot start: {SAID.format(file=own)}" in done.stderr
    assert "Traceback" not in done.stderr
