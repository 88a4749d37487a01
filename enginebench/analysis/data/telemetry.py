"""The values that the server, its GPU and the load generator report about once a second, as columns.

Names and units of the quantities are in records/telemetry.py. Missing quantities are `None`: a machine without a GPU
has no GPU utilisation of 0.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from enginebench.analysis.arrays import Floats, Integers
from enginebench.records import files
from enginebench.records.stage import SECOND
from enginebench.records.telemetry import (
    COUNTERS,
    GAUGES,
    LOAD_GENERATOR_GAUGES,
    SPECULATION,
    Published,
    Source,
    TelemetrySample,
    server_of,
)
from enginebench.records.view import Level

NEAR = 2 * SECOND  # samples normally follow each other after one second
OWN = (*LOAD_GENERATOR_GAUGES, "users")  # what a process of the load generator reports about itself
ENERGY = "gpu_energy_joules"
SOURCES: Mapping[str, Source] = {**GAUGES, **COUNTERS, **SPECULATION}
COMBINE: Mapping[str, Callable[[list[float]], float]] = {"sum": sum, "mean": fmean, "max": max, "count": len}
Series = tuple[Integers, Floats]
NOTHING: Series = (np.zeros(0, np.int64), np.zeros(0))
MAX_INSTANTS = 1_000_000  # at which the users of a window are counted
ALWAYS = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Increase:
    """The increase of a counter between two samples inside a window, and the instants of the samples (nanoseconds)."""

    amount: float
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ProcessSamples:
    """Samples of one process of the load generator: instants, in time order, and values by quantity."""

    series: Mapping[str, Series]  # the sampled quantities of `OWN` and `SOURCES`
    last: int  # instant of the last sample
    ended: bool  # cleanly
    lost: int  # records that could not be written
    users: int | None  # at the last sample
    servers: frozenset[str] = frozenset()  # the names in `SERVERS` whose series were sampled

    def within(self, quantity: str, start: int, end: int) -> Series:
        instants, values = self.series.get(quantity, NOTHING)
        inside = slice(*np.searchsorted(instants, [start, end]))
        return instants[inside], values[inside]


@dataclass(frozen=True, slots=True)
class TelemetrySeries:
    """All samples of a run by process; the planning process is called `files.PLANNER`."""

    processes: Mapping[str, ProcessSamples]

    @property
    def last(self) -> int:
        """Return the last instant of any sample, 0 if there is none."""
        return max((process.last for process in self.processes.values()), default=0)

    @property
    def load_workers(self) -> set[str]:
        """Return the worker processes that Locust's master had."""
        return set(self.processes) - {files.PLANNER}

    @property
    def lost(self) -> int:
        """Return the known number of records that could not be written."""
        return sum(process.lost for process in self.processes.values())

    @property
    def killed(self) -> dict[str, ProcessSamples]:
        """Return the processes that did not end cleanly."""
        return {name: process for name, process in self.processes.items() if not process.ended}

    def users(self, start: int, end: int, planned: int) -> float | None:
        """Return the time average over a window of the planned users that were running, in all processes.

        Between two samples, the larger number of users counts; 0 if both samples are further away than `NEAR`.
        """
        instants = np.arange(start, end, max(SECOND // 4, (end - start) // MAX_INSTANTS))
        samples = [process.series["users"] for process in self.processes.values() if "users" in process.series]
        if not samples or len(instants) == 0:
            return None
        there = np.zeros(len(instants))
        for times, counts in samples:
            after = np.searchsorted(times, instants)
            neighbours = [np.clip(after - 1, 0, None), np.clip(after, None, len(times) - 1)]
            there += np.max([np.where(np.abs(times[k] - instants) <= NEAR, counts[k], 0) for k in neighbours], axis=0)
        return float(np.minimum(there, planned).mean())

    def series(self, quantity: str, start: int = ALWAYS[0], end: int = ALWAYS[1]) -> Series:
        """Return the instants and values of a quantity of `SOURCES` in [start, end), in its declared unit, from the
        first process that sampled the server; empty if none did."""
        sampled = (process.within(quantity, start, end) for process in self.processes.values())
        return next((series for series in sampled if len(series[0])), NOTHING)

    def level(self, quantity: str, start: int, end: int) -> Level | None:
        return _level(self.series(quantity, start, end))

    def increase(self, quantity: str, start: int, end: int) -> Increase | None:
        """Return `None` with fewer than two samples, or if the counter was reset because the server was restarted."""
        instants, values = self.series(quantity, start, end)
        if len(values) < 2 or (np.diff(values) < 0).any():
            return None
        return Increase(float(values[-1] - values[0]), int(instants[0]), int(instants[-1]))

    def energy(self, start: int, end: int) -> Increase | None:
        """Read the GPUs' energy counters, else integrate their power by trapezoids."""
        counted = self.increase(ENERGY, start, end)
        if counted is not None:
            return counted
        instants, watts = self.series("gpu_power_watts", start, end)
        if len(watts) < 2:
            return None
        return Increase(float(np.trapezoid(watts, instants / SECOND)), int(instants[0]), int(instants[-1]))

    def last_sample(self, quantity: str, end: int) -> int | None:
        """Return when the quantity was last sampled before `end`; `None` if it never was."""
        instants, _ = self.series(quantity, end=end)
        return int(instants[-1]) if len(instants) else None

    def worst_process(self, quantity: str, start: int, end: int) -> Level | None:
        """Return the level of one of `OWN` in the process of the load generator with the largest mean."""
        levels = [_level(process.within(quantity, start, end)) for process in self.processes.values()]
        return max((level for level in levels if level is not None), key=lambda level: level.mean, default=None)


def _level(series: Series) -> Level | None:
    _, values = series
    return Level(float(values.mean()), float(values.max())) if len(values) else None


class _Columns:
    """Samples as they are read. A day has millions of names and values; only the numbers are kept."""

    def __init__(self) -> None:
        self._instants: dict[str, array[int]] = defaultdict(lambda: array("q"))
        self._values: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self._meanings: dict[str, list[tuple[str, int, Published]]] = {}  # by name with labels
        self.servers: set[str] = set()
        self._gpus = 0  # the largest number in a sample

    def add(self, sample: TelemetrySample) -> None:
        for name in OWN:
            if (value := getattr(sample, name)) is not None:
                self._append(name, sample.t, value)
        values: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
        for name, published in sample.server.items():
            if name not in self._meanings:
                bare, _, labels = name.partition("{")
                server, bare = server_of(bare) or ("", bare)
                self.servers |= {server} - {""}
                self._meanings[name] = list(_meanings_of(bare, labels))
            for quantity, place, meaning in self._meanings[name]:
                values[quantity][place].append(meaning.value(published))
        for quantity, by_place in values.items():
            if quantity == ENERGY and not self._counts_all_gpus(len(by_place[min(by_place)])):
                continue
            self._append(quantity, sample.t, COMBINE[SOURCES[quantity].combine](by_place[min(by_place)]))

    def _counts_all_gpus(self, gpus: int) -> bool:
        """Return whether a sample has the energy of all GPUs. A driver may fail to answer for one, and the sum would
        lack all joules that this GPU ever counted: samples with fewer GPUs than others are left out."""
        if gpus > self._gpus:
            self._gpus = gpus
            self._instants.pop(ENERGY, None)
            self._values.pop(ENERGY, None)
        return gpus == self._gpus

    def _append(self, quantity: str, t: int, value: float) -> None:
        self._instants[quantity].append(t)
        self._values[quantity].append(value)

    def series(self) -> dict[str, Series]:
        series = {}
        for quantity, instants in self._instants.items():
            times, values = np.array(instants, np.int64), np.array(self._values[quantity], np.float64)
            order = np.argsort(times, kind="stable")
            series[quantity] = (times[order], values[order])
        return series


def _meanings_of(bare: str, labels: str) -> Iterator[tuple[str, int, Published]]:
    """Yield each quantity that a published name is a part of, with the name's index in the quantity."""
    for quantity, source in SOURCES.items():
        for place, published in enumerate(source.published):
            if published.name == bare and published.takes(labels):
                yield quantity, place, published


def read_telemetry(folder: Path) -> TelemetrySeries:
    """Read every process's file; skip lines that are not samples."""
    processes = {}
    for path in files.telemetry_files(folder):
        columns, last = _Columns(), None
        for sample in files.read_samples(path):
            columns.add(sample)
            if last is None or sample.t >= last.t:
                last = sample
        if last is not None:
            processes[files.process_of(path)] = ProcessSamples(
                columns.series(),
                last.t,
                last.last,
                last.lost,
                last.users,
                frozenset(columns.servers),
            )
    return TelemetrySeries(processes)
