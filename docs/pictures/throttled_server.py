"""A server of the fake engine on a scripted GPU that grows hot, lowers its clock rates, and so slows the engine down.

python -m docs.pictures.throttled_server PORT SECONDS      # SECONDS until the GPU is hot
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pynvml

from enginebench.settings.schema import setting
from engines.fake.engine import FakeEngine, FakeOptions
from tests.support.servers.gpu_server import ScriptedDriver

COOL_MHZ, HOT_MHZ = 1980, 1080  # clock rates of an H100 at full speed and slowed down by heat
COOL_WATTS, HOT_WATTS = 640.0, 390.0
COOL_CELSIUS, HOT_CELSIUS, HEATING = 66.0, 90.0, 20.0  # HEATING seconds of rising temperature before the slowdown


@dataclass(frozen=True, slots=True)
class ThrottledOptions(FakeOptions):
    hot_at: float = setting(0.0, "instant on the monotonic clock from which on the GPU is slow")


class ThrottledEngine(FakeEngine):
    """Each delay grows as the clock rate falls."""

    Options = ThrottledOptions
    options: ThrottledOptions

    def _delay(self, fate: random.Random, seconds: float) -> float:
        slower = COOL_MHZ / HOT_MHZ if time.monotonic() >= self.options.hot_at else 1.0
        return slower * super()._delay(fate, seconds)


class ThrottledGpu(ScriptedDriver):
    def __init__(self, hot_at: float) -> None:
        super().__init__(time.monotonic())
        self._hot_at = hot_at

    @property
    def _hot(self) -> bool:
        return time.monotonic() >= self._hot_at

    def nvmlDeviceGetTemperatureV(self, gpu: int, sensor: int) -> int:
        risen = min(max(1 - (self._hot_at - time.monotonic()) / HEATING, 0.0), 1.0)
        return round(COOL_CELSIUS + risen * (HOT_CELSIUS - COOL_CELSIUS))

    def nvmlDeviceGetClockInfo(self, gpu: int, clock: int) -> int:
        if clock == pynvml.NVML_CLOCK_MEM:
            return 2619
        return HOT_MHZ if self._hot else COOL_MHZ

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: int) -> int:
        return int(pynvml.nvmlClocksEventReasonHwThermalSlowdown) if self._hot else 0

    def nvmlDeviceGetPowerUsage(self, gpu: int) -> int:
        return int((HOT_WATTS if self._hot else COOL_WATTS) * 1e3)

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: int) -> int:
        now = time.monotonic()
        cool, hot = min(now, self._hot_at) - self._since, max(now - self._hot_at, 0.0)
        return int((cool * COOL_WATTS + hot * HOT_WATTS) * 1e3)

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=98, memory=40 if self._hot else 70)

    def nvmlGpmMetricsGet(self, wanted: Any) -> Any:
        for metric in wanted.metrics[: wanted.numMetrics]:
            metric.value, metric.nvmlReturn = 40.0 if self._hot else 70.0, pynvml.NVML_SUCCESS
        return wanted

    def nvmlEventSetWait(self, events: object, milliseconds: int) -> SimpleNamespace:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)  # no Xid


def main() -> None:
    import servers.app
    from engines.process.child import ChildEngine
    from servers.gpu.collector import GpuCollector
    from servers.gpu.nvml import NvmlDriver
    from servers.http.address import listen
    from servers.openai.prompts import ByteTokenizer
    from servers.serve import run
    from servers.settings import ServerSettings

    port, hot_at = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    options = {"ttft": "0.15", "tpot": "0.02", "jitter": "0.2", "concurrency": "16", "hot_at": str(hot_at)}
    engine = ChildEngine("fake", None, options, target=f"{__spec__.name}:ThrottledEngine")
    settings = ServerSettings(port=port)
    collector = partial(GpuCollector, drivers=[NvmlDriver(ThrottledGpu(hot_at), {})])
    with patch.object(servers.app, "GpuCollector", collector):
        app = servers.app.create_app(engine, ByteTokenizer(), settings)
    run(app, listen(settings))


if __name__ == "__main__":
    main()
