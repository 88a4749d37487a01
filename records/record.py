"""What one request left behind: the contract between the load tests, which write it, and the analysis, which reads it.

A run is a folder:

    runs/<id>/meta.json          what, where, when, with which settings (`RunMeta`)
    runs/<id>/requests*.jsonl    one `RequestRecord` per line, written as the request ends; one file per worker process
    runs/<id>/telemetry*.jsonl   one `TelemetrySample` per line, about once a second; the server is in `telemetry.jsonl`

Time stamps are whole monotonic nanoseconds since the run's start on the worker's own clock. What was not observed is
`None`, never 0. Plain standard library, so that anything can read it.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

SCHEMA_VERSION = 1

Outcome = Literal["ok", "http_error", "rejected", "timeout", "disconnected", "bad_stream", "cut_off"]
"""How a request ended. `rejected` is a 429 or 503; `disconnected` a stream that ended early; `bad_stream` a malformed
one or an error event inside it; `cut_off` was stopped by the run's own end and is neither a success nor a failure."""

TokenSource = Literal["usage", "tokenizer"]
Stamps = Literal["kernel", "user"]
Nanoseconds = int


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. Stamps are `Nanoseconds` since the run's start, `server_*` are seconds on the server's clock."""

    request_id: str
    worker: str
    scenario: str
    stage: int
    users: int  # planned users of the stage in which the request was scheduled
    outcome: Outcome
    detail: str | None  # for people: the server's message, cut short
    status: int | None
    t_sched: Nanoseconds  # the schedule planned this request (closed loop: the user became free)
    t_send: Nanoseconds | None  # just before the first byte is written to a connected socket
    t_headers: Nanoseconds | None  # response headers complete
    t_first: Nanoseconds | None  # first chunk with non-empty content or reasoning content
    t_first_out: Nanoseconds | None  # first chunk with non-reasoning content
    t_last: Nanoseconds | None  # last content chunk
    t_end: Nanoseconds  # stream closed
    read_first: Nanoseconds | None  # user-space clock of the read that completed the first chunk
    stamps: Stamps  # which clock the receive stamps come from
    merged_first: bool  # the first chunk's read held later chunks too: its kernel stamp is an upper bound
    icl: tuple[Nanoseconds, ...]  # gaps between successive content chunks
    chunks: int  # content chunks
    first_chunk_tokens: int | None
    prompt_tokens: int | None
    output_tokens: int | None
    token_source: TokenSource | None
    text: str | None  # the answer, kept only where the server sent no usage, so that its tokens can be counted later
    reconnected: bool  # the connection had to be opened again for this request
    streamed: bool
    server_queue: float | None
    server_prefill: float | None
    server_decode: float | None
    schema: int = SCHEMA_VERSION

    def to_line(self) -> str:
        """One JSON object and a newline."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":")) + "\n"


@dataclass(frozen=True, slots=True)
class Stage:
    """A stretch of the run with a fixed number of users. Nanoseconds since the run's start.

    Only what was scheduled inside the steady window [`steady_start`, `steady_end`) is counted: the warm-up before it
    fills the server, the cool-down after it lets the last of it finish under unchanged load.
    """

    index: int
    users: int
    start: Nanoseconds
    steady_start: Nanoseconds
    steady_end: Nanoseconds
    end: Nanoseconds


@dataclass(frozen=True, slots=True)
class RunMeta:
    """Everything needed to repeat the run and to judge whether another is comparable."""

    run_id: str
    started_at: str  # ISO 8601, UTC
    scenario: str
    url: str
    model: str | None
    stages: tuple[Stage, ...]
    workload: Mapping[str, Any]  # prompt and output lengths, sampling, seed, think time, …
    engine: Mapping[str, Any] | None  # what the server's /v1/engine said; None where it has none
    host: Mapping[str, Any]  # cpu, cores, memory, os, kernel of the load generator
    versions: Mapping[str, str]
    label: str  # what reports call this run: the engine's name, or the URL
    command: tuple[str, ...]
    commit: str | None = None
    workers: int = 1
    hosts: int = 1  # machines that the workers run on
    client_error: tuple[tuple[float, float], ...] = ()  # host's calibration: chunks/s, TTFT p99 error in seconds
    schema: int = SCHEMA_VERSION

    def client_error_at(self, load: float) -> float | None:
        """Seconds by which the client's TTFT may be off at p99, at `load` streamed chunks per second.

        That of the lightest calibrated load at least as heavy; `None` where nothing as heavy was calibrated.
        """
        heavier = [cell for cell in self.client_error if cell[0] >= load]
        return min(heavier)[1] if heavier else None


@dataclass(frozen=True, slots=True)
class TelemetrySample:
    """The server's gauges and counters at one instant, by Prometheus name with labels; the generator's own CPU."""

    t: Nanoseconds
    client_cpu: float | None  # cores used by this worker process since the last sample
    server: Mapping[str, float] = field(default_factory=dict)
    loop_lag: float | None = None  # seconds by which the load generator's event loop was late
    users: int | None = None  # that this process has; its last sample says 0, unless it was killed
    lost: int = 0  # records of this process that could not be written so far


def write_meta(folder: Path, meta: RunMeta) -> None:
    """Replace `meta.json` in one step, so that a reader never sees half of it."""
    text = json.dumps(dataclasses.asdict(meta), indent=2) + "\n"
    partial = folder / "meta.json.partial"
    partial.write_text(text)
    partial.replace(folder / "meta.json")


def read_meta(folder: Path) -> RunMeta:
    """Raises `FileNotFoundError` or `ValueError` where `folder` is no run."""
    fields = json.loads((folder / "meta.json").read_text())
    if fields.get("schema") != SCHEMA_VERSION:
        raise ValueError(f"{folder} has records of schema {fields.get('schema')}; this version reads {SCHEMA_VERSION}.")
    fields["stages"] = tuple(Stage(**stage) for stage in fields["stages"])
    fields["command"] = tuple(fields["command"])
    fields["client_error"] = tuple((load, error) for load, error in fields.get("client_error", ()))
    return RunMeta(**fields)


def read_requests(folder: Path) -> Iterator[RequestRecord]:
    """Every whole line of every worker's file. A line cut short by a crash is skipped: it is the last of its file."""
    for path in sorted(folder.glob("requests*.jsonl")):
        with path.open() as lines:
            for line in lines:
                if line.endswith("\n"):
                    fields = json.loads(line)
                    fields["icl"] = tuple(fields["icl"])
                    yield RequestRecord(**fields)


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of one line of `requests*.jsonl`; published as `docs/request-record.schema.json`."""
    hints = typing.get_type_hints(RequestRecord)
    names = [f.name for f in dataclasses.fields(RequestRecord)]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "enginebench request record",
        "type": "object",
        "properties": {name: _schema_of(hints[name]) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def _schema_of(hint: Any) -> dict[str, Any]:
    origin, arms = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return {"enum": list(arms)}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(arms[0])}
    if origin is types.UnionType or origin is typing.Union:
        return {"anyOf": [_schema_of(arm) for arm in arms]}
    return {"type": {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}[hint]}
