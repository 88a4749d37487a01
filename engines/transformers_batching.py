"""Transformers' own continuous batching: paged key/value cache, requests join and leave a running batch.

Transformers decodes greedily here: its batch has one sampling setting for all requests, and no seeds.

    enginebench serve transformers-batching -o concurrency=32
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from importlib.metadata import version
from typing import Any, Literal

from enginebench.settings.schema import setting
from engines.contract.base import Chunk, EngineInfo, GenerateRequest
from engines.contract.errors import BadRequest, EngineUnavailable, FatalError
from engines.models.size import MemoryNeed, ModelSize
from engines.pytorch.attention import KERNELS, choose
from engines.pytorch.device import OnTorch, TorchOptions, chosen_dtype, name_of
from engines.pytorch.network import read_network
from engines.text.answer_text import AnswerText

# Tokens per page of the cache; each sequence wastes half of one. Flash attention's kernels for decoding take no others.
PAGES = {"cpu": 32, "cuda": 256}
# Tokens in one step. Without flash attention, the mask has a row for each, as wide as the cache: with the number that
# Transformers would choose for a large GPU, masks would take most of its memory.
BATCH_TOKENS = {"cpu": 512, "cuda": 8192}
CPU_KV_TOKENS = 16_384
OLDEST = (5, 17)  # the first version whose `warmup` captures CUDA graphs
NO_END = -1  # a token that no model generates


@dataclass(frozen=True, slots=True)
class BatchingOptions(TorchOptions):
    concurrency: int = setting(32, "requests that run at a time", least=1, tune="8,16,32,64")
    kv_tokens: int | None = setting(
        None,
        f"tokens in the key/value caches of all requests (none: {CPU_KV_TOKENS} on a CPU, on a GPU the free memory)",
        least=256,
    )
    batch_tokens: int | None = setting(
        None,
        "tokens of prompts and answers in one step, at most "
        f"(none: {BATCH_TOKENS['cpu']} on a CPU, {BATCH_TOKENS['cuda']} on a GPU)",
        least=1,
    )
    prefix_cache: bool = setting(False, "reuse the keys and values of shared prompt prefixes")
    attention: Literal[
        "auto", "eager", "sdpa", "math", "efficient", "cudnn", "flash_attention_2", "flash_attention_3"
    ] = setting("auto", f"auto: flash attention if its package is installed, else sdpa; {KERNELS}")


class TransformersBatchingEngine(OnTorch):
    Options = BatchingOptions
    options: BatchingOptions
    name, library = "transformers-batching", "transformers"
    features = ("stop", "ignore_eos")

    @classmethod
    def why_not_here(cls) -> str | None:
        if (reason := super().why_not_here()) is not None:
            return reason
        installed = version("transformers")
        if tuple(map(int, re.findall(r"\d+", installed)[:2])) < OLDEST:
            needed = ".".join(map(str, OLDEST))
            return f"it needs transformers {needed}, and {installed} is installed; run: pip install -U transformers"
        return None

    @classmethod
    def memory_need(cls, options: BatchingOptions, size: ModelSize) -> MemoryNeed:
        need = super().memory_need(options, size)
        if options.kv_tokens is None and need.device != "cpu":
            return need
        allocated = size.need(need.dtype, options.kv_tokens or CPU_KV_TOKENS)
        return replace(need, cache=allocated.cache, cache_options=("kv_tokens",))

    def load(self) -> EngineInfo:
        self._numbers = itertools.count()
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._load).result()

    def _load(self) -> EngineInfo:
        import torch

        model = self.open_model()
        self.import_transformers()
        dtype = chosen_dtype(self.options.dtype, self._device)
        implementation = choose(self.options.attention, self._device)
        chosen = {} if implementation is None else {"attn_implementation": implementation}
        net = read_network(model, self._device, dtype, **chosen)
        self.end_phase("weights")
        self._manager = self._started(net)
        self.end_phase("compile")
        resolved = self._manager.continuous_batching_config
        kv_tokens = resolved.num_blocks * (getattr(resolved, "page_size", None) or resolved.block_size)
        self._context_length = min(self._context_length, kv_tokens)
        options = {
            "kv_tokens": kv_tokens,
            "batch_tokens": resolved.max_batch_tokens,
            "attention": net.config._attn_implementation if implementation is None else self.options.attention,
            "cuda_graphs": any(resolved.use_cuda_graph),
        }
        return self.info(name_of(dtype), self.options.concurrency, threads=torch.get_num_threads(), **options)

    def _started(self, net: Any) -> Any:
        from transformers import ContinuousBatchingConfig, GenerationConfig

        names = frozenset(field.name for field in fields(ContinuousBatchingConfig))
        batching = ContinuousBatchingConfig(**self.batching(self._device.type, names))
        manager = net.init_continuous_batching(GenerationConfig(do_sample=False, eos_token_id=NO_END), batching)
        manager.warmup()  # allocates the cache; captures CUDA graphs, which would otherwise be a part of first requests
        manager.start()
        return manager

    def batching(self, device: str, names: Set[str]) -> dict[str, Any]:
        """Return settings of `ContinuousBatchingConfig`, which has these `names`: until 5.17 a page was called a block,
        and until 5.18 flash attention was always taken. On a GPU, a cache whose size is not given takes the memory that
        is free.

        Raises `EngineUnavailable` if the version would use an attention that was not requested.
        """
        options, page = self.options, PAGES.get(device, PAGES["cpu"])
        kv_tokens = options.kv_tokens or (None if device == "cuda" else CPU_KV_TOKENS)
        tokens = options.batch_tokens or BATCH_TOKENS.get(device, BATCH_TOKENS["cpu"])
        flash = {"auto_switch_to_flash": options.attention == "auto"}
        if not names >= flash.keys():
            if options.attention != "auto" and not options.attention.startswith("flash"):
                raise EngineUnavailable(
                    f"transformers {version('transformers')} batches with flash attention wherever it is installed: "
                    "leave out `attention`, or run: pip install -U transformers"
                )
            flash = {}
        return flash | {
            "page_size" if "page_size" in names else "block_size": page,
            "num_blocks": None if kv_tokens is None else -(-kv_tokens // page),
            "max_batch_tokens": max(tokens, options.concurrency),
            "max_requests_per_batch": options.concurrency,
            "allow_block_sharing": options.prefix_cache,
        }

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        if not request.greedy:
            raise BadRequest("transformers-batching decodes greedily: send temperature 0, or serve torch-compile.")
        most = request.token_limit(self._context_length)
        text = AnswerText(request, self._tokenizer, self._end_ids, most)
        name = f"request-{next(self._numbers)}"
        arrived: asyncio.Queue[Any] = asyncio.Queue()
        self._manager.register_result_handler(name, arrived.put_nowait)
        taken = self._manager.add_request(
            list(request.prompt_token_ids), name, max_new_tokens=most, streaming=True, eos_token_id=NO_END
        )
        if taken is None:  # it is dropped without an answer
            raise FatalError("Transformers' batch has ended; its log says why.")
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
