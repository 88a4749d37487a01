"""What the load test's own metrics cost its client: CPU per token with the exporter and without, in turns.

    python -m validation.speed.exporter_cost --output validation/results/exporter_cost.json     # about five minutes

The same scripted load of 20 000 tokens/s (400 users, 50 tokens/s each) is made by one Locust process with `--exporter`,
whose page is read every five seconds as Prometheus does it, and with `--exporter none`; who goes first alternates. CPU
is that of Locust's process within the steady window, from the run's telemetry, over the tokens that arrived in it.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from enginebench.analysis.stats.repeats import ratio_interval
from enginebench.records.files import read_meta, read_requests
from enginebench.records.stage import SECOND
from enginebench.settings.system import free_port
from loadtests.harness.calibration.calibrate import (
    SCENARIO,
    client_use,
    make_load,
    pace,
    parse_grid,
    scripted_server,
    stage_options,
)
from loadtests.harness.run.own_limits import raise_descriptor_limit
from validation.program import command_line, write

LOAD = "400x50"
INTERVAL = 5.0  # seconds between two scrapes


@contextmanager
def scraped(port: int | None) -> Iterator[list[float]]:
    """Read the page every `INTERVAL` while the block runs; gives the seconds that each took."""
    over, took = threading.Event(), list[float]()

    def scrape() -> None:
        with httpx.Client(trust_env=False) as client:
            while not over.wait(INTERVAL):
                with suppress(httpx.HTTPError):
                    took.append(client.get(f"http://127.0.0.1:{port}/metrics").elapsed.total_seconds())

    thread = threading.Thread(target=scrape, daemon=True)
    if port is not None:
        thread.start()
    try:
        yield took
    finally:
        over.set()
        if port is not None:
            thread.join()


def cpu_per_token(users: int, rate: float, seconds: float, exporter: bool) -> tuple[float, float, list[float]]:
    """Seconds of CPU, tokens per second, and how long each scrape took."""
    tokens, tpot = pace(rate)
    port = free_port() if exporter else None
    with tempfile.TemporaryDirectory() as name:
        with scripted_server(tpot, tokens, Path(name) / "truth.jsonl") as server, scraped(port) as took:
            options = [*stage_options(users, seconds), "--output-tokens", str(tokens), "--slo", "ttft_p95=0.5"]
            options += ["--exporter", "none" if port is None else f"127.0.0.1:{port}"]
            run = make_load(SCENARIO, f"http://127.0.0.1:{server}", Path(name), *options)
        return (*_use_of(run), took)


def _use_of(run: Path) -> tuple[float, float]:
    stage = read_meta(run).stages[0]
    assert stage.steady_start is not None
    assert stage.steady_end is not None
    cores, _ = client_use(run, stage)
    ended = [one for one in read_requests(run) if stage.steady_start <= one.t_end < stage.steady_end]
    rate = sum(one.output_tokens or 0 for one in ended) * SECOND / (stage.steady_end - stage.steady_start)
    return cores / rate, rate


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run's window")
    parser.add_argument("--load", default=LOAD, help="users x tokens per second for each")
    given = parser.parse_args()
    raise_descriptor_limit()
    ((users, rate),) = parse_grid(given.load)
    load_average = os.getloadavg()[0]
    costs: dict[bool, list[float]] = {True: [], False: []}
    rates: dict[bool, list[float]] = {True: [], False: []}
    scrapes: list[float] = []
    for number in range(given.rounds):
        for exporter in (True, False) if number % 2 else (False, True):
            cost, throughput, took = cpu_per_token(users, rate, given.seconds, exporter)
            costs[exporter].append(cost)
            rates[exporter].append(throughput)
            scrapes += took
            print(f"exporter {'on ' if exporter else 'off'}: {1e6 * cost:.2f} µs a token at {throughput:,.0f} tokens/s")
    ratio = ratio_interval(costs[True], costs[False], paired=True)
    write(
        given.output,
        *("locust", "gevent"),
        load_average=load_average,
        load=given.load,
        cpu_seconds_per_token={"with": costs[True], "without": costs[False]},
        tokens_per_second={"with": rates[True], "without": rates[False]},
        scrape_seconds=scrapes,
        ratio={"value": ratio.value, "low": ratio.low, "high": ratio.high, "n": ratio.n},
    )
    if ratio.value is not None:
        interval = "" if ratio.low is None or ratio.high is None else f" [{ratio.low:.3f}, {ratio.high:.3f}]"
        print(f"with the exporter a token costs {ratio.value:.3f}{interval} times the CPU")


if __name__ == "__main__":
    main()
