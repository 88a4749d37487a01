"""The baseline: Hugging Face Transformers without any optimisation, one request at a time.

The decode loop is that of `model.generate`, written out so that each token can be sent as soon as it is sampled: one
forward pass over the prompt, then one per token, with the model's own key/value cache. It is as fast as `generate`;
nothing is compiled, fused or batched.

    enginebench serve --engine transformers -o dtype=float32
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from engines.contract.base import (
    BlockingEngine,
    Chunk,
    EngineInfo,
    EngineStats,
    EngineUnavailable,
    GenerateRequest,
    TokenLogprob,
)
from engines.models.fetch import context_length
from engines.pytorch.device import (
    TorchOptions,
    chosen_device,
    chosen_dtype,
    device_memory,
    libraries,
    limit_spinning,
    missing_packages,
    name_of,
)
from engines.pytorch.network import end_ids, read_network
from engines.text.answer import AnswerText
from engines.text.sampling import Sampler, logprob_of


class TransformersEngine(BlockingEngine):
    Options = TorchOptions
    options: TorchOptions
    cuda_by = "torch"

    # One thread for everything that torch computes, loading included: each computing thread gets its own team of
    # OpenMP workers, and two teams on the same cores cost a third of the speed.
    max_threads = 1

    @classmethod
    def why_not_here(cls) -> str | None:
        return missing_packages()

    @classmethod
    def version_here(cls) -> str | None:
        return version("transformers") if cls.why_not_here() is None else None

    def load(self) -> EngineInfo:
        limit_spinning()
        return self._threads().submit(self._load).result()

    def _load(self) -> EngineInfo:
        import torch
        from tokenizers import Tokenizer

        assert self.model is not None
        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        self._device = chosen_device(self.options.device)
        dtype = chosen_dtype(self.options.dtype, self._device)
        self._net = read_network(self.model, self._device, dtype)
        self._tokenizer = Tokenizer.from_file(str(self.model.folder / "tokenizer.json"))
        self._end_ids = end_ids(self._net)
        self._context_length = context_length(self.model.folder)
        takes = inspect.signature(self._net.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        return EngineInfo(
            name="transformers",
            version=version("transformers"),
            language="python",
            model=self.model.name,
            dtype=name_of(dtype),
            device=str(self._device),
            batching="none",
            max_concurrency=1,
            context_length=self._context_length,
            features=("seed", "stop", "logprobs", "ignore_eos", "min_tokens"),
            options=asdict(self.options) | {"threads": torch.get_num_threads()},
            libraries=libraries(),
        )

    def generate_blocking(self, request: GenerateRequest) -> Iterator[Chunk]:
        most = request.most_tokens(self._context_length)
        text = AnswerText(request, self._tokenizer, self._end_ids, most)
        for id, logprobs in self._tokens(request):
            ready, finish = text.add(id)
            yield Chunk(ready, 1, finish, logprobs)
            if finish is not None:
                return

    def _tokens(self, request: GenerateRequest) -> Iterator[tuple[int, tuple[TokenLogprob, ...]]]:
        """Token ids without end, each as soon as it is sampled."""
        import torch

        sampler = Sampler(request, () if request.ignore_eos else sorted(self._end_ids), self._device)
        ids = torch.tensor([request.prompt_token_ids], device=self._device)
        cache: dict[str, Any] = {}
        while True:
            with torch.inference_mode():  # not around the yield: it belongs to the thread, not to this generator
                out = self._net(input_ids=ids, use_cache=True, **cache, **self._last_only)
                logits = out.logits[0, -1]
                id = sampler.pick(logits)
            cache = _cache_of(out)
            logprobs: tuple[TokenLogprob, ...] = ()
            if request.logprobs is not None:
                logprobs = (logprob_of(logits, id, request.logprobs, self._tokenizer),)
            yield id, logprobs
            ids = torch.tensor([[id]], device=self._device)

    def stats(self) -> EngineStats:
        return EngineStats(device_memory_bytes=device_memory(self._device))


def _cache_of(out: Any) -> dict[str, Any]:
    """What one forward pass passes to the next: keys and values, or the state of a state-space model."""
    for name in ("past_key_values", "cache_params"):
        if out.get(name) is not None:
            return {name: out[name]}
    raise EngineUnavailable("this model has no cache, so it cannot generate token by token.")
