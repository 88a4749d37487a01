"""What a scrape costs a busy server: how long it takes, and how much later the chunks of its streams come.

    python -m validation.speed.scrape --output validation/results/scrape.json

The fake engine answers 1 000 requests at once, each with a chunk every `INTERVAL`. Rounds alternate: in one half of
them `/metrics` is read. How late chunks come is taken from the gaps of all streams in the `AROUND` seconds after the
moment of the scrape, and compared with the same seconds of rounds without one; so what client and machine add cancels
out. It needs a machine with nothing else to do.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from validation.processes import http_request, started_server
from validation.program import command_line, print_fields, write

INTERVAL = 0.25  # seconds between two chunks of a stream
AROUND = 0.3  # seconds after a scrape in which chunks are looked at
PERIOD = 0.53  # seconds of a round: no multiple of `INTERVAL`, so that scrapes meet chunks in every phase


@dataclass(frozen=True)
class Result:
    """Seconds, but for the counts. `disturbance_*`: by how much the latest chunk of a round with a scrape was later
    than that of a round without."""

    streams: int
    rounds: int
    samples: int  # lines of the page
    scrape_p50: float
    scrape_max: float
    latest_chunk_with_p50: float
    latest_chunk_without_p50: float
    disturbance_p50: float
    disturbance_interval: tuple[float, float]  # 95 %, by ranks of the paired differences


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--streams", type=int, default=1000, help="requests in flight (default 1000)")
    parser.add_argument("--rounds", type=int, default=60, help="with a scrape; as many without (default 60)")
    given = parser.parse_args()
    command = [str(Path(sys.executable).parent / "enginebench"), "serve", "--engine", "fake", "--port", "0"]
    for option in (f"concurrency={given.streams}", f"tpot={INTERVAL}", "ttft=0.5"):
        command += ["-o", option]
    with started_server(command) as (_, port):
        result = asyncio.run(_measure(port, given.streams, given.rounds))
    print_fields(asdict(result))
    write(given.output, **asdict(result))


async def _measure(port: int, streams: int, rounds: int) -> Result:
    arrivals: list[tuple[float, float]] = []  # (when, gap since the stream's last chunk)
    length = int((2 * rounds * PERIOD + 30) / INTERVAL)
    readers = [asyncio.create_task(_stream(port, length, arrivals)) for _ in range(streams)]
    while len(arrivals) < 3 * streams:  # every stream is on its way
        await asyncio.sleep(0.1)
    scrapes: list[float] = []
    latest: tuple[list[float], list[float]] = ([], [])  # without a scrape, with one
    samples = 0
    for turn in range(2 * rounds):
        arrivals.clear()
        scraped, began = turn % 2, time.perf_counter()
        if scraped:
            samples = (await _scrape(port)).count(b"\n")
            scrapes.append(time.perf_counter() - began)
        await asyncio.sleep(max(0.0, began + PERIOD - time.perf_counter()))
        latest[scraped].append(max((gap for at, gap in arrivals if began <= at <= began + AROUND), default=0.0))
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    differences = sorted(after - before for before, after in zip(*latest, strict=True))
    low, high = _ranks(len(differences))
    return Result(
        streams=streams,
        rounds=rounds,
        samples=samples,
        scrape_p50=statistics.median(scrapes),
        scrape_max=max(scrapes),
        latest_chunk_with_p50=statistics.median(latest[1]),
        latest_chunk_without_p50=statistics.median(latest[0]),
        disturbance_p50=statistics.median(differences),
        disturbance_interval=(differences[low], differences[high]),
    )


async def _stream(port: int, tokens: int, arrivals: list[tuple[float, float]]) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "Go on."}], "max_tokens": tokens, "stream": True})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(http_request("/v1/chat/completions", body.encode()))
        last = None
        while await reader.read(65536):
            now = time.perf_counter()
            if last is not None:
                arrivals.append((now, now - last))
            last = now
    finally:
        writer.close()


async def _scrape(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(http_request("/metrics"))
        return await reader.read(-1)
    finally:
        writer.close()


def _ranks(count: int) -> tuple[int, int]:
    """Ranks of a 95 % interval for the median: the binomial's normal approximation."""
    half = 0.98 * count**0.5
    return max(0, int(count / 2 - half)), min(count - 1, int(count / 2 + half))


if __name__ == "__main__":
    main()
