"""A locustfile may be called as a standard package is: both can be imported, in Locust and by others in the process."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.loadtests.locust_process import CONCURRENT, LOCUST, ROOT, start
from tests.support.servers.scripted import ScriptedServer

PROBE = """
import concurrent.futures

with concurrent.futures.ThreadPoolExecutor() as pool:
    assert pool.submit(sum, (1, 2)).result() == 3
import concurrent
import loadtests.concurrent
from loadtests.concurrent import SCENARIO, User

assert concurrent.__file__ != loadtests.concurrent.__file__
assert not hasattr(concurrent, "SCENARIO")
print(f"concurrent.futures works, beside {SCENARIO.load[0].label} from {loadtests.concurrent.__file__}")
"""


@pytest.mark.parametrize("folder", ["", "loadtests"], ids=["the root", "beside the file"])
def test_the_standard_concurrent_package_is_still_there(tmp_path: Path, folder: str) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    scenario = os.path.relpath(CONCURRENT, ROOT / folder)
    command = [LOCUST, "-f", f"{scenario},{probe}", "--list"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / folder)
    assert done.returncode == 0, done.stderr
    assert f"concurrent.futures works, beside 10 users from {CONCURRENT}" in done.stdout


OWN = '''"""Somebody's own scenario, named as they like."""

from loadtests.harness.scenario import Scenario, users
from loadtests.harness.users.locustfile import locust_classes

import queue

SCENARIO = Scenario(load=users("2"), stage_seconds=1.0)

User, Stages = locust_classes(SCENARIO)
assert queue.Queue(maxsize=1).empty()
'''


def test_somebodys_own_file_called_queue_runs(tmp_path: Path) -> None:
    own = tmp_path / "queue.py"
    own.write_text(OWN)
    with ScriptedServer() as server:
        locust = start(server, tmp_path, scenario=own)
        output = locust.wait()
    assert locust.process.returncode == 0, output
    assert "Traceback" not in output
    assert (locust.meta.scenario, locust.meta.stages[0].label) == ("queue", "2 users")
    assert len(locust.records) == len(server.bodies) > 10
