"""The JSON of `vllm bench serve --save-result --save-detailed`, which has the requests.

Fields as of vllm/benchmarks/serve.py: seconds in the lists `ttfts`, `itls`, `latencies` and `start_times`, all in the
order of the requests. A failed request has a non-empty entry in `errors`. A request that was answered without
streaming, or whose first token was not seen, has a TTFT of 0.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from enginebench.analysis.formats.results import (
    COMMON,
    ImportedStage,
    NotImportable,
    Results,
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
    """Read a file. Raises `NotImportable`, and `KeyError` or `TypeError` if a field is missing."""
    if not document.get("start_times"):
        raise NotImportable(
            "has no requests with their start times: run `vllm bench serve` of a new vLLM with --save-detailed."
        )
    answered = _answered(document)
    stage = _stage(document, answered)
    limited = isinstance(stage.load, Rate) and document.get("max_concurrency") is not None
    unseen = sum(record.outcome == "ok" and record.t_first is None for record in stage.requests)
    return Results(
        tool="vllm bench serve",
        stages=(stage,),
        lacks=(*LACKS, f"TTFT of {unseen} answers") if unseen else LACKS,
        model=document.get("model_id"),
        started_at=_date(document.get("date")),
        settings={"max_concurrency": document["max_concurrency"]} if limited else {},
    )


def _answered(document: dict[str, Any]) -> list[bool]:
    """Return for each request whether it succeeded. Raises `NotImportable`."""
    count = len(document["start_times"])
    answered = [not error for error in document.get("errors") or [""] * count]
    if sum(answered) != document["completed"]:  # a failure without a message has neither TTFT nor tokens
        seen = zip(answered, document["ttfts"], document["output_lens"], strict=True)
        answered = [ok and (ttft > 0 or tokens > 0) for ok, ttft, tokens in seen]
    if sum(answered) != document["completed"]:
        raise NotImportable(f"has {sum(answered)} answers, and says that {document['completed']} were completed.")
    return answered


def _date(text: object) -> datetime | None:
    try:
        return datetime.strptime(str(text), "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None


def _stage(document: dict[str, Any], answered: list[bool]) -> ImportedStage:
    zero = min(document["start_times"])
    requests = tuple(_record(document, index, zero, ok) for index, ok in enumerate(answered))
    return ImportedStage(_load(document, len(requests)), 0, max(record.t_end for record in requests) + 1, requests)


def _load(document: dict[str, Any], at_once: int) -> Load | None:
    """Return `at_once` users if the file has neither a rate nor a limit; `None` for a ramp, which has several rates.

    Gaps are gamma-distributed with the shape `burstiness`, so their coefficient of variation is 1/√burstiness.
    """
    if document.get("ramp_up_strategy"):
        return None
    load = load_of(document.get("max_concurrency") or at_once, document.get("request_rate"))
    shape = document.get("burstiness")
    if isinstance(load, Rate) and shape not in {None, 1}:
        return msgspec.structs.replace(load, arrivals=f"gamma:cv={shape**-0.5:g}")
    return load


def _record(document: dict[str, Any], index: int, zero: float, ok: bool) -> RequestRecord:
    """Read a request. Raises `NotImportable` for an answer without any time."""
    error = (document.get("errors") or [""] * (index + 1))[index]
    sent = nanoseconds(document["start_times"][index], zero) or 0
    gaps = tuple(round(float(gap) * SECOND) for gap in document["itls"][index])
    ttft = float(document["ttfts"][index])
    first = sent + round(ttft * SECOND) if ttft > 0 else None
    latency = (document.get("latencies") or [None] * (index + 1))[index]
    ended = sent + round(float(latency) * SECOND) if latency else None
    last = ended if first is None else first + sum(gaps)
    if ok and last is None:
        raise NotImportable("has answers without TTFT and latency: measure again with a streaming backend.")
    output = document["output_lens"][index]
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
        streamed=not ok or first is not None or bool(gaps),
        chunks=len(gaps) + 1 if first is not None or gaps else 0,
        prompt_tokens=document["input_lens"][index],
        output_tokens=output if ok and output else None,
        token_source="tokenizer" if ok and output else None,
    )
