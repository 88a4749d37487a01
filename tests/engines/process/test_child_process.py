"""The pipes of a child process."""

from __future__ import annotations

import subprocess
import sys

CLOSING = """
import asyncio, threading, uvloop
from engines.process.child_process import pipe_of

failures, closed = [], threading.Event()

def open_files():
    while not closed.is_set():
        try:
            with open("/proc/self/stat", "rb") as file:
                file.read()
        except OSError as error:
            failures.append(error)

async def close_pipes():
    loop = asyncio.get_running_loop()
    for _ in range(500):
        ours, theirs = pipe_of(loop)
        transport, _ = await loop.connect_read_pipe(asyncio.Protocol, ours)
        theirs.close()
        transport.close()
        await asyncio.sleep(0)

threads = [threading.Thread(target=open_files) for _ in range(4)]
for thread in threads:
    thread.start()
uvloop.run(close_pipes())
closed.set()
for thread in threads:
    thread.join()
print(len(failures))
"""


def test_a_pipe_is_closed_once() -> None:
    """A second close hits whatever another thread has opened meanwhile: files fail, or uvloop ends the process."""
    done = subprocess.run([sys.executable, "-c", CLOSING], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
