"""The intentionally unoptimised baseline, to measure the benefit of caches, compilation and batching.

32-bit floats, one operation at a time, no key/value cache (every token computes the whole sequence again), no batching,
a device synchronisation after every layer, no warm-up, even when served. Eager PyTorch as people use it, with a cache
and the library's own kernels, is the engine `transformers`.

    enginebench serve pytorch-baseline --model random:llama-3.2-1b
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from enginebench.settings.schema import setting
from engines.contract.base import BlockingEngine, Chunk, EngineInfo, GenerateRequest, Model
from engines.models.fetch import context_length
from engines.models.size import STACK, MemoryNeed, ModelSize
from engines.pytorch.device import DEVICE, OnTorch
from engines.text.sampler import SampledAnswer

if TYPE_CHECKING:
    from engines.pytorch.unoptimized import Network

NAME = "pytorch-baseline"


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    device: str = setting("auto", DEVICE)
    threads: int | None = setting(None, "CPU threads (none: torch decides)", least=1)


class PytorchBaselineEngine(OnTorch, BlockingEngine):
    Options = BaselineOptions
    options: BaselineOptions
    name = NAME
    max_threads = 1
    warms_up = False

    @classmethod
    def memory_need(cls, options: BaselineOptions, size: ModelSize) -> MemoryNeed:
        return size.need("float32", cache=0, device=cls.device_of(options))

    def load(self) -> EngineInfo:
        self._threads.submit(self._load).result()
        return self.info("float32")

    def _load(self) -> None:
        model = self.open_model()
        self._context_length = context_length(model.folder, has_windows=False)
        self.network = _network(model, self._device, self._context_length)

    def generate_blocking(self, request: GenerateRequest) -> Iterator[Chunk]:
        from engines.pytorch.unoptimized import passes

        most = request.token_limit(self._context_length)
        answer = SampledAnswer(request, self._tokenizer, self._end_ids, most, self._device)
        ids = list(request.prompt_token_ids)
        for logits in passes(self.network, ids, self._device):
            id, chunk = answer.next(logits)
            ids.append(id)
            yield chunk
            if chunk.finish_reason is not None:
                return


def _network(model: Model, device: Any, positions: int) -> Network:
    """Load the network without optimisation."""
    import torch

    from engines.pytorch.network import read_config, read_network
    from engines.pytorch.unoptimized import UnoptimizedLlama, UnoptimizedStack
    from engines.static.weights import DecoderShape, weights_of

    raw = json.loads((model.folder / "config.json").read_text())
    if raw["model_type"] == STACK:
        return UnoptimizedStack(raw, device)
    shape = DecoderShape.from_config(read_config(model), NAME)
    net = read_network(model, device, torch.float32)
    return UnoptimizedLlama(shape, weights_of(net, positions))
