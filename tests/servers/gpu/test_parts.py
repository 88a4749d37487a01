"""GPU numbers beyond one plain device: slices, links, errors, processes, chosen devices, and AMD's."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from servers.gpu.amd import AmdDriver
from servers.gpu.collector import GpuCollector
from servers.gpu.families import NoDriver
from servers.gpu.nvml import NvmlDriver
from tests.servers.gpu.test_collector import BUSY, Driver, machine, scraped, scraped_once


def fields(**values: int) -> Callable[..., Any]:
    """NVML's numbered fields; one that is not given is not supported."""
    known = {getattr(pynvml, name): value for name, value in values.items()}

    def answer(asked: list[tuple[int, int]]) -> list[SimpleNamespace]:
        ((field, _scope),) = asked
        missing = pynvml.NVML_ERROR_NOT_SUPPORTED if field not in known else pynvml.NVML_SUCCESS
        value = SimpleNamespace(ullVal=known.get(field, 0), uiVal=0)
        return [SimpleNamespace(nvmlReturn=missing, valueType=pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, value=value)]

    return answer


def test_links_and_memory_errors() -> None:
    errors = {pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED: 7, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED: 1}
    linked = fields(NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX=3, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX=5)
    seen = scraped(
        machine({"nvmlDeviceGetFieldValues": linked, "nvmlDeviceGetTotalEccErrors": lambda kind, since: errors[kind]})
    )
    assert seen["nvlink_sent_bytes_total 0"] == 3 * 1024
    assert seen["nvlink_received_bytes_total 0"] == 5 * 1024
    assert seen["ecc_errors_total 0 corrected"] == 7
    assert seen["ecc_errors_total 0 uncorrected"] == 1
    assert "memory_temperature_celsius 0" not in seen


def test_memory_of_each_process_that_the_driver_shows() -> None:
    processes = [SimpleNamespace(pid=os.getpid(), usedGpuMemory=4096), SimpleNamespace(pid=1, usedGpuMemory=None)]
    seen = scraped(machine({"nvmlDeviceGetComputeRunningProcesses": lambda: processes}))
    name = psutil.Process().name()
    assert {key: value for key, value in seen.items() if "process" in key} == {
        f"process_memory_bytes 0 {os.getpid()} {name}": 4096
    }


def test_xid_errors_are_counted_by_device_and_number() -> None:
    """The second GPU is lost: it answers no question any more."""
    events: dict[int, list[int]] = {0: [31, 31], 1: [79]}

    def register(gpu: int, kinds: int, events_set: list[int]) -> None:
        events_set.append(gpu)

    def wait(events_set: list[int], milliseconds: int) -> SimpleNamespace:
        assert milliseconds == 0, "reading waits for no event"
        for xid in [events[gpu].pop() for gpu in events_set if events[gpu]][:1]:
            return SimpleNamespace(eventData=xid)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)

    driver = machine(BUSY, BUSY)
    driver._answers |= {"nvmlEventSetCreate": list, "nvmlDeviceRegisterEvents": register, "nvmlEventSetWait": wait}
    seen = scraped(driver)
    assert {key: value for key, value in seen.items() if "xid" in key} == {
        "xid_errors_total 0 31": 2,
        "xid_errors_total 1 79": 1,
    }


def sliced() -> Driver:
    """One device with two slices, in the first and third of its places, as GPU instances 3 and 5."""
    slices = {0: SimpleNamespace(instance=3, used=100), 2: SimpleNamespace(instance=5, used=200)}

    def at(gpu: int, place: int) -> SimpleNamespace:
        if place not in slices:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return slices[place]

    driver = machine(BUSY)
    driver._answers |= {
        "nvmlDeviceGetMigMode": lambda gpu: (pynvml.NVML_DEVICE_MIG_ENABLE, pynvml.NVML_DEVICE_MIG_ENABLE),
        "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": at,
        "nvmlDeviceGetGpuInstanceId": lambda part: part.instance,
        "nvmlDeviceGetName": lambda gpu: "Test GPU",
        "nvmlDeviceGetUUID": lambda gpu: "GPU-1" if gpu == 0 else f"MIG-{gpu.instance}",
        "nvmlDeviceGetMemoryInfo": lambda part: SimpleNamespace(used=part.used, total=1000),
    }
    return driver


def test_slices_have_the_memory_and_nothing_has_the_energy_of_their_device() -> None:
    """An engine on one slice would be charged for all of them."""
    seen = scraped(sliced())
    assert {key: value for key, value in seen.items() if key.startswith("memory_used")} == {
        "memory_used_bytes 0:3": 100,
        "memory_used_bytes 0:5": 200,
    }
    assert not [key for key in seen if key.startswith(("power_watts", "energy", "utilization"))]
    assert (seen["temperature_celsius 0"], seen["power_limit_watts 0"]) == (61, 700)


@pytest.mark.parametrize(("of", "part"), [("server", "5"), ("engine", "3")])
def test_a_server_or_an_engine_on_one_slice_has_that_slice_and_its_device(of: str, part: str) -> None:
    chosen = {"CUDA_VISIBLE_DEVICES": "MIG-5"} if of == "server" else {}
    used = ("MIG-3",) if of == "engine" else None
    seen = scraped_once(GpuCollector(3600, [NvmlDriver(sliced(), chosen)], lambda: used))
    assert [key for key in seen if key.startswith("memory_used")] == [f"memory_used_bytes 0:{part}"]
    assert "temperature_celsius 0" in seen


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        pytest.param({}, ["0", "1"], id="all, unless told otherwise"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "1"}, ["1"], id="by number"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "GPU-b"}, ["1"], id="by the beginning of the UUID"),
        pytest.param({"CUDA_VISIBLE_DEVICES": "1,0"}, ["0", "1"], id="several"),
        pytest.param({"CUDA_VISIBLE_DEVICES": ""}, [], id="none"),
    ],
)
def test_gpus_that_the_engine_cannot_use_are_not_its_own(chosen: dict[str, str], expected: list[str]) -> None:
    named = [BUSY | {"nvmlDeviceGetUUID": lambda uuid=uuid: uuid} for uuid in ("GPU-a1", "GPU-b2")]
    seen = scraped(machine(*named), **chosen)
    assert sorted(key.split()[1] for key in seen if key.startswith("power_watts")) == expected


class Amd:
    """amdsmi with one device, as its documentation shows its answers; what it cannot tell is "N/A"."""

    class AmdSmiException(Exception): ...

    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT="hotspot", VRAM="vram")
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT="current")
    AmdSmiClkType = SimpleNamespace(GFX="gfx", MEM="mem")

    def amdsmi_init(self) -> None: ...
    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["handle"]

    def amdsmi_get_gpu_asic_info(self, gpu: str) -> dict[str, Any]:
        return {"market_name": "Test Accelerator"}

    def amdsmi_get_gpu_device_uuid(self, gpu: str) -> str:
        return "a1ff"

    def amdsmi_get_gpu_driver_info(self, gpu: str) -> dict[str, Any]:
        return {"driver_version": "6.12.12"}

    def amdsmi_get_gpu_activity(self, gpu: str) -> dict[str, Any]:
        return {"gfx_activity": 75, "umc_activity": 40, "mm_activity": "N/A"}

    def amdsmi_get_gpu_vram_usage(self, gpu: str) -> dict[str, Any]:
        return {"vram_total": 2048, "vram_used": 512}

    def amdsmi_get_power_info(self, gpu: str) -> dict[str, Any]:
        return {"current_socket_power": "N/A", "average_socket_power": 350}

    def amdsmi_get_power_cap_info(self, gpu: str) -> dict[str, Any]:
        return {"power_cap": 750_000_000}

    def amdsmi_get_energy_count(self, gpu: str) -> dict[str, Any]:
        return {"energy_accumulator": 2_000_000, "counter_resolution": 15.3, "timestamp": 1}

    def amdsmi_get_temp_metric(self, gpu: str, sensor: str, metric: str) -> int:
        if sensor == "vram":
            raise self.AmdSmiException("not supported")
        return 61

    def amdsmi_get_clock_info(self, gpu: str, kind: str) -> dict[str, Any]:
        return {"clk": {"gfx": 2100, "mem": 1300}[kind]}

    def amdsmi_get_gpu_total_ecc_count(self, gpu: str) -> dict[str, Any]:
        return {"correctable_count": 3, "uncorrectable_count": 0}

    def amdsmi_get_gpu_process_list(self, gpu: str) -> list[dict[str, Any]]:
        return [{"name": "engine", "pid": 42, "memory_usage": {"vram_mem": 4096}}]


def test_amd_under_the_same_names() -> None:
    assert scraped_once(GpuCollector(3600, [AmdDriver(Amd(), {})])) == {
        "info 6.12.12 0 Test Accelerator a1ff": 1,
        "utilization_ratio 0": 0.75,
        "memory_utilization_ratio 0": 0.4,
        "memory_used_bytes 0": 512 * 1024**2,
        "memory_total_bytes 0": 2048 * 1024**2,
        "power_watts 0": 350,
        "power_limit_watts 0": 750,
        "energy_joules_total 0": pytest.approx(30.6),
        "temperature_celsius 0": 61,
        "sm_clock_hertz 0": 2.1e9,
        "memory_clock_hertz 0": 1.3e9,
        "ecc_errors_total 0 corrected": 3,
        "ecc_errors_total 0 uncorrected": 0,
        "process_memory_bytes 0 42 engine": 4096,
    }


def test_without_amds_library_there_is_nothing() -> None:
    with pytest.raises(NoDriver, match="amdsmi"):
        AmdDriver().open()
