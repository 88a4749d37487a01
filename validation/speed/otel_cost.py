"""What `--otel` costs the load generator: client error and CPU per token with and without it, in turns.

    python -m validation.speed.otel_cost --output validation/results/otel_cost.json

The load is that of `enginebench calibrate`. The collector only takes the spans. It and the process that sends them use
the same cores as the load generator.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import fmean, stdev
from threading import Thread

from scipy import stats

from enginebench.records.files import write_meta
from enginebench.records.request import RequestRecord
from enginebench.records.run import RunMeta
from enginebench.records.stage import SECOND
from loadtests.harness.calibration.calibrate import measure
from loadtests.harness.run.calibration import Cell
from validation.program import command_line, print_fields, write

SPANS = 20_000  # for the CPU time of a span
META = RunMeta(
    run_id="r", started_at="2026-01-01T00:00:00+00:00",
    scenario="s", url="http://a", model="m", plan=(), workload={}, engine=None, host={},
    versions={}, label="l", command=(),
)  # fmt: skip


class Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean without `--otel`, and the mean change with it, with its 95 % confidence interval."""

    without: float
    mean: float
    low: float
    high: float


def difference(plain: list[float], traced: list[float]) -> Difference:
    changes = [after - before for before, after in zip(plain, traced, strict=True)]
    half = stats.t.ppf(0.975, len(changes) - 1) * stdev(changes) / len(changes) ** 0.5
    return Difference(fmean(plain), fmean(changes), fmean(changes) - half, fmean(changes) + half)


def cpu_per_span() -> float:
    """Return the seconds of CPU time for a span in the process that sends them, its start left out."""

    def cpu(spans: int) -> float:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_meta(folder, META)
            record = RequestRecord(
                t_sched=0, t_send=1, t_first=SECOND, t_last=2 * SECOND, t_end=2 * SECOND,
                outcome="ok", worker="0", scenario="s", stage=0, request_id="0-1",
                prompt_tokens=100, output_tokens=100, server_queue=0.1, server_prefill=0.1, server_decode=1.0,
            )  # fmt: skip
            (folder / "requests-0.jsonl").write_text(spans * record.to_line())
            command = [sys.executable, "-m", "loadtests.harness.recording.otel_export", name, "r", "0"]
            sent = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
            result = json.loads(sent.stdout)
            assert (result["spans"], result["lost"]) == (spans, 0)
            return float(result["cpu"])

    return (cpu(SPANS) - cpu(1)) / SPANS


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--rate", type=float, default=50.0, help="tokens per second of each user")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--pairs", type=int, default=10)
    options = parser.parse_args()
    collector = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    Thread(target=collector.serve_forever, daemon=True).start()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{collector.server_port}"
    plain: list[Cell] = []
    traced: list[Cell] = []
    for number in range(options.pairs):
        turns = [(plain, ()), (traced, ("--otel",))]
        for cells, more in turns if number % 2 else reversed(turns):
            cells.append(measure(options.users, options.rate, options.seconds, 1, "quiet", *more))
        print(f"pair {number + 1} of {options.pairs}", file=sys.stderr)
    results = {
        "cpu_per_token": difference([cell.cpu_per_token for cell in plain], [cell.cpu_per_token for cell in traced]),
        "ttft_error_p50": difference([cell.ttft.p50 for cell in plain], [cell.ttft.p50 for cell in traced]),
        "ttft_error_p99": difference([cell.ttft.p99 for cell in plain], [cell.ttft.p99 for cell in traced]),
    }
    per_span = cpu_per_span()
    for name, result in results.items():
        print(name)
        print_fields(asdict(result), "  ")
    print(f"cpu_per_span = {per_span:.4g}")
    measured = {name: asdict(result) for name, result in results.items()} | {"cpu_per_span": per_span}
    write(
        options.output, "locust", "gevent", "opentelemetry-sdk",
        load=[options.users, options.rate, options.seconds, options.pairs], results=measured,
        plain=[asdict(cell) for cell in plain], traced=[asdict(cell) for cell in traced],
    )  # fmt: skip


if __name__ == "__main__":
    main()
