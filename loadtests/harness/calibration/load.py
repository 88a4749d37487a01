"""The load of a calibration: many users in one process, through the client that real runs use.

    python -m loadtests.harness.calibration.load --url http://127.0.0.1:8000 --users 100 --seconds 5 --tokens 100

Each user asks again as soon as its answer is complete. Users start spread over `--spread` seconds. Prints one JSON
document: the CPU seconds used, and for every request the stamps that are compared with the server's.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import gevent

from loadtests.harness.client.client import Call, Client
from records.request import Observation


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as the client saw it, monotonic nanoseconds; `user` is how the server's truth is found."""

    user: str
    outcome: str
    t_sched: int
    t_send: int | None
    t_first: int | None
    read_first: int | None
    t_last: int | None
    tokens: int | None
    stamps: str
    merged_first: bool


@dataclass(frozen=True, slots=True)
class LoadResult:
    cpu: float  # seconds of this process, user and system, from the first request to the last
    cpu_wait: float | None  # share of the wall time for which it was ready to run and had no core
    requests: list[Seen]


def drive(url: str, users: int, seconds: float, tokens: int, spread: float, name: str) -> LoadResult:
    """Open all connections, then run `users` for `seconds`; answers that have begun by then are waited for."""
    clients = [Client(url) for _ in range(users)]
    for client in clients:
        client.connect()
    gc.collect()
    gc.freeze()
    requests: list[Seen] = []
    spreading = random.Random(users)
    start, cpu, waited = time.monotonic(), time.process_time(), _seconds_without_core()

    def live(number: int, client: Client, start_after: float) -> None:
        gevent.sleep(start_after)
        count = 0
        while time.monotonic() - start < seconds:
            user = f"{name}-{number}-{count}"
            body = {
                "model": "scripted",
                "messages": [{"role": "user", "content": "Tell me."}],
                "max_tokens": tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
                "user": user,
            }

            def keep(seen: Observation, user: str = user) -> None:
                stamps = (seen.t_sched, seen.t_send, seen.t_first, seen.read_first, seen.t_last)
                requests.append(Seen(user, seen.outcome, *stamps, seen.output_tokens, seen.stamps, seen.merged_first))

            call = Call("/v1/chat/completions", json.dumps(body).encode(), True)
            client.request(call, time.monotonic_ns(), keep)
            count += 1

    gevent.joinall(
        [gevent.spawn(live, n, client, spreading.uniform(0, spread)) for n, client in enumerate(clients)],
        raise_error=True,
    )
    used, wall, waited_now = time.process_time() - cpu, time.monotonic() - start, _seconds_without_core()
    for client in clients:
        client.close()
    wait = None if waited is None or waited_now is None else (waited_now - waited) / wall
    return LoadResult(used, wait, requests)


def _seconds_without_core() -> float | None:
    """How long this process has been ready to run without running; `None` where the kernel does not count it."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description="The load of a calibration.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--users", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--spread", type=float, default=1.0)
    parser.add_argument("--name", default="load")
    parser.add_argument("--cores", type=int, nargs="*", default=[], help="stay on these")
    options = parser.parse_args()
    if options.cores:
        os.sched_setaffinity(0, options.cores)
    result = drive(options.url, options.users, options.seconds, options.tokens, options.spread, options.name)
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()
