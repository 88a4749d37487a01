"""GPU metrics for Prometheus. A thread reads the GPUs once a second; a scrape returns the last readings and never
waits for a driver. If a driver fails or hangs, its readings expire."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from servers.gpu.amd import AmdDriver
from servers.gpu.families import FAMILIES, PREFIX, Device, Driver, Family, NoDriver, Reading, select_named
from servers.gpu.nvml import NvmlDriver

log = logging.getLogger("enginebench.gpu")

DRIVERS: tuple[Callable[[], Driver], ...] = (NvmlDriver, AmdDriver)  # a vendor each
STALE = 5.0  # seconds, or periods if longer, after which a reading expires


class GpuCollector(Collector):
    """The GPUs that this server's engine uses. `start` and `stop` the thread that reads them; without a GPU there is no
    thread."""

    def __init__(
        self,
        period: float = 1.0,
        drivers: Sequence[Driver] | None = None,
        used: Callable[[], Collection[str] | None] = lambda: None,
    ) -> None:
        """`used` names the engine's GPUs as CUDA_VISIBLE_DEVICES does: idle GPUs next to them do not count.

        It is called at every reading and scrape. `None` means that they are not known, and all count.
        """
        self._period = period
        self._drivers = drivers
        self._used = used
        self._gpus: list[tuple[Driver, Device]] = []
        self._readings: Mapping[str, Reading] = {}  # by the GPU's index; replaced by the thread, never modified
        self._read_at = 0.0
        self._failing: set[str] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        for driver in self._drivers if self._drivers is not None else [make() for make in DRIVERS]:
            try:
                self._gpus += [(driver, gpu) for gpu in driver.open()]
            except NoDriver as reason:
                log.info("no GPU metrics: %s", reason)
        if self._gpus:
            self.sample()
            self._thread = threading.Thread(target=self._run, name="gpu metrics", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def sample(self) -> None:
        """Read every GPU now. A GPU that cannot be read is left out, and logged once."""
        readings: dict[str, Reading] = {}
        for _, gpu in self._of_engine():
            try:
                readings[gpu.index] = gpu.read()
                self._failing.discard(gpu.index)
            except Exception as error:  # a driver may raise anything, and the next reading may succeed
                if gpu.index not in self._failing:
                    log.warning("GPU %s cannot be read, and has no metrics until it can: %r", gpu.index, error)
                self._failing.add(gpu.index)
        self._readings, self._read_at = readings, time.monotonic()

    def _of_engine(self) -> list[tuple[Driver, Device]]:
        own = select_named([gpu for _, gpu in self._gpus], self._used())
        return [(driver, gpu) for driver, gpu in self._gpus if gpu in own]

    def _run(self) -> None:
        while not self._stopping.wait(self._period):
            self.sample()

    def collect(self) -> Iterator[Metric]:
        gpus, latest = self._of_engine(), self._readings
        readings = {gpu.index: latest[gpu.index] for _, gpu in gpus if gpu.index in latest}
        if not readings or time.monotonic() - self._read_at > STALE * max(1.0, self._period):
            return
        info = InfoMetricFamily(PREFIX.rstrip("_"), "The GPUs of this server.")
        for driver, gpu in gpus:
            info.add_metric([], {"gpu": gpu.index, "name": gpu.name, "uuid": gpu.uuid, "driver": driver.version})
        yield info
        for family in FAMILIES:
            metric = _metric(family, readings)
            if metric.samples:
                yield metric


def _metric(family: Family, readings: Mapping[str, Reading]) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if family.counter else GaugeMetricFamily
    metric = kind(PREFIX + family.name, family.help, labels=["gpu", *family.labels])
    for index, reading in readings.items():
        for (name, *labels), value in reading.items():
            if name == family.name:
                metric.add_metric([index, *labels], value)
    return metric
