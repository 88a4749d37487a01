"""k6's `--out json=FILE` with its requests, or `--summary-export` with aggregates.

k6 measures HTTP and knows no tokens: there is no TTFT and no TPOT. In the output of points (Grafana's documentation,
"JSON"), the points of one request have its end as `time` and its phases in milliseconds, in the order of the file:
http_req_duration = sending + waiting + receiving; waiting ends with the first byte of the response.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analysis.imports.source import (
    ANSWERED,
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
from records.request import Outcome, RequestRecord
from records.stage import SECOND

MILLISECOND = SECOND // 1000
PHASES = ("blocked", "sending", "waiting", "receiving", "duration")
LACKS = ("TTFT, TPOT or tokens: k6 sees HTTP responses, not streams", "when a request was due", *COMMON)


def is_k6(document: dict[str, Any]) -> bool:
    return "http_req_duration" in (document.get("metrics") or {})


def is_k6_point(document: dict[str, Any]) -> bool:
    return document.get("type") in {"Metric", "Point"} and "metric" in document


def read_points(path: Path) -> Results:
    """Raises `NotImportable`, and `KeyError` or `TypeError` where a field is missing."""
    points = [line for line in read_lines(path) if line.get("type") == "Point"]
    ended = [(_instant(one["time"]), phases) for one, phases in _requests(points)]
    if not ended:
        raise NotImportable(f"{path} has no http_req_duration points.")
    zero = min(end - round(phases["duration"] * MILLISECOND) for end, phases in ended)
    requests = tuple(_record(index, end - zero, phases) for index, (end, phases) in enumerate(ended))
    users = max((point["data"]["value"] for point in points if point["metric"] == "vus"), default=None)
    url = next((phases["tags"].get("url") for _, phases in ended), None)
    source = Source("k6", None, None, url, datetime.fromtimestamp(zero / SECOND, UTC).isoformat(), LACKS)
    end = max(one.t_end for one in requests) + 1
    return Results(source, stages=(ImportedStage(load_of(users, None), 0, end, requests),))


def read_summary(path: Path) -> Results:
    """Of `--summary-export`, or of what `handleSummary` is given. Raises as `read_points` does."""
    metrics = {name: one.get("values", one) for name, one in read_json(path)["metrics"].items()}
    count = metrics["http_reqs"]
    share = metrics.get("http_req_failed") or {}
    failed = round(count["count"] * (share.get("rate", share.get("value")) or 0))
    answered = metrics.get("http_req_duration{expected_response:true}")  # http_req_duration has the failed ones too
    alone = answered is not None or not failed
    duration = metrics["http_req_duration"] if answered is None else answered if failed < count["count"] else {}
    lacks = (
        "single requests (use --out json=FILE)",
        "intervals within the run",
        *LACKS,
        *(() if alone else (ANSWERED,)),
    )
    seconds = count["count"] / count["rate"] if count.get("rate") else None
    names = ("avg", "", "min", "max", "med", "p(90)", "p(95)", "p(99)")
    latency = Percentiles(*(None if duration.get(name) is None else duration[name] / 1e3 for name in names))
    users = (metrics.get("vus_max") or {}).get("max", (metrics.get("vus_max") or {}).get("value"))
    ok = int(count["count"]) - failed
    aggregates = Aggregates(load_of(users, None), seconds, ok, failed, None, {"e2e": latency}, answered_alone=alone)
    return Results(Source("k6", None, None, None, None, lacks), aggregates=(aggregates,))


def _requests(points: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each request's http_reqs point and its phases: its other points follow before the next one's."""
    current: dict[str, Any] | None = None
    phases: dict[str, Any] = {}
    for point in points:
        name = point["metric"].removeprefix("http_req_")
        if point["metric"] == "http_reqs":
            if current is not None and "duration" in phases:
                yield current, phases
            current, phases = point["data"], {"tags": point["data"].get("tags") or {}}
        elif name in PHASES and current is not None and point["metric"] != name:
            phases.setdefault(name, point["data"]["value"])
        elif name == "failed" and current is not None:
            phases.setdefault("failed", bool(point["data"]["value"]))
    if current is not None and "duration" in phases:
        yield current, phases


def _instant(text: str) -> int:
    """RFC 3339 with up to nine decimals, as nanoseconds since 1970."""
    decimals = re.search(r"\.(\d{1,9})", text)
    whole = datetime.fromisoformat(re.sub(r"\.\d+", "", text))
    return int(whole.timestamp()) * SECOND + (int(decimals[1].ljust(9, "0")) if decimals else 0)


def _record(index: int, end: int, phases: dict[str, Any]) -> RequestRecord:
    sent = end - round(phases["duration"] * MILLISECOND)
    status = str(phases["tags"].get("status") or "")
    failed = phases.get("failed", not status.startswith("2"))
    outcome: Outcome = "ok" if not failed else "rejected" if status in {"429", "503"} else "http_error"
    headers = sent + round((phases.get("sending", 0) + phases.get("waiting", 0)) * MILLISECOND)
    return RequestRecord(
        request_id=str(index),
        worker="0",
        scenario="k6",
        stage=0,
        outcome=outcome,
        detail=None if not failed else phases["tags"].get("error") or f"status {status}",
        status=int(status) if status.isdigit() and status != "0" else None,
        t_sched=sent,
        t_send=sent,
        t_headers=headers if "waiting" in phases else None,
        t_last=end if outcome == "ok" else None,
        t_end=end,
        streamed=False,
    )
