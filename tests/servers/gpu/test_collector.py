"""GPU numbers against a scripted driver: units, what a device cannot tell, and machines without one."""

import re
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from engines.process.supervisor import ChildEngine
from servers.app import create_app
from servers.gpu.collector import GpuCollector
from servers.gpu.nvml import NvmlDriver
from servers.openai.prompts import ByteTokenizer
from servers.prometheus_metrics import registry_of
from servers.settings import ServerSettings

Answers = dict[str, Callable[..., Any]]


class Driver:
    """NVML with the answers it is given; to every other question it says, as the real one does, "not supported"."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if name in self._answers:
            return self._answers[name]
        if name.startswith("nvml") and not name.startswith(("nvmlClocksEventReason", "nvmlEventType")):
            return self._not_supported
        return getattr(pynvml, name)

    def _not_supported(self, *arguments: Any) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def machine(*gpus: Answers) -> Driver:
    """A driver whose devices answer by their own dictionaries."""

    def by_device(question: str) -> Callable[..., Any]:
        def ask(gpu: int, *more: Any) -> Any:
            if question not in gpus[gpu]:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return gpus[gpu][question](*more)

        return ask

    questions = {question for gpu in gpus for question in gpu}
    return Driver(
        {
            "nvmlInit": lambda: None,
            "nvmlDeviceGetCount": lambda: len(gpus),
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlSystemGetDriverVersion": lambda: "600.1",
            **{question: by_device(question) for question in questions},
        }
    )


BUSY: Answers = {
    "nvmlDeviceGetName": lambda: "Test GPU",
    "nvmlDeviceGetUUID": lambda: "GPU-1",
    "nvmlDeviceGetUtilizationRates": lambda: SimpleNamespace(gpu=75, memory=40),
    "nvmlDeviceGetMemoryInfo": lambda: SimpleNamespace(used=3_000, total=8_000),
    "nvmlDeviceGetPowerUsage": lambda: 350_500,
    "nvmlDeviceGetEnforcedPowerLimit": lambda: 700_000,
    "nvmlDeviceGetTotalEnergyConsumption": lambda: 12_345,
    "nvmlDeviceGetTemperature": lambda sensor: 61,
    "nvmlDeviceGetClockInfo": lambda clock: {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 2619}[clock],
    "nvmlDeviceGetPcieThroughput": lambda counter: {0: 5, 1: 7}[counter],
    "nvmlDeviceGetCurrentClocksEventReasons": lambda: (
        pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle
    ),
}


def scraped(driver: Driver, **environment: str) -> dict[str, float]:
    """Values by name and labels, as `name gpu`."""
    return scraped_once(GpuCollector(3600, [NvmlDriver(driver, environment)]))


def scraped_once(collector: GpuCollector) -> dict[str, float]:
    collector.start()
    try:
        return samples_of(collector)
    finally:
        collector.stop()


def samples_of(collector: GpuCollector) -> dict[str, float]:
    text = generate_latest(registry_of([collector])).decode()
    return {
        sample.name.removeprefix("enginebench_gpu_") + "".join(f" {value}" for value in sample.labels.values()): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("enginebench_gpu_")
    }


def test_a_lost_gpu_hides_no_other() -> None:
    answers = dict(BUSY)
    driver = machine(answers, answers)

    def handle(index: int) -> int:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    driver.nvmlDeviceGetHandleByIndex = handle  # type: ignore[attr-defined]
    seen = scraped(driver)
    assert seen["utilization_ratio 1"] == 0.75
    assert "utilization_ratio 0" not in seen


def test_everything_in_base_units() -> None:
    seen = scraped(machine(BUSY))
    assert seen == {
        "info 600.1 0 Test GPU GPU-1": 1,
        "utilization_ratio 0": 0.75,
        "memory_utilization_ratio 0": 0.4,
        "memory_used_bytes 0": 3000,
        "memory_total_bytes 0": 8000,
        "power_watts 0": 350.5,
        "power_limit_watts 0": 700,
        "energy_joules_total 0": 12.345,
        "temperature_celsius 0": 61,
        "sm_clock_hertz 0": 1.98e9,
        "memory_clock_hertz 0": 2.619e9,
        "pcie_sent_bytes_per_second 0": 5000,
        "pcie_received_bytes_per_second 0": 7000,
        "throttled 0 power_cap": 1,
        "throttled 0 software_thermal": 0,
        "throttled 0 hardware_thermal": 0,
        "throttled 0 hardware_slowdown": 0,
        "throttled 0 power_brake": 0,
    }


def test_what_a_device_cannot_tell_is_absent() -> None:
    reticent: Answers = {"nvmlDeviceGetName": lambda: "Old GPU", "nvmlDeviceGetTemperature": lambda sensor: 40}
    seen = scraped(machine(BUSY, reticent))
    assert {name for name in seen if name.split()[1:2] == ["1"]} == {"temperature_celsius 1"}
    assert seen["power_watts 0"] == 350.5


def test_an_older_pynvml_tells_the_rest() -> None:
    """A GPU machine's own package, which an archive without network takes."""
    newer = ("nvmlGpm", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlClocksEventReason")

    class Older(Driver):
        def __getattr__(self, name: str) -> Any:
            if name.startswith(newer):
                raise AttributeError(name)
            return super().__getattr__(name)

    seen = scraped(Older(machine(BUSY)._answers))
    assert not [name for name in seen if name.startswith("throttled")]
    assert (seen["temperature_celsius 0"], seen["power_watts 0"], seen["memory_used_bytes 0"]) == (61, 350.5, 3000)


@pytest.mark.parametrize(
    "error", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_NO_PERMISSION]
)
def test_without_a_driver_there_is_nothing(error: int) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(error)

    assert scraped(Driver({"nvmlInit": refuse})) == scraped(machine()) == {}, "nor without a GPU"


def test_the_thread_goes_on_reading() -> None:
    readings = iter(range(1, 1_000_000))
    collector = GpuCollector(
        0.005, [NvmlDriver(machine({"nvmlDeviceGetTotalEnergyConsumption": lambda: 1000 * next(readings)}), {})]
    )
    collector.start()
    try:
        deadline = time.monotonic() + 10
        while samples_of(collector)["energy_joules_total 0"] < 5:
            assert time.monotonic() < deadline
            time.sleep(0.005)
    finally:
        collector.stop()
    last = samples_of(collector)
    time.sleep(0.03)
    assert samples_of(collector) == last  # stopped means stopped


class Activity:
    """GPM: the share of time between two samples, in per cent."""

    def __init__(self) -> None:
        self.samples: list[object] = []
        self.freed: list[object] = []

    def answers(self) -> Answers:
        return {
            "nvmlGpmQueryDeviceSupport": lambda: SimpleNamespace(isSupportedDevice=1),
            "nvmlGpmSampleGet": lambda sample: sample,
        }

    def driver(self) -> Driver:
        driver = machine(self.answers())
        driver._answers |= {
            "nvmlGpmSampleAlloc": self._alloc,
            "nvmlGpmSampleFree": self.freed.append,
            "nvmlGpmMetricsGet": self._get,
            "c_nvmlGpmMetricsGet_t": lambda: SimpleNamespace(metrics=[SimpleNamespace() for _ in range(9)]),
        }
        return driver

    def _alloc(self) -> object:
        self.samples.append(object())
        return self.samples[-1]

    def _get(self, wanted: Any) -> Any:
        assert (wanted.sample1, wanted.sample2) == (self.samples[-2], self.samples[-1])
        values = {
            pynvml.NVML_GPM_METRIC_SM_UTIL: (80.0, pynvml.NVML_SUCCESS),
            pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: (62.5, pynvml.NVML_SUCCESS),
            pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: (0.0, pynvml.NVML_ERROR_NOT_SUPPORTED),
        }
        for metric in wanted.metrics[: wanted.numMetrics]:
            metric.value, metric.nvmlReturn = values[metric.metricId]
        return wanted


def test_activity_is_taken_between_two_samples_and_old_samples_are_freed() -> None:
    activity = Activity()
    collector = GpuCollector(3600, [NvmlDriver(activity.driver(), {})])
    collector.start()  # one sample to begin with, one more for the first reading
    seen = samples_of(collector)
    assert seen["sm_activity_ratio 0"] == 0.8
    assert seen["dram_activity_ratio 0"] == 0.625
    assert "tensor_activity_ratio 0" not in seen
    collector.sample()
    collector.stop()
    assert activity.freed == activity.samples[:2]


def test_a_driver_that_fails_is_asked_again_and_its_last_readings_vanish() -> None:
    """The thread that reads the GPUs must survive what a driver raises."""

    def fall_off_the_bus() -> None:
        raise RuntimeError("the GPU has fallen off the bus")

    answers = dict(BUSY)
    collector = GpuCollector(0.01, [NvmlDriver(machine(answers, BUSY), {})])
    collector.start()
    try:
        assert samples_of(collector)["power_watts 0"] == 350.5
        answers["nvmlDeviceGetPowerUsage"] = fall_off_the_bus
        wait_until(lambda: not any(name.split()[1:2] == ["0"] for name in samples_of(collector) if "info" not in name))
        assert samples_of(collector)["power_watts 1"] == 350.5, "the other GPU is still read"
        answers["nvmlDeviceGetPowerUsage"] = BUSY["nvmlDeviceGetPowerUsage"]
        wait_until(lambda: samples_of(collector).get("power_watts 0") == 350.5)
    finally:
        collector.stop()


def test_readings_that_are_no_longer_renewed_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servers.gpu.collector.STALE", 0.05)
    collector = GpuCollector(0.01, [NvmlDriver(machine(BUSY), {})])
    collector.start()
    collector.stop()  # as if the driver hung
    time.sleep(0.1)
    assert samples_of(collector) == {}


@pytest.mark.parametrize(
    ("used", "counted"),
    [
        pytest.param(None, ["0", "1"], id="all, where they are not known"),
        pytest.param(("1",), ["1"], id="by number"),
        pytest.param(("GPU-a",), ["0"], id="by UUID"),
        pytest.param((), [], id="none of an engine on the CPU"),
    ],
)
def test_gpus_that_the_engine_does_not_use_are_left_out(used: Collection[str] | None, counted: list[str]) -> None:
    named = [BUSY | {"nvmlDeviceGetUUID": lambda uuid=uuid: uuid} for uuid in ("GPU-a1", "GPU-b2")]
    known: list[Collection[str] | None] = [None]
    collector = GpuCollector(3600, [NvmlDriver(machine(*named), {})], lambda: known[-1])
    collector.start()
    try:
        assert len(of_gpus(samples_of(collector), "energy")) == 2, "before it is loaded"
        known.append(used)
        for _ in range(2):
            seen = samples_of(collector)
            assert of_gpus(seen, "energy") == of_gpus(seen, "utilization") == counted
            assert len(of_gpus(seen, "info")) == len(counted)
            collector.sample()
    finally:
        collector.stop()


def of_gpus(seen: dict[str, float], family: str) -> list[str]:
    return sorted(key.split()[1] for key in seen if key.startswith(family))


def test_a_server_reports_the_gpus_of_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("servers.gpu.collector.DRIVERS", (lambda: NvmlDriver(machine(BUSY, BUSY), {}),))
    engine = ChildEngine("fake", None, {})
    with TestClient(create_app(engine, ByteTokenizer(), ServerSettings(warm_up_tokens=0))) as client:

        def charged() -> list[str]:
            return re.findall(r'enginebench_gpu_energy_joules_total\{gpu="(.)"\}', client.get("/metrics").text)

        wait_until(lambda: client.get("/ready").status_code == 200)
        assert charged() == [], "it computes on none"
        assert engine.info is not None
        engine.info, engine._visible_gpus = replace(engine.info, device="cuda:1"), ["0", "1"]
        wait_until(lambda: charged() == ["1"])


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "this takes too long"
        time.sleep(0.01)
