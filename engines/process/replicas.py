"""Several processes of one engine behind the interface of one: `-o replicas=N`.

Each has the whole model, on its own GPU (several with `tensor_parallel`) or on its share of the CPU's cores. A request
goes to the ready replica with the fewest requests. If a replica ends, only its requests fail, and the others continue
while it restarts.

    enginebench serve transformers -o replicas=2
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from enginebench.settings.schema import UserMistake
from engines.contract.base import EngineInfo, EngineStats, GenerateRequest, Launch, Model
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import check_options, engine_class
from engines.machine.devices import amd_gpus, usable_cores, visible_gpus
from engines.process.engine_loading import load_engine
from engines.process.stream import Stream
from engines.process.supervisor import ChildEngine, State, Watch

NVIDIA, AMD = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True)
class Share:
    """The GPUs of one replica, as `variable` names them, or its cores."""

    gpus: tuple[str, ...] = ()
    cores: tuple[int, ...] = ()
    variable: str = NVIDIA

    def apply_to(self, launch: Launch) -> Launch:
        if not self.gpus:
            return replace(launch, cores=self.cores)
        return replace(launch, environment={**launch.environment, self.variable: ",".join(self.gpus)})


class Replicas:
    """`start()` once, `generate()` many times, `stop()` at the end, as with `ChildEngine`."""

    def __init__(self, children: Sequence[ChildEngine]) -> None:
        self._children = tuple(children)
        self.name = children[0].name
        self.info: EngineInfo | None = None
        self.on_change: Callable[[], None] | None = None
        self.warm_up: Callable[[EngineInfo], GenerateRequest] | None = None  # passed on to each `ChildEngine`

    @property
    def state(self) -> State:
        states = [child.state for child in self._children]
        if self.info is not None:  # one ready replica suffices, once all have been ready
            for best in ("ready", "restarting"):
                if best in states:
                    return best
        return states[0]

    @property
    def restarts(self) -> int:
        return sum(child.restarts for child in self._children)

    @property
    def running(self) -> int:
        return sum(child.running for child in self._children)

    @property
    def capacity(self) -> int:
        """Return the number of requests that the ready replicas run at a time, or all if none is ready."""
        ready = self._ready()
        return sum(child.capacity for child in ready or self._children)

    @property
    def replicas_ready(self) -> int:
        return len(self._ready())

    @property
    def gpus(self) -> tuple[str, ...] | None:
        """Return the GPUs of all replicas; `None` if those of any replica are unknown."""
        names_of_children = [child.gpus for child in self._children]
        known_names = [names for names in names_of_children if names is not None]
        return tuple(itertools.chain(*known_names)) if len(known_names) == len(names_of_children) else None

    async def start(self) -> EngineInfo:
        """Start all at the same time. Raises `EngineUnavailable` if one cannot be loaded."""
        for child in self._children:
            child.on_change, child.warm_up = self._changed, self.warm_up
        loaded = await asyncio.gather(*(child.start() for child in self._children), return_exceptions=True)
        for outcome in loaded:
            if isinstance(outcome, BaseException):
                await self.stop()
                raise outcome
        first = self._children[0].info
        assert first is not None
        self.info = replace(first, max_concurrency=self.capacity, replicas=len(self._children))
        return self.info

    def generate(self, request: GenerateRequest) -> Stream:
        """Raise `EngineUnavailable` while no replica is ready."""
        if not (ready := self._ready()):
            raise EngineUnavailable(f"the engine is {self.state}; try again shortly.")
        return min(ready, key=lambda child: child.running).generate(request)

    async def stats(self) -> EngineStats:
        """Add up memory and CPU time, and average the share of the KV caches."""
        replicas = await asyncio.gather(*(child.stats() for child in self._children))
        usages = [replica.kv_cache_usage for replica in replicas if replica.kv_cache_usage is not None]
        return EngineStats(
            device_memory_bytes=_sum(replica.device_memory_bytes for replica in replicas),
            device_memory_peak_bytes=_sum(replica.device_memory_peak_bytes for replica in replicas),
            kv_cache_usage=sum(usages) / len(usages) if usages else None,
            memory_bytes=_sum(replica.memory_bytes for replica in replicas),
            memory_peak_bytes=_sum(replica.memory_peak_bytes for replica in replicas),
            cpu_seconds=_sum(replica.cpu_seconds for replica in replicas),
        )

    async def stop(self) -> None:
        await asyncio.gather(*(child.stop() for child in self._children))

    def _ready(self) -> list[ChildEngine]:
        return [child for child in self._children if child.state == "ready"]

    def _changed(self) -> None:
        if self.on_change is not None and self.info is not None:
            self.on_change()


ServedEngine = ChildEngine | Replicas


def load_replicas(
    name: str, model: Model | None, options: Mapping[str, str], watch: Watch, prefix: tuple[str, ...] = ()
) -> ServedEngine:
    """Load like `load_engine`, with the option `replicas` as the number of processes. `prefix` is a `Launch`'s."""
    checked = check_options(name, options)
    count, parsed = checked.shared.replicas, checked.parsed
    if count == 1:
        return load_engine(name, model, options, watch, lambda launch: replace(launch, prefix=prefix))
    kind = engine_class(name)
    variable, gpus = _gpus_for(name, kind.device_of(parsed).partition(":")[0])
    shares = shares_of(count, kind.gpus_of(parsed), gpus, usable_cores(), variable)

    def placed(share: Share) -> Callable[[Launch], Launch]:
        return lambda launch: replace(share.apply_to(launch), prefix=prefix)

    return Replicas([load_engine(name, model, options, watch, placed(share), count) for share in shares])


def _gpus_for(engine: str, device: str) -> tuple[str, list[str]]:
    """Return the variable that names the GPUs, and the GPUs. Raises `UserMistake` if all replicas would share one."""
    if device == "cpu":
        return NVIDIA, []
    if device not in {"cuda", "rocm"}:
        raise UserMistake(f"{engine} computes on {device} here, where replicas cannot be given a GPU each.")
    nvidia = visible_gpus() if device == "cuda" else []
    return (NVIDIA, nvidia) if nvidia else (AMD, amd_gpus())  # torch's build for ROCm calls AMD's GPUs `cuda` too


def shares_of(
    count: int, gpus_each: int, gpus: Sequence[str], cores: Sequence[int], variable: str = NVIDIA
) -> list[Share]:
    """Divide GPUs or cores among replicas.

    With fewer cores than replicas, replicas share them. Raises `UserMistake` for too few GPUs.
    """
    if not gpus:
        size, more = divmod(len(cores), count)
        if not size:
            return [Share(cores=(cores[index % len(cores)],)) for index in range(count)]
        starts = [index * size + min(index, more) for index in range(count + 1)]
        return [Share(cores=tuple(cores[begin:end])) for begin, end in itertools.pairwise(starts)]
    if count * gpus_each > len(gpus):
        raise UserMistake(
            f"{count} replicas with {gpus_each} GPUs each need {count * gpus_each}; there are {len(gpus)}."
        )
    firsts = range(0, count * gpus_each, gpus_each)
    return [Share(tuple(gpus[first : first + gpus_each]), variable=variable) for first in firsts]


def _sum(values: Iterable[Any]) -> Any:
    numbers = [value for value in values if value is not None]
    return sum(numbers) if numbers else None
