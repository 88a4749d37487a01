"""A process ends with the one that started it, at whatever instant that is killed."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.servers.served import until

ROOT = Path(__file__).parents[3]
STARTS = """
import os, signal, subprocess, sys, time
from pathlib import Path
from loadtests.harness.command import guard, server_process

class Killed(guard.Guard):
    def __init__(self, pid):
        if {when} == "before it is guarded":
            os.kill(os.getpid(), signal.SIGKILL)
        super().__init__(pid)

def write(*_):
    os.kill(os.getpid(), signal.SIGKILL)

guard.Guard = Killed
if {when} == "before it may start":
    guard.os.write = write
options = ["load_time=3"] if {when} == "while it loads" else []
with server_process.ServerProcess("fake", options, None, Path(sys.argv[1])) as server:
    if {when} == "while it loads":
        while "loading" not in Path(sys.argv[1]).read_text():
            time.sleep(0.01)
    else:
        server.wait_until_ready(lambda _: None)
    os.kill(os.getpid(), signal.SIGKILL)
"""
ENDED = 30.0  # seconds: a server that may drain


@pytest.mark.parametrize("when", ["before it is guarded", "before it may start", "while it loads", "when it is ready"])
def test_a_server_ends_with_the_process_that_started_it(when: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    done = subprocess.run([sys.executable, "-c", STARTS.format(when=repr(when)), str(log)], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    until(lambda: not writers_of(log), "the end of the server", ENDED)
    assert bool(log.read_text()) is when.startswith("wh"), "what was never guarded has never run"


def writers_of(log: Path) -> list[list[str]]:
    """Return the command lines of the processes whose output goes to it."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(Path(file.path) == log for file in process.open_files()):
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


def test_a_process_that_does_not_end_on_sigterm_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from loadtests.harness.command import guard; guard.GRACE = 1; "
        "process, _ = guard.start_guarded(['/bin/sh', '-c', \"trap '' TERM; echo deaf; while :; do sleep 1; done\"], "
        "stdout=-1); process.stdout.readline(); print(process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    until(lambda: not psutil.pid_exists(int(done.stdout)), "the end of the process", ENDED)
