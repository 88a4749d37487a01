"""The folder of a run, read as it grows: what the clients measured over the last seconds."""

from __future__ import annotations

import math
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from analysis.units import format_share
from analysis.watch.moment import Moment, Percentiles, gauges_of
from records.files import Tail, read_meta
from records.metrics import BY_NAME, OBJECTIVES, Metric
from records.request import SENT, RequestRecord
from records.stage import SECOND
from records.telemetry import TelemetrySample

RECENT = 10.0  # seconds
LATE = 0.005  # seconds of send lag (p99) from which a report warns
SHOWN = {"TTFT": OBJECTIVES["ttft"], "TPOT": OBJECTIVES["tpot"]}


class RunFolder:
    """Raises `ValueError` where `folder` is no run."""

    def __init__(self, folder: Path) -> None:
        meta = read_meta(folder)
        self.title = f"{meta.run_id}: {meta.scenario} against {meta.label}"
        self._requests, self._telemetry = Tail(folder, "requests*.jsonl"), Tail(folder, "telemetry*.jsonl")
        self._ended: deque[RequestRecord] = deque()
        self._in_flight: set[tuple[str, str]] = set()
        self._users: dict[Path, int] = {}  # by the telemetry of a process, as the next one is
        self._ended_processes: dict[Path, bool] = {}
        self._server = TelemetrySample(0)
        self._last = 0  # nanoseconds since the run's start of the newest line

    def look(self) -> Moment:
        self._read()
        since = self._last - int(RECENT * SECOND)
        while self._ended and (self._ended[0].t_end or 0) < since:
            self._ended.popleft()
        recent = list(self._ended)
        seconds = max(min(RECENT, self._last / SECOND), 1e-9)
        failed = [record for record in recent if record.outcome not in {"ok", "cut_off"}]
        return Moment(
            at=time.monotonic(),
            users=sum(self._users.values()) if self._users else None,
            in_flight=len(self._in_flight),
            rate=len(recent) / seconds,
            failed=len(failed) / len(recent) if recent else None,
            tokens=sum(record.output_tokens or 0 for record in recent) / seconds,
            latencies={title: found for title, metric in SHOWN.items() if (found := _percentiles(metric, recent))},
            findings=_findings(recent, len(failed)),
            over=bool(self._ended_processes) and all(self._ended_processes.values()),
            **gauges_of(self._server),
        )

    def _read(self) -> None:
        for _, line in self._requests.lines():
            document = _decoded(line)
            if document is None:
                continue
            key = str(document.get("worker")), str(document.get("request_id"))
            if document.get("outcome") == SENT:
                self._in_flight.add(key)
                continue
            self._in_flight.discard(key)
            try:
                record = msgspec.convert(document, RequestRecord, strict=False)
            except msgspec.ValidationError:
                continue
            self._ended.append(record)
            self._last = max(self._last, record.t_end or 0)
        for path, line in self._telemetry.lines():
            document = _decoded(line)
            if document is None:
                continue
            sample = msgspec.convert(document, TelemetrySample, strict=False)
            self._last = max(self._last, sample.t)
            self._ended_processes[path] = sample.last
            if sample.users is not None:
                self._users[path] = sample.users
            if sample.server:
                self._server = sample


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        document = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return document if isinstance(document, dict) else None


def _percentiles(metric: Metric, records: list[RequestRecord]) -> Percentiles | None:
    """Of the attempted requests: a failed one counts as infinitely late."""
    values = sorted(value for record in records if (value := _waited(metric, record)) is not None)
    if not values:
        return None
    p50, p99 = (values[math.ceil(q * len(values)) - 1] for q in (0.5, 0.99))
    return Percentiles(p50, p99)


def _waited(metric: Metric, record: RequestRecord) -> float | None:
    if metric.population == "attempted" and record.outcome not in {"ok", "cut_off"}:
        return math.inf
    return metric.of(record)


def _findings(recent: list[RequestRecord], failed: int) -> list[str]:
    found = []
    if recent and failed > 0.01 * len(recent):
        found.append(f"{format_share(failed / len(recent))} of the requests fail")
    lag = _percentiles(BY_NAME["send_lag"], recent)
    if lag is not None and lag.p99 > LATE:
        found.append(f"the load generator sends {lag.p99 * 1000:.0f} ms late (p99): add --processes")
    return found
