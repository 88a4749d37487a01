"""An alarm goes off at its instant: on a timer of the kernel, and on the loop's own where there is none."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import ctypes, sys
from time import monotonic_ns
import gevent
from loadtests.harness.users.alarm import Alarm
if sys.argv[1] == "loop":
    ctypes.CDLL = lambda *_, **__: object()
called, due = [], []
def ring():
    called.append(monotonic_ns())
    if len(due) < 60:
        due.append(called[-1] + 3_300_000)
        alarm.set(due[-1])
alarm = Alarm(ring)
due.append(monotonic_ns() + 3_300_000)
alarm.set(due[0] + 10**12)  # set anew: the last one counts
alarm.set(due[0])
gevent.sleep(1)
early = sum(at < planned for at, planned in zip(called, due))
late = sorted(at - planned for at, planned in zip(called, due))
alarm.set(1)  # long past
before = len(called)
gevent.sleep(0.05)
print(before, early, late[len(late) // 2], len(called))
"""


@pytest.mark.alone
@pytest.mark.parametrize(("timer", "latest"), [("kernel", 500_000), ("loop", 5_000_000)])
def test_it_rings_at_its_instant(timer: str, latest: int) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, timer], capture_output=True, text=True, check=True)
    rung, early, median, afterwards = map(int, done.stdout.split())
    assert (rung, afterwards) == (60, 61)
    assert median < latest
    if timer == "kernel":
        assert early == 0
