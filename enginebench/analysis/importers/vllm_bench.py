"""The JSON of `vllm bench serve --save-result --save-detailed`, which has the requests.

Fields as of vllm/benchmarks/serve.py: seconds in the lists `ttfts`, `itls`, `latencies` and `start_times`, all in the
order of the requests. A request that failed has an `errors` entry that is not empty.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from enginebench.analysis.importers.results import (
    COMMON,
    ImportedStage,
    NotImportable,
    Results,
    Source,
    load_of,
    nanoseconds,
)
from enginebench.records.load import Load, Rate
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND

LACKS = ("HTTP status codes", "when a request was due", *COMMON)


def is_vllm(document: dict[str, Any]) -> bool:
    return {"request_throughput", "total_input_tokens", "completed"} <= document.keys()


def read(document: dict[str, Any]) -> Results:
    """Raises `NotImportable`, and `KeyError` or `TypeError` where a field is missing."""
    if not document.get("start_times"):
        raise NotImportable(
            "has no requests with their start times: run `vllm bench serve` of a new vLLM with --save-detailed."
        )
    source = Source(
        tool="vllm bench serve",
        version=None,
        model=document.get("model_id"),
        url=None,
        started_at=_date(document.get("date")),
        lacks=LACKS,
        settings={key: document.get(key) for key in ("num_prompts", "request_rate", "burstiness", "max_concurrency")},
    )
    return Results(source, stages=(_stage(document),))


def _date(text: object) -> str | None:
    try:
        return datetime.strptime(str(text), "%Y%m%d-%H%M%S").replace(tzinfo=UTC).isoformat()
    except ValueError:
        return None


def _stage(document: dict[str, Any]) -> ImportedStage:
    zero = min(document["start_times"])
    requests = tuple(_record(document, index, zero) for index in range(len(document["start_times"])))
    return ImportedStage(_load(document, len(requests)), 0, max(record.t_end for record in requests) + 1, requests)


def _load(document: dict[str, Any], at_once: int) -> Load | None:
    """Of `at_once` requests where the file says neither a rate nor a limit; `None` for a ramp, which has no one rate.

    Its gaps are gamma-distributed with the shape `burstiness`, so their coefficient of variation is 1/√burstiness.
    """
    if document.get("ramp_up_strategy"):
        return None
    load = load_of(document.get("max_concurrency") or at_once, document.get("request_rate"))
    shape = document.get("burstiness")
    if isinstance(load, Rate) and shape not in {None, 1}:
        return msgspec.structs.replace(load, arrivals=f"gamma:cv={shape**-0.5:g}")
    return load


def _record(document: dict[str, Any], index: int, zero: float) -> RequestRecord:
    error = (document.get("errors") or [""] * (index + 1))[index]
    sent = nanoseconds(document["start_times"][index], zero) or 0
    gaps = tuple(round(gap * SECOND) for gap in document["itls"][index])
    ttft = document["ttfts"][index]
    first = sent + round(ttft * SECOND) if ttft > 0 else None
    last = None if first is None else first + sum(gaps)
    ok = not error and last is not None
    latency = (document.get("latencies") or [None] * (index + 1))[index]
    ended = sent + round(latency * SECOND) if latency else None
    return RequestRecord(
        request_id=str(index),
        worker="0",
        scenario="vllm bench serve",
        stage=0,
        outcome="ok" if ok else "http_error",
        detail=str(error)[:200] if error else None,
        t_sched=sent,
        t_send=sent,
        t_first=first,
        t_first_out=first,
        t_last=last if ok else None,
        t_end=max(ended or 0, last or sent),
        icl=gaps,
        chunks=len(gaps) + 1 if first is not None else 0,
        prompt_tokens=document["input_lens"][index],
        output_tokens=document["output_lens"][index] if ok else None,
        token_source="tokenizer" if ok else None,
    )
