"""AMD's GPUs, from amdsmi, under the names of NVIDIA's metrics.

It is written against the published Python interface of ROCm 6.4 to 7 and tested against a recording of it. It has never
run on a machine with an AMD GPU: compare its numbers with `amd-smi monitor` before you rely on them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from engines.machine.devices import visible_names
from servers.gpu.families import Api, Device, Handle, Key, NoDriver, Read, Reading, select_named

MEBIBYTE = 1024**2


def _power(smi: Api, gpu: Handle) -> float:
    power = smi.amdsmi_get_power_info(gpu)
    current = power["current_socket_power"]  # older chips report the average only
    return float(current if isinstance(current, int | float) else power["average_socket_power"])


def _energy(smi: Api, gpu: Handle) -> float:
    energy = smi.amdsmi_get_energy_count(gpu)
    return (
        float(energy["energy_accumulator"]) * float(energy["counter_resolution"]) / 1e6
    )  # counted in steps of the resolution, in µJ


def _temperature(kind: str) -> Read:
    def read(smi: Api, gpu: Handle) -> float:
        sensor = getattr(smi.AmdSmiTemperatureType, kind)
        return float(smi.amdsmi_get_temp_metric(gpu, sensor, smi.AmdSmiTemperatureMetric.CURRENT))

    return read


def _clock(kind: str) -> Read:
    return lambda smi, gpu: smi.amdsmi_get_clock_info(gpu, getattr(smi.AmdSmiClkType, kind))["clk"] * 1e6


QUANTITIES: dict[Key, Read] = {
    ("utilization_ratio",): lambda smi, gpu: smi.amdsmi_get_gpu_activity(gpu)["gfx_activity"] / 100,
    ("memory_utilization_ratio",): lambda smi, gpu: smi.amdsmi_get_gpu_activity(gpu)["umc_activity"] / 100,
    ("memory_used_bytes",): lambda smi, gpu: smi.amdsmi_get_gpu_vram_usage(gpu)["vram_used"] * MEBIBYTE,
    ("memory_total_bytes",): lambda smi, gpu: smi.amdsmi_get_gpu_vram_usage(gpu)["vram_total"] * MEBIBYTE,
    ("power_watts",): _power,
    ("power_limit_watts",): lambda smi, gpu: smi.amdsmi_get_power_cap_info(gpu)["power_cap"] / 1e6,
    ("energy_joules",): _energy,
    ("temperature_celsius",): _temperature("HOTSPOT"),
    ("memory_temperature_celsius",): _temperature("VRAM"),
    ("sm_clock_hertz",): _clock("GFX"),
    ("memory_clock_hertz",): _clock("MEM"),
    ("ecc_errors", "corrected"): lambda smi, gpu: smi.amdsmi_get_gpu_total_ecc_count(gpu)["correctable_count"],
    ("ecc_errors", "uncorrected"): lambda smi, gpu: smi.amdsmi_get_gpu_total_ecc_count(gpu)["uncorrectable_count"],
}


class AmdGpu(Device):
    def __init__(self, smi: Api, handle: Handle, index: int) -> None:
        super().__init__(smi, handle, str(index), QUANTITIES)
        self.errors = (smi.AmdSmiException, KeyError, TypeError, ValueError)  # "N/A" may stand in place of a number
        self.name = str(self.ask(lambda smi, gpu: smi.amdsmi_get_gpu_asic_info(gpu)["market_name"]) or self.name)
        self.uuid = str(self.ask(lambda smi, gpu: smi.amdsmi_get_gpu_device_uuid(gpu)) or "")

    def read(self) -> Reading:
        processes = self.ask(lambda smi, gpu: smi.amdsmi_get_gpu_process_list(gpu)) or ()
        used = {
            (str(process["pid"]), str(process["name"])): process["memory_usage"]["vram_mem"] for process in processes
        }
        sizes = {who: float(bytes_) for who, bytes_ in used.items() if isinstance(bytes_, int | float)}
        return {**super().read(), **{("process_memory_bytes", *who): bytes_ for who, bytes_ in sizes.items()}}


class AmdDriver:
    """`smi` is for tests: by default the module `amdsmi`, which comes with ROCm."""

    def __init__(self, smi: Api = None, environment: Mapping[str, str] = os.environ) -> None:
        self._smi = smi
        self._visible = visible_names(environment.get("HIP_VISIBLE_DEVICES"))
        self.version = ""

    def open(self) -> list[Device]:
        if self._smi is None:
            try:
                import amdsmi  # raises more than ImportError if its library is missing
            except Exception as error:
                raise NoDriver(f"amdsmi: {error}") from None
            self._smi = amdsmi
        smi = self._smi
        try:
            smi.amdsmi_init()
            handles = smi.amdsmi_get_processor_handles()
        except smi.AmdSmiException as error:
            raise NoDriver(str(error)) from None
        gpus = [AmdGpu(smi, handle, index) for index, handle in enumerate(handles)]
        if gpus:
            self.version = str(gpus[0].ask(lambda smi, gpu: smi.amdsmi_get_gpu_driver_info(gpu)["driver_version"]))
        return select_named(gpus, self._visible)
