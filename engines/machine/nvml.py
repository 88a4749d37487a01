"""NVIDIA's management library (NVML), where this machine has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class NoAnswer(Exception):
    """No package, no library, no driver, or a question that the driver does not answer."""


@contextmanager
def driver() -> Iterator[Any]:
    """The module `pynvml`, initialised. Raises `NoAnswer`, also where a question inside the block fails."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception as error:  # each of the three has an exception of its own
        raise NoAnswer(f"none found by NVML ({error})") from error
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise NoAnswer(f"NVML failed ({error})") from error
    finally:
        pynvml.nvmlShutdown()
