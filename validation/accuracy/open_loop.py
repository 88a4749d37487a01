"""Does an open loop keep to its schedule, is nothing lost, and how many streams does one process sustain?

    python -m validation.accuracy.open_loop                # about four minutes
    python -m validation.accuracy.open_loop --output validation/results/open_loop.json

`arrivals`: 200, 500 and 1 000 Poisson arrivals a second against the scripted server from one process, and 500 from two.
Every arrival of the schedule must be in the records, sent once, and its lag is `t_send − t_sched`.
`streams`: more than 3 000 answers at a time, each of ten tokens a second, read by one process. Its TTFT and TPOT are
compared with the server's stamps, request by request.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any

from enginebench.records.files import read_meta, read_requests
from enginebench.records.load import Rate
from enginebench.records.request import RequestRecord
from enginebench.records.rules import percentile
from enginebench.records.stage import SECOND, Stage
from enginebench.settings.system import raise_descriptor_limit
from loadtests.harness.calibration.calibrate import (
    Pair,
    client_use,
    error_of,
    make_load,
    scripted_server,
    streamed,
)
from loadtests.harness.run.options import processes_options
from loadtests.harness.schedule.rates import arrival_times
from validation.program import command_line, write

SEED = 11
LOADS = ((200.0, 1), (500.0, 1), (1000.0, 1), (500.0, 2))  # arrivals per second, processes
ARRIVALS = {"tokens": 8, "tpot": 0.01, "ttft": 0.05, "warm_up": 3.0, "seconds": 30.0}
STREAMS = {"rate": 312.0, "tokens": 100, "tpot": 0.1, "ttft": 0.2, "warm_up": 15.0, "seconds": 20.0}


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The arrivals of the steady window; lags in seconds. `plan` is equal if the arrivals are."""

    rate: float
    processes: int
    planned: int  # arrivals that the schedule has in the whole run
    recorded: int  # planned arrivals with exactly one record
    seen_by_server: int
    outcomes: dict[str, int]
    plan: str
    counted: int
    lag_p50: float
    lag_p99: float
    lag_max: float
    opened_late: int  # requests for which a connection had to be opened
    client_cpu: float  # cores
    run_delay: float | None  # share of the time in which the client was ready to run and had no core
    load_average: float  # the machine's, before the run


@dataclass(frozen=True, slots=True)
class Streams:
    """Errors are measured minus true values, in seconds; those of TPOT are shares of the true value."""

    requests: int
    outcomes: dict[str, int]
    fewest_at_once: int
    mean_at_once: float
    tokens_per_second: float
    ttft_bias: float
    ttft_p50: float
    ttft_p99: float
    tpot_p99: float
    lag_p99: float
    truth_p99: float  # duration of the server's write: the true times are not known more exactly
    client_cpu: float
    run_delay: float | None
    load_average: float


@dataclass(frozen=True, slots=True)
class Run:
    stage: Stage
    records: list[RequestRecord]
    window: list[RequestRecord]
    truths: dict[str, dict[str, Any]]
    client_cpu: float
    run_delay: float | None


@contextmanager
def open_run(
    rate: float, tokens: int, tpot: float, ttft: float, warm_up: float, seconds: float, processes: int
) -> Iterator[Run]:
    """Run one stage of the scenario `rate` against the scripted server."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with scripted_server(tpot, tokens, folder / "truth.jsonl", ttft) as port:
            options = ["--rate", f"{rate:g}", "--stage-seconds", f"{warm_up + seconds:g}", "--warm-up", f"{warm_up:g}"]
            options += ["--seed", str(SEED), "--output-tokens", str(tokens)]
            options += processes_options(processes)
            run = make_load(Path("loadtests/rate.py"), f"http://127.0.0.1:{port}", folder, *options)
        stage, records = read_meta(run).stages[0], list(read_requests(run))
        start, end = stage.steady_start or 0, stage.steady_end or 0
        truths = {truth["prompt_id"]: truth for truth in map(json.loads, (folder / "truth.jsonl").open())}
        window = [record for record in records if start <= record.t_sched < end]
        yield Run(stage, records, window, truths, *client_use(run, stage))


def lags(window: list[RequestRecord]) -> list[float]:
    return [(record.t_send - record.t_sched) / SECOND for record in window if record.t_send is not None]


def measure_arrivals(rate: float, processes: int) -> Arrivals:
    load_average = os.getloadavg()[0]
    with open_run(rate, **ARRIVALS, processes=processes) as run:  # type: ignore[arg-type]
        stage = run.stage
        last = (min(stage.end or 0, max(record.t_sched for record in run.records)) - stage.start) / SECOND
        times = arrival_times(Rate(rate), ARRIVALS["warm_up"], ARRIVALS["seconds"], SEED, 0)
        planned = [round(at * SECOND) for at in takewhile(lambda at: at < last + 1e-6, times)]
        recorded = Counter(record.t_sched - stage.start for record in run.records)
        window = sorted(record.t_sched - stage.start for record in run.window)
        sorted_lags = sorted(lags(run.window))
        return Arrivals(
            rate=rate,
            processes=processes,
            planned=len(planned),
            recorded=sum(recorded[at] == 1 for at in planned),
            seen_by_server=len(run.truths),
            outcomes=dict(Counter(record.outcome for record in run.records)),
            plan=blake2b(json.dumps(window).encode(), digest_size=8).hexdigest(),
            counted=len(window),
            lag_p50=percentile(sorted_lags, 0.5),
            lag_p99=percentile(sorted_lags, 0.99),
            lag_max=max(sorted_lags),
            opened_late=sum(record.t_connect is not None for record in run.records),
            client_cpu=run.client_cpu,
            run_delay=run.run_delay,
            load_average=load_average,
        )


def measure_streams() -> Streams:
    load_average = os.getloadavg()[0]
    with open_run(**STREAMS, processes=1) as run:  # type: ignore[arg-type]
        pairs = [
            Pair(record, truth)
            for record in run.window
            if record.outcome == "ok" and (truth := run.truths.get(record.prompt_id or "")) is not None
        ]
        start, end = run.stage.steady_start or 0, run.stage.steady_end or 0
        at_once = list(_in_flight(run.records, start, end))
        answers = ((record.output_tokens or 0, record.t_first or 0, record.t_last or 0) for record in run.records)
        ttft = error_of([pair.ttft for pair in pairs])
        return Streams(
            requests=len(run.window),
            outcomes=dict(Counter(record.outcome for record in run.records)),
            fewest_at_once=min(at_once),
            mean_at_once=statistics.fmean(at_once),
            tokens_per_second=streamed(answers, start, end) / ((end - start) / SECOND),
            ttft_bias=ttft.bias,
            ttft_p50=ttft.p50,
            ttft_p99=ttft.p99,
            tpot_p99=error_of([pair.tpot for pair in pairs]).p99,
            lag_p99=percentile(sorted(lags(run.window)), 0.99),
            truth_p99=percentile(
                sorted((p.truth["first_after"] - p.truth["first_before"]) / SECOND for p in pairs), 0.99
            ),
            client_cpu=run.client_cpu,
            run_delay=run.run_delay,
            load_average=load_average,
        )


def _in_flight(records: list[RequestRecord], start: int, end: int) -> Iterator[int]:
    """Yield the number of requests in flight at each hundredth of the window."""
    changes = sorted([(record.t_send or 0, 1) for record in records] + [(record.t_end, -1) for record in records])
    counts = list(accumulate(change for _, change in changes))
    instants = [at for at, _ in changes]
    for part in range(101):
        index = bisect_right(instants, start + (end - start) * part // 100)
        yield counts[index - 1] if index else 0


def main() -> None:
    arguments = command_line(__doc__).parse_args()
    raise_descriptor_limit()
    measured = {
        "arrivals": [asdict(measure_arrivals(*load)) for load in LOADS],
        "streams": [asdict(measure_streams())],
    }
    for name, results in measured.items():
        for result in results:
            print(name, json.dumps(result, indent=1))
    write(arguments.output, **measured)


if __name__ == "__main__":
    main()
