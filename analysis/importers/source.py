"""What a reader of another tool's results returns: stages with their requests.

What the file does not have is `None`, and `lacks` says so in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from records.load import Load, Rate, Users
from records.request import RequestRecord
from records.stage import SECOND
from settings.schema import UserMistake

CLIENT_CLOCK = "kernel receive stamps, client lag"
SERVER_TIMES = "the server's queue and prefill times"
TELEMETRY = "telemetry of the server, GPU and load generator"
COMMON = (CLIENT_CLOCK, SERVER_TIMES, TELEMETRY)


class NotImportable(UserMistake):
    """A file that cannot be imported. One sentence, with the way out; that of a reader follows the file's name."""


@dataclass(frozen=True, slots=True)
class Source:
    """Facts about a whole file."""

    tool: str
    version: str | None
    model: str | None
    url: str | None
    started_at: str | None  # ISO 8601
    lacks: tuple[str, ...]
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ImportedStage:
    """One benchmark of the file with its requests. `load` is `None` where the file does not say. The window is the part
    that the tool itself counted: from `start` to `end`, nanoseconds since the first instant of the file."""

    load: Load | None
    start: int
    end: int
    requests: tuple[RequestRecord, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """A whole file."""

    source: Source
    stages: tuple[ImportedStage, ...]


def nanoseconds(seconds: float | None, zero: float) -> int | None:
    """Since `zero`, on the same clock."""
    return None if seconds is None else round((seconds - zero) * SECOND)


def load_of(users: object, rate: object) -> Load | None:
    """A rate where there is one, else users; text such as `inf` is no rate."""
    if isinstance(rate, int | float) and 0 < rate < float("inf"):
        return Rate(float(rate))
    return Users(int(users)) if isinstance(users, int | float) and users >= 1 else None
