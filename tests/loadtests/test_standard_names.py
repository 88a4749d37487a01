"""A locustfile may be called as a standard module is, and lie anywhere: both can be imported, in every process.

A run of such a file: test_own_scenario.py.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.loadtests.locust_process import CONCURRENT, LOCUST, ROOT

PROBE = """
import concurrent.futures

with concurrent.futures.ThreadPoolExecutor() as pool:
    assert pool.submit(sum, (1, 2)).result() == 3
import concurrent
import loadtests.concurrent
from loadtests.concurrent import User

assert concurrent.__file__ != loadtests.concurrent.__file__
assert not hasattr(concurrent, "User")
print(f"concurrent.futures works, beside {User.scenario.plan()[0].label} from {loadtests.concurrent.__file__}")
"""

ROOMS = ("enginebench", "loadtests")


def listed(command: list[str], folder: Path) -> str:
    done = subprocess.run([*command, "--list"], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_standard_concurrent_package_is_still_there_beside_the_file(tmp_path: Path) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    output = listed([LOCUST, "-f", f"{CONCURRENT.name},{probe}"], CONCURRENT.parent)
    assert f"concurrent.futures works, beside 1 user from {CONCURRENT}" in output


def test_where_it_is_installed_too(tmp_path: Path) -> None:
    """As in a wheel: the scenarios lie in site-packages, which is first on no path."""
    installed = tmp_path / "lib" / "site-packages"
    for room in ROOMS:
        shutil.copytree(ROOT / room, installed / room)
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    scenario = installed / "loadtests" / "concurrent.py"
    # Locust by its own `site`, so that the copy is a part of `purelib`, as after `pip install`.
    code = (
        "import sys, sysconfig; paths = sysconfig.get_paths(); "
        f"sysconfig.get_paths = lambda *_, **__: paths | {{'purelib': {str(installed)!r}}}; "
        f"sys.path.insert(0, {str(installed)!r}); from locust.main import main; main()"
    )
    output = listed([sys.executable, "-c", code, "-f", f"{scenario},{probe}"], tmp_path)
    assert f"concurrent.futures works, beside 1 user from {scenario}" in output


NEIGHBOUR = """
import concurrent
import queue

assert not hasattr(concurrent, "User") and not hasattr(queue, "User")
print("the standard library is found")
"""


def test_a_scenario_beside_one_that_is_called_so_is_not_taken_in(tmp_path: Path) -> None:
    """Locust puts the file's folder and the current one first on the path."""
    (tmp_path / "queue.py").write_text("raise AssertionError('imported in place of the standard library')")
    shutil.copy(CONCURRENT, tmp_path)
    own = tmp_path / "own.py"
    own.write_text(OWN + NEIGHBOUR.replace("import queue", "import queue, sched"))
    assert "the standard library is found" in listed([LOCUST, "-f", "own.py"], tmp_path)


OWN = """
from loadtests.harness.scenario import Scenario, users
from loadtests.harness.users.user import ModelUser

import queue


class User(ModelUser):
    scenario = Scenario(stages=users("2"), stage_seconds=1.0)


assert queue.Queue(maxsize=1).empty()
"""
