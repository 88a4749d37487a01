"""Users that do not fit under this system's limits are refused before the run, with the way out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loadtests.harness.run.own_limits import SPARE

pytest.importorskip("resource", reason="limits on descriptors are POSIX")
ROOT = Path(__file__).parents[3]

CHECK = """
import resource, sys
from loadtests.harness.run.own_limits import check_users_fit
from enginebench.records.load import Rate, Users
from tests.support.records import plan
limit, users, processes = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, limit))
try:
    check_users_fit([plan(Users(1)), plan(Users(users)), plan(Rate(5000.0))], processes)
except ValueError as error:
    print(error)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
REFUSED = "400 users in one process need 500 open files each, and this system's hard limit is 256 (ulimit -Hn): "


@pytest.mark.parametrize(
    ("limit", "users", "processes", "expected"),
    [
        pytest.param(256, 400, 1, f"{REFUSED}raise it, or use --processes 3.", id="too many"),
        pytest.param(256, 400, 3, None, id="as many processes as it says"),
        pytest.param(256, 156, 1, None, id="they fit under the hard limit, not under the soft one"),
        pytest.param(SPARE, 1, 1, "(ulimit -Hn): raise it.", id="no number of processes helps"),
    ],
)
def test_users_that_do_not_fit(limit: int, users: int, processes: int, expected: str | None) -> None:
    command = [sys.executable, "-c", CHECK, str(limit), str(users), str(processes)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    *said, soft = done.stdout.splitlines()
    assert int(soft) == limit, "the soft limit is raised to the hard one"
    assert len(said) == (expected is not None)
    assert all(expected is not None and expected in sentence for sentence in said)
