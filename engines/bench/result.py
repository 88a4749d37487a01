"""The result of a bench: one JSON document with every sample, from which the report is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

from enginebench.records.files import read_document
from enginebench.records.quality import Quality
from enginebench.records.run import HOST, as_typed, instant
from enginebench.settings.schema import UserMistake
from engines.bench.settings import LeftOut
from engines.contract.base import EngineInfo

SCHEMA = 1
Family = Literal["loading", "prefill", "generate", "decode", "batch"]
Unit = Literal["s", "B", "share", "tokens/s"]
MEMORY = "memory"  # after a case's name: the peak up to it
DECODE = "decode"  # the time per token of the longest generation
MEASURES: Mapping[str, tuple[Family, str, Unit]] = {
    "load": ("loading", "loading time", "s"),
    "memory": ("loading", "memory, loaded", "B"),
    "memory peak": ("loading", "memory, peak", "B"),
    "device memory": ("loading", "device memory, allocated by the engine", "B"),
    "device memory used": ("loading", "device memory, by NVML", "B"),
    "kv cache": ("loading", "KV cache in use, largest batch", "share"),
    "prefill": ("prefill", "prefill of {} tokens", "s"),
    "prefill inside": ("prefill", "prefill of {} tokens, by the engine's own clock", "s"),
    "prefill memory": ("prefill", "peak memory, up to {} tokens", "B"),
    DECODE: ("decode", "time per decoded token", "s"),
    "generate": ("generate", "generation of {} tokens", "s"),
    "batch": ("batch", "{} at a time, with prompts", "tokens/s"),
    "batch decode": ("batch", "{} at a time, decoding", "tokens/s"),
}
"""By the name of a `Measure` without its number."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure; `size` is that of its case: tokens or requests."""

    name: str
    family: Family
    title: str
    unit: Unit
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """Bytes per second that can be read, and floating-point operations per second of `dtype`; `None` if unknown."""

    device: str
    dtype: str
    bandwidth: float | None
    flops: float | None
    by: str  # the library that measured


@dataclass(frozen=True, slots=True)
class Share:
    """Shares of what the device allows, medians over rounds; `None` if the limit or the model's cost is unknown."""

    bandwidth: float | None
    flops: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """One measure of one variant: the samples of each round in the order in which they were taken."""

    measure: Measure
    rounds: tuple[tuple[float, ...], ...]
    share: Share | None = None

    @property
    def medians(self) -> list[float]:
        """Return the median of each round that has samples."""
        return [median(samples) for samples in self.rounds if samples]


@dataclass(frozen=True, slots=True)
class Result:
    """One variant. `info` is `None` and `failure` says why if it could not be loaded at all."""

    label: str
    engine: str
    model: str | None
    options: Mapping[str, str]
    info: EngineInfo | None
    series: tuple[Series, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    failure: str | None = None
    quality: Quality | None = None  # asked once, in the first round

    def family(self, name: str) -> list[Series]:
        return [series for series in self.series if series.measure.family == name]


@dataclass(frozen=True, slots=True)
class Round:
    order: tuple[str, ...]
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class BenchResult:
    """All times are by the wall clock of the measuring process, at its end of the engine's pipe."""

    made_at: str  # ISO 8601, UTC
    command: tuple[str, ...]
    host: Mapping[str, Any]
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    rounds: tuple[Round, ...]
    results: tuple[Result, ...]
    schema: int = SCHEMA

    @property
    def measured(self) -> list[Result]:
        return [result for result in self.results if result.series]


def measure_of(name: str) -> Measure:
    """Return the measure of a name that this package gives, such as `prefill 512 memory`."""
    words = name.split()
    size = next((int(word) for word in words if word.isdigit()), None)
    family, title, unit = MEASURES[" ".join(word for word in words if not word.isdigit())]
    return Measure(name, family, title.format(size), unit, size)


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
        if any(variant.info is None for variant in result.measured):
            raise ValueError("a measured variant lacks the facts of its engine")
        return replace(result, host=as_typed(result.host, HOST))
    except UserMistake:
        raise
    except ValueError:
        raise UserMistake(f"{path} is not a result of `enginebench bench`.") from None
