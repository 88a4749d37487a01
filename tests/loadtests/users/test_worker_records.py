"""Locust's channel for the records of workers. In a process of its own: importing Locust patches the one that does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from loadtests.harness.run.host import free_port

TWICE = """
import sys
from pathlib import Path
from locust.env import Environment
from loadtests.harness.users.worker_records import gather
runner = Environment().create_master_runner("127.0.0.1", int(sys.argv[1]))
for _ in range(2):
    gather(runner, Path(sys.argv[2]))
print("gathered twice")
runner.quit()
"""


def test_a_page_that_stays_open_gathers_after_each_of_its_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWICE, str(free_port()), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "gathered twice" in done.stdout, done.stderr
