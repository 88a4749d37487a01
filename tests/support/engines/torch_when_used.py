"""`torch`, imported when it is first used: every process collects all tests, and importing it takes 1.5 s."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch
else:

    class _Torch:
        def __getattr__(self, name: str) -> Any:
            if name in {"__bases__", "__test__"}:  # for which pytest asks every name of a module that it collects
                raise AttributeError(name)
            return getattr(import_module("torch"), name)

    torch = _Torch()
