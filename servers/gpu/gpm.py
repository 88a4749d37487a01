"""Activity of multiprocessors, memory and tensor cores between two samples, on devices with GPM (Hopper and later)."""

from __future__ import annotations

import contextlib
from typing import Any

from servers.gpu.families import Api, Handle, Reading

# Name of the family -> NVML's constant. Per cent, over the time between two samples.
ACTIVITIES = {
    "sm_activity_ratio": "NVML_GPM_METRIC_SM_UTIL",
    "dram_activity_ratio": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "tensor_activity_ratio": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
}


class Activity:
    """Read the activity of a device, or of a MIG slice's GPU instance, since the previous sample."""

    def __init__(self, nvml: Api, handle: Handle, instance: int | None = None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._instance = instance
        self._last = self._sample() if self._supported() else None

    def since_last(self) -> Reading:
        """Return shares from 0 to 1; empty if the device does not report them."""
        if self._last is None or (now := self._sample()) is None:
            return {}
        before, self._last = self._last, now
        try:
            answered = self._compare(before, now)
        except self._nvml.NVMLError:
            return {}
        finally:
            self._free(before)
        pairs = zip(ACTIVITIES, answered.metrics, strict=False)
        return {(name,): metric.value / 100 for name, metric in pairs if metric.nvmlReturn == self._nvml.NVML_SUCCESS}

    def _supported(self) -> bool:
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice)
        except (self._nvml.NVMLError, AttributeError):  # an older `pynvml` knows no GPM
            return False

    def _sample(self) -> Any:
        try:
            sample = self._nvml.nvmlGpmSampleAlloc()
        except self._nvml.NVMLError:
            return None
        try:
            if self._instance is None:
                self._nvml.nvmlGpmSampleGet(self._handle, sample)
            else:
                self._nvml.nvmlGpmMigSampleGet(self._handle, self._instance, sample)
        except self._nvml.NVMLError:
            self._free(sample)
            return None
        return sample

    def _free(self, sample: Any) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlGpmSampleFree(sample)

    def _compare(self, before: Any, now: Any) -> Any:
        query = self._nvml.c_nvmlGpmMetricsGet_t()
        query.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        query.sample1, query.sample2 = before, now
        query.numMetrics = len(ACTIVITIES)
        for place, constant in enumerate(ACTIVITIES.values()):
            query.metrics[place].metricId = getattr(self._nvml, constant)
        return self._nvml.nvmlGpmMetricsGet(query)
