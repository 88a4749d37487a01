"""Runs of 200 requests, one every 100 ms, and the findings that a change to them causes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND
from enginebench.records.telemetry import TelemetrySample
from enginebench.records.view import Finding
from tests.support.analysis.synthetic import NOTHING_CAME, in_order, meta_of, record, stages_of, write_run

MS = 1_000_000
STAGES = stages_of((1,), 20.0)  # steady from 4 s to 18 s
CUT_OFF: dict[str, Any] = NOTHING_CAME | {"outcome": "cut_off"}
Change = Callable[[int, RequestRecord], RequestRecord]


def every_100_ms(change: Change | None = None) -> list[RequestRecord]:
    """Return 200 requests, 140 of them in the window; each ends 2 ms before the next one is due."""
    records = [record(k, k * 100 * MS, t_end=k * 100 * MS + 98 * MS, **_stamps(k)) for k in range(200)]
    return records if change is None else [change(k, one) for k, one in enumerate(records)]


def _stamps(k: int) -> dict[str, Any]:
    first = k * 100 * MS + (50 + k % 7) * MS
    return {"t_first": first, "t_first_out": first, "read_first": first, "t_last": first + 40 * MS}


def changed(**changes: Any) -> Change:
    return lambda _, one: msgspec.structs.replace(one, **changes)


def now_and_then(every: int, **changes: Any) -> Change:
    return lambda k, one: msgspec.structs.replace(one, **changes) if k % every == 0 else one


def samples(cpu: float = 0.2, lag: float = 0.001, tokens: float = 30.0, users: int = 1) -> list[TelemetrySample]:
    counter = 'enginebench_generation_tokens_total{engine="fake"}'
    return in_order(
        [
            TelemetrySample(t=t * SECOND, client_cpu=cpu, loop_lag=lag, server={counter: tokens * t}, users=users)
            for t in range(1, 20)
        ]
    )


def findings(tmp_path: Path, records: list[RequestRecord], **changes: Any) -> tuple[Finding, ...]:
    telemetry = changes.pop("samples", samples())
    run = write_run(tmp_path, meta_of(changes.pop("stages", STAGES), **changes), records, telemetry)
    return summarise(load_run(run)).findings
