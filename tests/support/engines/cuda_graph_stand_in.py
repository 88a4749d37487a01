"""CUDA graphs without a GPU: operations are recorded while a graph is captured, and run again when it is replayed.

As on a GPU, a replay reads and writes the tensors of the capture, with their contents at that time. Operations that
cannot be captured are refused: a new tensor with its own contents (the copy from the host would not be replayed), and
reading a number on the host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

ALLOCATIONS = ("empty", "zeros", "ones", "full", "arange", "scalar_tensor", "tensor", "lift_fresh", "randn", "eye")
SYNCHRONISATIONS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "unique")


class RefusedInCapture(RuntimeError):
    """An operation that would make a capture on a GPU fail, or its replay wrong."""


class Graph:
    """Stands for `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.recorded: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self.replays = 0
        self.pool: Any = None
        self.device = guarded

    def replay(self) -> None:
        self.replays += 1
        for operation, args, kwargs, before in self.recorded:
            for old, new in zip(_tensors(before), _tensors(operation(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():  # neither a view nor written in place
                    old.copy_(new)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, graph: Graph) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in ALLOCATIONS or name in SYNCHRONISATIONS:
            raise RefusedInCapture(f"{name} inside the capture of a graph")
        out = func(*args, **(kwargs or {}))
        self._graph.recorded.append((func, args, kwargs or {}, out))
        return out


@contextlib.contextmanager
def capture(graph: Graph, **settings: Any) -> Iterator[None]:
    """Stands for `torch.cuda.graph`."""
    graph.pool = settings.get("pool")
    with _Recorder(graph):
        yield


POOL = object()
guarded: torch.device | None = None  # the current device, as set by `torch.cuda.device`


@contextlib.contextmanager
def guard(device: torch.device) -> Iterator[None]:
    """Stands for `torch.cuda.device`."""
    global guarded
    guarded, before = device, guarded
    yield
    guarded = before


class Stream:
    """Stands for a CUDA stream: work is done immediately."""

    made: ClassVar[int] = 0

    def __init__(self, device: torch.device | None = None) -> None:
        Stream.made += 1

    def wait_stream(self, other: Stream) -> None:
        return


def _tensors(out: Any) -> list[torch.Tensor]:
    return [one for one in tree_flatten(out)[0] if isinstance(one, torch.Tensor)]


def install(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """Replace CUDA's functions. Return a list to which new graphs are added."""
    graphs: list[Graph] = []

    def made() -> Graph:
        graphs.append(Graph())
        return graphs[-1]

    monkeypatch.setattr(torch.cuda, "CUDAGraph", made)
    monkeypatch.setattr(torch.cuda, "graph", capture)
    default = Stream()
    monkeypatch.setattr(Stream, "made", 0)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: default)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: POOL)
    monkeypatch.setattr(torch.cuda, "device", guard)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    return graphs
