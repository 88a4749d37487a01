"""The result of a bench: one JSON document with every sample, from which tables and gate are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

from enginebench.records.files import read_document
from enginebench.records.quality import Quality, QualityAgainst, against
from enginebench.records.run import HOST, as_typed, instant
from enginebench.settings.schema import UserMistake
from engines.bench.settings import LeftOut
from engines.contract.base import EngineInfo

SCHEMA = 1
MEMORY = "memory"  # behind a case's name: the peak up to it
DECODE = "decode"  # the measure of the time per token of the longest generation


class NotABench(UserMistake):
    """A file that holds no result of this version. One sentence; exit code 2."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What is measured under a name. `size` is that of its case: tokens or requests."""

    name: str
    family: Literal["loading", "prefill", "generate", "decode", "batch"]
    title: str
    unit: Literal["s", "B", "share", "tokens/s"]
    better: Literal["higher", "lower"]
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Limit:
    """Bytes per second that can be read, and floating-point operations per second of `dtype`; `None` where unknown."""

    device: str
    dtype: str
    bandwidth: float | None
    flops: float | None
    by: str  # the library that measured


@dataclass(frozen=True, slots=True)
class Share:
    """Of what the device allows, medians over rounds; `None` where the limit or the model's cost is not known."""

    bandwidth: float | None
    flops: float | None


@dataclass(frozen=True, slots=True)
class Series:
    """One measure of one variant: the samples of each round in the order in which they were taken."""

    measure: Measure
    rounds: tuple[tuple[float, ...], ...]
    share: Share | None = None

    @property
    def samples(self) -> list[float]:
        return [sample for one in self.rounds for sample in one]

    @property
    def medians(self) -> list[float]:
        """Of each round that has samples."""
        return [median(one) for one in self.rounds if one]


@dataclass(frozen=True, slots=True)
class Result:
    """One variant. `info` is `None` and `failure` says why where it could not be loaded at all."""

    label: str
    engine: str
    model: str | None
    options: Mapping[str, str]
    info: EngineInfo | None
    series: tuple[Series, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    failure: str | None = None
    quality: Quality | None = None  # asked once, in the first round

    def of(self, name: str) -> Series | None:
        return next((one for one in self.series if one.measure.name == name), None)

    def family(self, name: str) -> list[Series]:
        return [one for one in self.series if one.measure.family == name]


@dataclass(frozen=True, slots=True)
class Round:
    """`load_average` is that of the machine as the round began: what else ran disturbs the figures."""

    order: tuple[str, ...]
    load_average: float
    limits: tuple[Limit, ...]


@dataclass(frozen=True, slots=True)
class BenchResult:
    made_at: str  # ISO 8601, UTC
    command: tuple[str, ...]
    host: Mapping[str, Any]
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    rounds: tuple[Round, ...]
    results: tuple[Result, ...]
    stamps: str = (
        "wall clock of the measuring process, at its end of the engine's pipe; measures called inside are the engine's "
        "own time to the first token"
    )
    schema: int = SCHEMA

    @property
    def measured(self) -> list[Result]:
        return [one for one in self.results if one.series]

    @property
    def qualities(self) -> list[QualityAgainst]:
        """Each beside the first that has a quality."""
        first = next((one.quality for one in self.measured if one.quality and one.quality.logprobs), None)
        return [against(one.label, one.quality, first) for one in self.measured]


def to_json(found: BenchResult) -> str:
    return msgspec.json.format(msgspec.json.encode(found), indent=1).decode() + "\n"


def read_result(path: Path) -> BenchResult:
    """Raises `NotABench`, and `OSError` where there is no such file."""
    try:
        document = read_document(path, dict[str, Any])
        if document.get("schema") != SCHEMA:
            raise NotABench(f"{path} has schema {document.get('schema')}; this version reads {SCHEMA}.")
        result = msgspec.convert(document, BenchResult)
        instant(result.made_at)
        if any(one.info is None for one in result.measured):
            raise ValueError("a variant was measured and says nothing of its engine")
        return replace(result, host=as_typed(result.host, HOST))
    except NotABench:
        raise
    except ValueError:
        raise NotABench(f"{path} is not a result of `enginebench bench`.") from None


LOADING = {
    "load": Measure("load", "loading", "loading time", "s", "lower"),
    "memory": Measure("memory", "loading", "memory, loaded", "B", "lower"),
    "memory peak": Measure("memory peak", "loading", "memory, peak", "B", "lower"),
    "device memory": Measure("device memory", "loading", "device memory, allocated by the engine", "B", "lower"),
    "device memory used": Measure("device memory used", "loading", "device memory, by NVML", "B", "lower"),
    "kv cache": Measure("kv cache", "loading", "KV cache in use, largest batch", "share", "lower"),
}


def measure_of(name: str) -> Measure:
    """From the names that `engines.bench.measure` and `engines.bench.turns` give."""
    if name in LOADING:
        return LOADING[name]
    if name == DECODE:
        return Measure(name, "decode", "time per decoded token", "s", "lower")
    kind, size, *rest = name.split()
    number = int(size)
    if rest == [MEMORY]:
        return Measure(name, "prefill", f"peak memory, up to {number} tokens", "B", "lower", number)
    if kind == "prefill":
        inside = ", by the engine's own clock" if rest else ""
        return Measure(name, "prefill", f"prefill of {number} tokens{inside}", "s", "lower", number)
    if kind == "generate":
        return Measure(name, "generate", f"generation of {number} tokens", "s", "lower", number)
    assert kind == "batch", name
    title = f"{number} at a time, {'decoding' if rest else 'with prompts'}"
    return Measure(name, "batch", title, "tokens/s", "higher", number)
