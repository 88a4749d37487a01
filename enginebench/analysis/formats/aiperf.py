"""aiperf's `profile_export.jsonl`: one line for each request.

Fields as of aiperf 0.13 (common/models/record_models.py in ai-dynamo/aiperf): Unix times in nanoseconds in `metadata`,
durations in milliseconds in `metrics`. The file does not name the load.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from enginebench.analysis.formats.results import COMMON, ImportedStage, NotImportable, Results, most_in_flight
from enginebench.records.load import Users
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND

LACKS = ("load setting (users: the most requests in flight)", "HTTP status codes", *COMMON)


def is_aiperf(document: dict[str, Any]) -> bool:
    return isinstance(document.get("metadata"), dict) and "request_start_ns" in document["metadata"]


def read(documents: Sequence[dict[str, Any]]) -> Results:
    """Read the lines. Raises `NotImportable`, and `KeyError` or `TypeError` if a field is missing."""
    measured = [document for document in documents if document["metadata"]["benchmark_phase"] == "profiling"]
    if not measured:
        raise NotImportable("has no requests of the phase `profiling`: measure again without stopping it.")
    zero = min(_due(document["metadata"]) for document in measured)
    requests = tuple(_record(document, zero) for document in measured)
    end = max(record.t_end for record in requests) + 1
    stage = ImportedStage(Users(most_in_flight(requests)), 0, end, requests)
    return Results("aiperf", (stage,), LACKS, started_at=datetime.fromtimestamp(zero / SECOND, UTC))


def _due(metadata: dict[str, Any]) -> int:
    start: int = metadata["request_start_ns"]
    return min(start, metadata.get("credit_issued_ns") or start)


def _record(document: dict[str, Any], zero: int) -> RequestRecord:
    metadata, error = document["metadata"], document.get("error")
    values = {name: metric["value"] for name, metric in document["metrics"].items()}
    sent = metadata["request_start_ns"] - zero
    first, last = (
        sent + _nanoseconds(values[name]) if name in values else None
        for name in ("time_to_first_token", "request_latency")
    )
    cut_off = bool(metadata.get("was_cancelled"))
    ok = not error and not cut_off
    output = values.get("usage_completion_tokens")
    counted = values.get("output_sequence_length") if output is None else output
    gaps = values.get("inter_chunk_latency") or ()
    return RequestRecord(
        request_id=str(metadata["x_request_id"]),
        worker=str(metadata["worker_id"]),
        scenario="aiperf",
        stage=0,
        outcome="ok" if ok else "cut_off" if cut_off else "http_error",
        detail=str(error["message"])[:200] if error else None,
        t_sched=_due(metadata) - zero,
        t_send=sent,
        t_first=first,
        t_last=last if ok else None,
        t_end=metadata["request_end_ns"] - zero,
        icl=tuple(map(_nanoseconds, gaps)),
        chunks=0 if first is None else len(gaps) + 1,
        streamed=first is not None,
        prompt_tokens=values.get("input_sequence_length"),
        output_tokens=counted if ok else None,
        token_source=None if not ok or counted is None else "tokenizer" if output is None else "usage",
        session=metadata.get("conversation_id"),
        turn=metadata.get("turn_index"),
    )


def _nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * SECOND / 1000)
