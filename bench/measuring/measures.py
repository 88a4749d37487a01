"""The measures by name: what each is called, its unit, and which values are better."""

from __future__ import annotations

from bench.measuring.measure import DECODE
from bench.result.document import Measure

LOADING = {
    "load": Measure("load", "loading", "loading time", "s", "lower"),
    "memory": Measure("memory", "loading", "memory, loaded", "B", "lower"),
    "memory peak": Measure("memory peak", "loading", "memory, peak", "B", "lower"),
    "device memory": Measure("device memory", "loading", "device memory, allocated by the engine", "B", "lower"),
    "device memory used": Measure("device memory used", "loading", "device memory, by NVML", "B", "lower"),
    "kv cache": Measure("kv cache", "loading", "KV cache in use, largest batch", "share", "lower"),
}


def measure_of(name: str) -> Measure:
    """From the names that `bench.measuring.measure` and `bench.measuring.turns` give."""
    if name in LOADING:
        return LOADING[name]
    if name == DECODE:
        return Measure(name, "decode", "time per decoded token", "s", "lower")
    kind, size, *rest = name.split()
    number = int(size)
    if kind == "prefill":
        inside = ", by the engine's own clock" if rest else ""
        return Measure(name, "prefill", f"prefill of {number} tokens{inside}", "s", "lower", number)
    if kind == "generate":
        return Measure(name, "generate", f"generation of {number} tokens", "s", "lower", number)
    assert kind == "batch", name
    title = f"{number} at a time, {'decoding' if rest else 'with prompts'}"
    return Measure(name, "batch", title, "tokens/s", "higher", number)
