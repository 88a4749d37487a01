"""What a reader of another tool's results returns: requests where the file has them, else aggregates.

Times are seconds on any one clock. What the file does not have is `None`, and `lacks` says so in words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from records.load import Load, Rate, Users
from records.request import RequestRecord
from records.stage import SECOND

CLIENT_CLOCK = "kernel receive stamps, client lag"
SERVER_TIMES = "the server's queue and prefill times"
TELEMETRY = "telemetry of the server, GPU and load generator"
ANSWERED = "latencies of the answered requests alone: those that failed are among them"
COMMON = (CLIENT_CLOCK, SERVER_TIMES, TELEMETRY)


class NotImportable(Exception):
    """A file that cannot be imported. One sentence, with the way out."""


@dataclass(frozen=True, slots=True)
class Source:
    """Facts about a whole file."""

    tool: str
    version: str | None
    model: str | None
    url: str | None
    started_at: str | None  # ISO 8601
    lacks: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ImportedStage:
    """One benchmark of the file with its requests. `load` is `None` where the file does not say. The window is the part
    that the tool itself counted: from `start` to `end`, nanoseconds since the first instant of the file."""

    load: Load | None
    start: int
    end: int
    requests: tuple[RequestRecord, ...]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of one latency, in seconds."""

    mean: float | None = None
    deviation: float | None = None
    least: float | None = None
    largest: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


@dataclass(frozen=True, slots=True)
class Aggregates:
    """One benchmark of a file that has no single requests. `latencies` by the names of records/metrics.py.

    `answered_alone` is whether they leave out the requests that failed.
    """

    load: Load | None
    seconds: float | None
    ok: int
    failed: int
    throughput: float | None  # output tokens per second
    latencies: Mapping[str, Percentiles]
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    answered_alone: bool = True


@dataclass(frozen=True, slots=True)
class Results:
    """A file: stages with requests, or aggregates. One of the two is empty."""

    source: Source
    stages: tuple[ImportedStage, ...] = ()
    aggregates: tuple[Aggregates, ...] = ()


def nanoseconds(seconds: float | None, zero: float) -> int | None:
    """Since `zero`, on the same clock."""
    return None if seconds is None else round((seconds - zero) * SECOND)


def load_of(users: object, rate: object) -> Load | None:
    """A rate where there is one, else users; text such as `inf` is no rate."""
    if isinstance(rate, int | float) and 0 < rate < float("inf"):
        return Rate(float(rate))
    return Users(int(users)) if isinstance(users, int | float) and users >= 1 else None


def read_json(path: Path) -> dict[str, Any]:
    """Raises `NotImportable`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise NotImportable(f"{path} is not JSON ({error}).") from None
    if not isinstance(document, dict):
        raise NotImportable(f"{path} holds no JSON object.")
    return document


def read_lines(path: Path) -> list[dict[str, Any]]:
    """JSON Lines; a last line that was cut short is left out. Raises `NotImportable`."""
    found = []
    # splitlines() would also split at U+2028 and U+0085, which JSON may hold unescaped.
    lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    for number, line in enumerate(lines, 1):
        try:
            document = json.loads(line) if line.strip() else None
        except ValueError as error:
            if number == len(lines):
                break
            raise NotImportable(f"line {number} of {path} is not JSON ({error}).") from None
        if isinstance(document, dict):
            found.append(document)
    return found
