"""The answers of servers to clients in a separate process, and the memory that the clients take.

    python -m tests.support.loadtests.peak_memory CLIENTS URL...

Prints a JSON line for each URL.
"""

from __future__ import annotations

import gc
import json
import re
import sys
import time
from pathlib import Path

import gevent

from loadtests.harness.client.client import Client
from tests.support.loadtests.asking import due


def memory(what: str) -> int:
    """Return MB: `VmRSS` is the memory now, `VmHWM` the peak since `forget_peak`."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")  # man 5 proc


def ask(url: str) -> str:
    client = Client(url, request_timeout=20)
    seen = client.request(due(time.monotonic_ns()))
    client.close()
    return f"{seen.outcome}: {seen.detail}"


def main() -> None:
    clients, *urls = sys.argv[1:]
    for url in urls:
        gc.collect()
        forget_peak()
        began, before = time.monotonic(), memory("VmRSS")
        heard = [gevent.spawn(ask, url) for _ in range(int(clients))]
        seconds = round(time.monotonic() - began, 2)
        answers = sorted({greenlet.get() for greenlet in heard})
        print(json.dumps({"heard": answers, "before": before, "peak": memory("VmHWM"), "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
