"""guidellm's `benchmarks.json`: one stage for each benchmark, with the requests that the file keeps.

Fields as of guidellm 0.4 to 0.8 (schemas/request_stats.py, schemas/info.py in vllm-project/guidellm): Unix times in
seconds under `info.timings`, requests by status under `requests`. Chunks have no time stamps.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from enginebench.analysis.formats.results import (
    COMMON,
    ImportedStage,
    NotImportable,
    Results,
    load_of,
    most_in_flight,
    nanoseconds,
)
from enginebench.records.load import Load, Rate, Users
from enginebench.records.request import Outcome, RequestRecord

OUTCOMES: dict[str, Outcome] = {"successful": "ok", "incomplete": "cut_off", "errored": "http_error"}
LACKS = ("inter-chunk latencies", "HTTP status codes", *COMMON)


def is_guidellm(document: dict[str, Any]) -> bool:
    return isinstance(document.get("benchmarks"), list)


def read(document: dict[str, Any]) -> Results:
    """Read a file. Raises `NotImportable`, and `KeyError` or `TypeError` if a field is missing."""
    benchmarks = document["benchmarks"]
    if not benchmarks or not all({"config", "requests", "start_time"} <= set(benchmark) for benchmark in benchmarks):
        raise NotImportable(
            "is no file of guidellm 0.4 to 0.8, which are the versions that are read: measure again with one of them."
        )
    zero = min(start for benchmark in benchmarks for start in _starts(benchmark))
    stages, lacks = [], list(LACKS)
    for index, benchmark in enumerate(benchmarks):
        stages.append(_stage(benchmark, index, zero))
        totals = (benchmark.get("metrics") or {}).get("request_totals") or {}
        kept, total = len(benchmark["requests"]["successful"]), totals.get("successful")
        if total is not None and kept < total:
            lacks.append(f"{total - kept} of {total} requests of benchmark {index + 1}, of which it keeps a sample")
    arguments = document.get("args") or document.get("config") or {}
    meta = document.get("metadata") or {}
    return Results(
        tool="guidellm",
        stages=tuple(stages),
        lacks=tuple(lacks),
        version=meta.get("guidellm_version"),
        model=arguments.get("model"),
        url=arguments.get("target"),
        started_at=datetime.fromtimestamp(zero, UTC),
        settings={key: arguments[key] for key in ("profile", "rate", "data") if arguments.get(key) is not None},
    )


def _starts(benchmark: dict[str, Any]) -> Iterator[float]:
    yield benchmark["start_time"]
    for status in OUTCOMES:
        for request in benchmark["requests"].get(status) or ():
            start = _sent(request["info"]["timings"])
            if start is not None:
                yield start


def _sent(timings: dict[str, Any]) -> float | None:
    value: float | None = timings.get("request_start")
    return timings.get("resolve_start") if value is None else value


def _stage(benchmark: dict[str, Any], index: int, zero: float) -> ImportedStage:
    requests = tuple(
        record
        for status, outcome in OUTCOMES.items()
        for request in benchmark["requests"].get(status) or ()
        if (record := _record(request, outcome, index, zero)) is not None
    )
    start, end = (nanoseconds(benchmark[key], zero) or 0 for key in ("start_time", "end_time"))
    strategy = benchmark["config"]["strategy"]
    load = _load(strategy)
    if load is None and strategy.get("type_") == "throughput":  # sends all requests at once
        load = Users(max(1, most_in_flight(requests)))
    return ImportedStage(load, start, end, requests)


def _load(strategy: dict[str, Any]) -> Load | None:
    kind = strategy.get("type_")
    if kind == "synchronous":
        return load_of(1, None)
    load = load_of(strategy.get("streams") or strategy.get("max_concurrency"), strategy.get("rate"))
    return Rate(load.per_second, "constant") if isinstance(load, Rate) and kind == "constant" else load


def _record(request: dict[str, Any], outcome: Outcome, stage: int, zero: float) -> RequestRecord | None:
    """Return `None` for a request that was never sent."""
    info, timings = request["info"], request["info"]["timings"]
    sent = nanoseconds(_sent(timings), zero)
    if sent is None:
        return None
    ended = timings.get("request_end") if timings.get("request_end") is not None else timings.get("resolve_end")
    first = nanoseconds(timings.get("first_token_iteration"), zero)
    first_out = nanoseconds(timings.get("first_output_token_iteration"), zero)
    due = nanoseconds(timings.get("targeted_start"), zero)
    last = nanoseconds(timings.get("last_token_iteration"), zero)
    output = request.get("output_tokens")
    return RequestRecord(
        request_id=str(request["request_id"]),
        worker=str(info.get("scheduler_process_id", 0)),
        scenario="guidellm",
        stage=stage,
        outcome=outcome,
        detail=info.get("error"),
        t_sched=sent if due is None else min(due, sent),
        t_send=sent,
        t_first=first,
        t_first_out=first if first is None or first_out is None else first_out,
        t_last=last if outcome == "ok" else None,
        t_end=nanoseconds(ended, zero) or sent,
        chunks=int(timings.get("token_iterations") or 0),
        streamed=first is not None,
        prompt_tokens=request.get("prompt_tokens"),
        output_tokens=output if outcome == "ok" else None,
        token_source="usage" if output is not None and outcome == "ok" else None,
        session=info.get("conversation_id"),
        turn=info.get("turn_index"),
    )
