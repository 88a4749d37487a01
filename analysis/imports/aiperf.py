"""aiperf's exports: `profile_export.jsonl` with its requests, or `profile_export_aiperf.json` with aggregates.

Fields as of aiperf 0.3 and later (docs/tutorials/working-with-profile-exports.md in ai-dynamo/aiperf): Unix times in
nanoseconds under `metadata`, durations as {value, unit} under `metrics`. What the .jsonl lacks (model, load) is read
from the .json next to it, if there is one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.imports.source import (
    COMMON,
    Aggregates,
    ImportedStage,
    NotImportable,
    Percentiles,
    Results,
    Source,
    load_of,
    read_json,
    read_lines,
)
from records.load import Load
from records.request import Outcome, RequestRecord
from records.stage import SECOND

AGGREGATES = "profile_export_aiperf.json"
LATENCIES = {"time_to_first_token": "ttft", "inter_token_latency": "tpot", "request_latency": "e2e"}
SCALE = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}


def is_aiperf(document: dict[str, Any]) -> bool:
    return "request_latency" in document and "request_throughput" in document


def is_aiperf_record(document: dict[str, Any]) -> bool:
    return "request_start_ns" in (document.get("metadata") or {})


def read_records(path: Path) -> Results:
    """Raises `NotImportable`, and `KeyError` or `TypeError` where a field is missing."""
    lines = [line for line in read_lines(path) if line["metadata"].get("benchmark_phase", "profiling") == "profiling"]
    if not lines:
        raise NotImportable(f"{path} has no request of the profiling phase.")
    beside = path.with_name(AGGREGATES)
    about = read_json(beside) if beside.exists() else {}
    zero = min(int(line["metadata"]["request_start_ns"]) for line in lines)
    requests = tuple(_record(line, zero) for line in lines)
    end = max(one.t_end for one in requests) + 1
    source = _source(about, datetime.fromtimestamp(zero / 1e9, UTC).isoformat(), ("when a request was due", *COMMON))
    return Results(source, stages=(ImportedStage(_load(about), 0, end, requests),))


def read_aggregates(path: Path) -> Results:
    """Raises `NotImportable`, and `KeyError` or `TypeError` where a field is missing."""
    document = read_json(path)
    lacks = ("single requests (import profile_export.jsonl)", "intervals within the run", *COMMON)
    failed = (document.get("error_request_count") or {}).get("avg") or 0
    return Results(
        _source(document, document.get("start_time"), lacks),
        aggregates=(
            Aggregates(
                load=_load(document),
                seconds=_seconds(document.get("benchmark_duration")),
                ok=int((document.get("request_count") or {}).get("avg") or 0),
                failed=int(failed),
                throughput=(document.get("output_token_throughput") or {}).get("avg"),
                latencies={ours: _percentiles(document.get(theirs)) for theirs, ours in LATENCIES.items()},
                prompt_tokens=(document.get("input_sequence_length") or {}).get("avg"),
                output_tokens=(document.get("output_sequence_length") or {}).get("avg"),
            ),
        ),
    )


def _source(about: dict[str, Any], started_at: str | None, lacks: tuple[str, ...]) -> Source:
    endpoint = (about.get("input_config") or {}).get("endpoint") or {}
    models, urls = endpoint.get("model_names") or [None], endpoint.get("urls") or [None]
    return Source("aiperf", about.get("aiperf_version"), models[0], urls[0], started_at, lacks)


def _load(about: dict[str, Any]) -> Load | None:
    config = (about.get("input_config") or {}).get("loadgen") or {}
    return load_of(config.get("concurrency"), config.get("request_rate"))


def _record(line: dict[str, Any], zero: int) -> RequestRecord:
    about, metrics = line["metadata"], line.get("metrics") or {}
    sent, ended = int(about["request_start_ns"]) - zero, int(about["request_end_ns"]) - zero
    names = ("time_to_first_token", "time_to_first_output_token", "request_latency")  # the second after the reasoning
    ttft, ttfo, latency = (_seconds(metrics.get(name)) for name in names)
    gaps = tuple(round(gap * SECOND) for gap in _all_seconds(metrics.get("inter_chunk_latency")))
    first = None if ttft is None else sent + round(ttft * SECOND)
    outcome = _outcome(line)
    last = None
    if outcome == "ok":
        last = first + sum(gaps) if first is not None and gaps else _after(sent, latency, ended)
    acknowledged, output = about.get("request_ack_ns"), (metrics.get("output_sequence_length") or {}).get("value")
    return RequestRecord(
        request_id=str(about.get("x_request_id") or about["session_num"]),
        worker=str(about.get("worker_id") or "0"),
        scenario="aiperf",
        stage=0,
        outcome=outcome,
        detail=None if line.get("error") is None else str(line["error"].get("message"))[:200],
        status=_status(line),
        t_sched=sent,
        t_send=sent,
        t_headers=None if acknowledged is None else int(acknowledged) - zero,
        t_first=first,
        t_first_out=None if ttfo is None else sent + round(ttfo * SECOND),
        t_last=last,
        t_end=ended,
        icl=gaps if outcome == "ok" else (),
        chunks=0 if first is None else len(gaps) + 1,
        streamed=first is not None,
        prompt_tokens=_whole((metrics.get("input_sequence_length") or metrics.get("error_isl") or {}).get("value")),
        output_tokens=_whole(output) if outcome == "ok" else None,
        token_source="tokenizer" if output is not None and outcome == "ok" else None,
        reasoning_tokens=_whole((metrics.get("reasoning_token_count") or {}).get("value")),
        session=about.get("conversation_id"),
        turn=about.get("turn_index"),
        prompt_id=f"{about['conversation_id']}/{about.get('turn_index', 0)}" if about.get("conversation_id") else None,
    )


def _outcome(line: dict[str, Any]) -> Outcome:
    error = line.get("error")
    if line["metadata"].get("was_cancelled"):
        return "cut_off"
    if not error:
        return "ok"
    if error.get("code") in {429, 503}:
        return "rejected"
    return "timeout" if "timeout" in str(error.get("type")).lower() else "http_error"


def _status(line: dict[str, Any]) -> int | None:
    code = (line.get("error") or {"code": 200}).get("code")
    return code if isinstance(code, int) else None


def _after(sent: int, latency: float | None, ended: int) -> int:
    return ended if latency is None else sent + round(latency * SECOND)


def _whole(value: object) -> int | None:
    return round(value) if isinstance(value, int | float) else None


def _all_seconds(metric: dict[str, Any] | None) -> list[float]:
    values = (metric or {}).get("value")
    return [value * SCALE[metric["unit"]] for value in values] if metric and isinstance(values, list) else []


def _seconds(metric: dict[str, Any] | None) -> float | None:
    """Of a record's {value, unit}, or the mean of an aggregate's {avg, unit}."""
    value = (metric or {}).get("value", (metric or {}).get("avg"))
    return value * SCALE[metric["unit"]] if metric and isinstance(value, int | float) else None


def _percentiles(metric: dict[str, Any] | None) -> Percentiles:
    if not metric:
        return Percentiles()
    scale = SCALE[metric["unit"]]
    names = ("avg", "std", "min", "max", "p50", "p90", "p95", "p99")
    return Percentiles(*(None if metric.get(name) is None else metric[name] * scale for name in names))
