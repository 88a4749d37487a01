"""Transformers' own continuous batching: paged key/value cache, requests join and leave a running batch.

Transformers decodes greedily here: its batch has one sampling setting for all requests, and no seeds.

    enginebench serve --engine transformers-batching -o concurrency=32
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from engines.contract.base import Chunk, EngineInfo, GenerateRequest
from engines.contract.errors import BadRequest, FatalError
from engines.models.fetch import context_length
from engines.models.size import MemoryNeed, ModelSize
from engines.pytorch.device import OnTorch, TorchOptions, chosen_dtype, limit_spinning, name_of
from engines.pytorch.network import end_ids, read_network
from engines.text.answer import AnswerText
from settings.schema import setting

PAGE = 32  # tokens per page of the cache; each sequence wastes half of one
BATCH_TOKENS = 512  # tokens of prompts and answers in one step, at most
NO_END = -1  # a token that no model generates


@dataclass(frozen=True, slots=True)
class BatchingOptions(TorchOptions):
    concurrency: int = setting(32, "requests that run at a time", least=1)
    kv_tokens: int = setting(16_384, "tokens in the key/value caches of all requests", least=256)
    prefix_cache: bool = setting(False, "reuse the keys and values of shared prompt prefixes")


class TransformersBatchingEngine(OnTorch):
    Options = BatchingOptions
    options: BatchingOptions
    name, library = "transformers-batching", "transformers"
    features = ("stop", "ignore_eos")

    @classmethod
    def memory_need(cls, options: BatchingOptions, size: ModelSize) -> MemoryNeed:
        need = super().memory_need(options, size)
        allocated = size.need(need.dtype, options.kv_tokens)
        return replace(need, cache=allocated.cache, cache_options=("kv_tokens",))

    def load(self) -> EngineInfo:
        limit_spinning()
        self._numbers = itertools.count()
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._load).result()

    def _load(self) -> EngineInfo:
        import torch

        model = self.open_device()
        dtype = chosen_dtype(self.options.dtype, self._device)
        net = read_network(model, self._device, dtype)
        self.open_tokenizer()
        self._end_ids = end_ids(net)
        self._context_length = min(context_length(model.folder), self.options.kv_tokens)
        self._manager = self._started(net)
        return self.info(name_of(dtype), self.options.concurrency, threads=torch.get_num_threads())

    def _started(self, net: Any) -> Any:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        batching = ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=-(-self.options.kv_tokens // PAGE),
            max_batch_tokens=max(BATCH_TOKENS, self.options.concurrency),
            max_requests_per_batch=self.options.concurrency,
            allow_block_sharing=self.options.prefix_cache,
        )
        manager = net.init_continuous_batching(GenerationConfig(do_sample=False, eos_token_id=NO_END), batching)
        manager.start()
        return manager

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        if not request.greedy:
            raise BadRequest("transformers-batching decodes greedily: send temperature 0, or serve torch-compile.")
        most = request.most_tokens(self._context_length)
        text = AnswerText(request, self._tokenizer, self._end_ids, most)
        name = f"request-{next(self._numbers)}"
        arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._manager.register_result_handler(name, arrived.put_nowait)
        self._manager.add_request(
            list(request.prompt_token_ids), name, max_new_tokens=most, streaming=True, eos_token_id=NO_END
        )
        produced, ended = 0, False
        try:
            while True:
                output = await arrived.get()
                ended = output.is_finished()
                if output.error is not None:
                    raise FatalError(f"Transformers' batch failed: {output.error.rstrip('.')}.")
                for id in output.generated_tokens[produced:]:
                    produced += 1
                    ready, finish = text.add(id)
                    yield Chunk(ready, 1, finish)
                    if finish is not None:
                        return
        finally:
            if not ended:
                self._manager.cancel_request(name)

    def close(self) -> None:
        self._manager.stop(block=False)
