"""The result of a bench: rows of the analysis' frame, their engines, and missing measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from enginebench.records.files import read_document
from enginebench.records.quality import Quality
from enginebench.records.run import HOST, as_typed, instant
from enginebench.settings.schema import UserMistake
from engines.contract.base import EngineInfo

SCHEMA = 2
Family = Literal["loading", "prefill", "generate", "decode", "batch"]
MEDIAN, BANDWIDTH, ARITHMETIC = "median", "share of memory bandwidth", "share of arithmetic"  # statistics of a row
EVERYTHING = "all"  # in place of a case's name, if an engine failed completely


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of a bench; its `title` has a place for the size of its case."""

    family: Family
    title: str
    unit: Literal["s", "B", "share", "tokens/s"]


METRICS: Mapping[str, Metric] = {
    "load": Metric("loading", "loading time", "s"),
    "memory": Metric("loading", "memory, loaded", "B"),
    "memory peak": Metric("loading", "memory, peak", "B"),
    "device memory": Metric("loading", "device memory, peak", "B"),
    "prefill": Metric("prefill", "prefill of {} tokens", "s"),
    "prefill inside": Metric("prefill", "prefill of {} tokens, by the engine's own clock", "s"),
    "prefill memory": Metric("prefill", "peak memory, up to {} tokens", "B"),
    "decode": Metric("decode", "time per decoded token", "s"),  # measured in the longest generation
    "generate": Metric("generate", "generation of {} tokens", "s"),
    "batch": Metric("batch", "{} at a time, with prompts", "tokens/s"),
    "batch decode": Metric("batch", "{} at a time, decoding", "tokens/s"),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the frame: a metric in one round, or a limit of the machine, which has no engine.

    `load` is the size of the case: tokens of a prompt or an answer, or requests of a batch.
    """

    metric: str
    statistic: str
    unit: str
    value: float | None
    repeat: int | None
    engine: str | None = None
    model: str | None = None
    load: int | None = None
    load_unit: str | None = None
    stage: str | None = None
    n: int = 1
    study: str | None = None
    part: str | None = None


@dataclass(frozen=True, slots=True)
class BenchEngine:
    """An engine with one model and one set of options. `info` is `None` if it could not be loaded at all."""

    label: str
    engine: str
    model: str | None
    options: Mapping[str, str]
    info: EngineInfo | None = None
    quality: Quality | None = None  # measured once, in the first round


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A case of an engine that was not measured to its end, or `EVERYTHING`, and why."""

    engine: str
    case: str
    why: str


@dataclass(frozen=True, slots=True)
class BenchResult:
    """The result of a bench. All times are measured by this process, at its end of the engine's pipe."""

    made_at: str  # ISO 8601, UTC
    command: tuple[str, ...] = ()
    host: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    engines: tuple[BenchEngine, ...] = ()
    rows: tuple[Row, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    schema: int = SCHEMA

    @property
    def failures(self) -> list[str]:
        return [missing.why for missing in self.left_out if missing.case == EVERYTHING]


def to_json(result: BenchResult) -> str:
    return msgspec.json.format(msgspec.json.encode(result), indent=1).decode() + "\n"


def read_result(path: Path) -> BenchResult:
    """Read a result. Raises `UserMistake` for any other file, and `OSError` if there is none."""
    try:
        document = read_document(path, dict[str, Any])
        if document.get("schema") != SCHEMA:
            raise UserMistake(f"{path} has schema {document.get('schema')}; this version reads {SCHEMA}.")
        result = msgspec.convert(document, BenchResult)
        instant(result.made_at)
        loaded = {engine.label for engine in result.engines if engine.info is not None}
        if any(row.engine not in loaded for row in result.rows if row.engine is not None):
            raise ValueError("a row belongs to no engine")
        rows = tuple(row for row in result.rows if row.engine is None or row.metric in METRICS)  # drop unknown metrics
        return replace(result, rows=rows, host=as_typed(result.host, HOST))
    except UserMistake:
        raise
    except ValueError:
        raise UserMistake(f"{path} is not a result of `enginebench bench`.") from None
