"""The check of a scenario before anything is started. What it refuses: test_run_cli.py."""

import json
import subprocess
import sys

from tests.support.loadtests.locust_process import ROOT

CODE = """
import sys
from loadtests.harness.command.check import main

main("loadtests/concurrent.py", '{"stage_seconds": "5"}')
print([name for name in ("locust", "gevent") if name in sys.modules])
"""


def test_it_does_not_import_locust_for_our_scenarios() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", CODE], capture_output=True, text=True, cwd=ROOT)
    planned, imported = done.stdout.splitlines()
    assert imported == "[]", done.stderr
    duration = {"seconds": 55.0, "loads": "11 stages, 1 user to 100 users, 5 s each", "at_most": False}
    assert json.loads(planned) == {"endpoint": "chat", "duration": duration}
