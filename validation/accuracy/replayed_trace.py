"""Is a recorded trace played at its times, with its lengths?

    python -m validation.accuracy.replayed_trace                # about a minute
    python -m validation.accuracy.replayed_trace --output validation/results/replayed_trace.json

A trace in Mooncake's format (bursts, heavy-tailed lengths, prompts that share their first blocks) is played by one
process and by two against this project's own server with the scripted engine, which counts tokens with a real
tokenizer. What was sent is compared with the file, request by request: the instant at which the first byte was
written against the recorded time, and the lengths that the server counted against the recorded ones.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from enginebench.records.files import read_meta, read_requests
from enginebench.records.request import RequestRecord
from enginebench.records.rules import percentile
from enginebench.records.stage import SECOND
from loadtests.harness.calibration.calibrate import make_load
from loadtests.harness.command.server_process import ServerProcess
from loadtests.harness.run.options import processes_options
from validation.program import command_line, print_fields, write

SECONDS, REQUESTS, SEED = 20.0, 800, 13
BURST = 0.25  # shape of the gaps' gamma distribution: their coefficient of variation is 2
BLOCK, LONGEST_PROMPT, LONGEST_ANSWER = 512, 6000, 200
SHORTEST_PROMPT = 64  # tokens; far shorter ones have no room beside the model's chat template
MOST_LAG = 0.005  # seconds at p99
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Replay:
    """Seconds from a request's time in the trace to its first byte on the wire; shares of all requests of the trace."""

    processes: int
    requests: int
    sent: int
    outcomes: dict[str, int]
    lag_p50: float
    lag_p99: float
    lag_max: float
    prompts_equal: float
    prompts_within_one: float
    answers_equal: float
    opened_late: int  # requests for which a connection had to be opened
    load_average: float  # of the machine, before the run

    @property
    def kept(self) -> bool:
        exact = self.sent == self.requests and self.prompts_within_one == self.answers_equal == 1
        return exact and self.lag_p99 <= MOST_LAG


def trace_rows() -> list[Row]:
    """In order of time; a quarter of the prompts begin with the blocks of one of eight documents."""
    rng = Random(SEED)
    gaps = [rng.gammavariate(BURST, 1 / BURST) for _ in range(REQUESTS)]
    scale, at, rows = SECONDS / sum(gaps), 0.0, []
    fresh = iter(range(1000, 10**9))
    for gap in gaps:
        prompt = min(round(rng.lognormvariate(5.7, 1.0)) + SHORTEST_PROMPT, LONGEST_PROMPT)
        answer = min(round(rng.lognormvariate(2.3, 1.0)) + 1, LONGEST_ANSWER)
        blocks = [next(fresh) for _ in range(-(-prompt // BLOCK))]
        if rng.random() < 0.25:
            document = 100 * rng.randrange(8)
            blocks[: len(blocks) - 1] = range(document, document + len(blocks) - 1)
        rows.append({"timestamp": round(at), "input_length": prompt, "output_length": answer, "hash_ids": blocks})
        at += gap * scale * 1e3
    return rows


def measure(rows: list[Row], url: str, folder: Path, processes: int) -> Replay:
    trace = folder / "trace.jsonl"
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    load_average = os.getloadavg()[0]
    options = ["--trace", str(trace), *processes_options(processes)]
    run = make_load(Path("loadtests/replay.py"), url, folder / f"{processes}", *options)
    start = read_meta(run).stages[0].start
    records = sorted(read_requests(run), key=_order)
    pairs = list(zip(sorted(rows, key=_recorded_order), records, strict=False))
    sent = [(row, one) for row, one in pairs if one.t_send is not None]
    lags = sorted(
        ((one.t_send or 0) - start) / SECOND - (row["timestamp"] - rows[0]["timestamp"]) / 1e3 for row, one in sent
    )
    off = [abs((one.prompt_tokens or 0) - row["input_length"]) for row, one in pairs]
    return Replay(
        processes=processes,
        requests=len(rows),
        sent=len(sent),
        outcomes=dict(Counter(one.outcome for one in records)),
        lag_p50=percentile(lags, 0.5),
        lag_p99=percentile(lags, 0.99),
        lag_max=max(lags),
        prompts_equal=sum(tokens == 0 for tokens in off) / len(rows),
        prompts_within_one=sum(tokens <= 1 for tokens in off) / len(rows),
        answers_equal=sum(one.output_tokens == row["output_length"] for row, one in pairs) / len(rows),
        opened_late=sum(one.t_connect is not None for one in records),
        load_average=load_average,
    )


def _order(record: RequestRecord) -> tuple[int, int, int]:
    """By time; requests of one millisecond by their lengths."""
    return record.t_sched, record.planned_prompt_tokens or 0, record.planned_output_tokens or 0


def _recorded_order(row: Row) -> tuple[int, int, int]:
    return row["timestamp"], row["input_length"], row["output_length"]


def main() -> None:
    parser = command_line(__doc__)
    arguments = parser.parse_args()
    rows = trace_rows()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with ServerProcess("fake", ["ttft=0.05", "tpot=0.01"], None, folder / "server.log") as server:
            server.wait_until_ready(lambda _: None)
            replays = [measure(rows, server.url, folder, processes) for processes in (1, 2)]
    for one in replays:
        print(f"{one.processes} process{'es' if one.processes > 1 else ''}: {'kept' if one.kept else 'NOT KEPT'}")
        print_fields(asdict(one), "  ")
    write(arguments.output, replays=[asdict(one) for one in replays])
    sys.exit(0 if all(one.kept for one in replays) else 1)


if __name__ == "__main__":
    main()
