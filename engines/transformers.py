"""Hugging Face Transformers in eager mode, one request at a time: the reference for other engines.

The decode loop is ours, on the model's own forward pass and key/value cache: one pass over the prompt, then one per
token, which is sent as soon as it is sampled. `loop=generate` runs the library's `generate` with a streamer instead, as
published ladders of engines do; so does `speculative_tokens`, which is the library's assisted generation. Nothing is
compiled, fused or batched: it is eager PyTorch as people use it. Other attention kernels and quantised weights are
settings.

    enginebench serve transformers -o dtype=float32 -o speculative_tokens=5
    enginebench serve transformers -o loop=generate
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from enginebench.settings.schema import setting
from engines.contract.base import BlockingEngine, Chunk, EngineInfo, GenerateRequest, Model
from engines.contract.errors import EngineUnavailable
from engines.models.fetch import fetch_model
from engines.models.random_model import with_weights
from engines.models.size import MemoryNeed, ModelSize, is_state_space, kept_values
from engines.models.stored import config_of
from engines.pytorch.attention import FLEX, KERNELS, Attention, choose, repeating_heads, tried_out
from engines.pytorch.compiling import missing_compiler
from engines.pytorch.device import OnTorch, TorchOptions, chosen_dtype, name_of
from engines.pytorch.network import (
    Quantised,
    bits_of,
    loading_settings,
    quantised_after,
    read_network,
    weights_format,
)
from engines.text.answer_text import AnswerText
from engines.text.sampler import SampledAnswer

if TYPE_CHECKING:
    import torch

PASS = 16  # tokens of a prompt with which a kernel is tried out


@dataclass(frozen=True, slots=True)
class TransformersOptions(TorchOptions):
    attention: Attention = setting("auto", f"auto: Transformers decides, usually sdpa; {KERNELS}")
    quantization: Quantised = setting(
        "none", "quantise the weights while loading, by bitsandbytes (bnb), torchao or Neural Compressor (inc)"
    )
    speculative_tokens: int = setting(
        0, "tokens drafted per step by the library's `generate` (0: no speculative decoding)", least=0
    )
    draft_model: str | None = setting(None, "name of the draft model (none: n-grams of the text so far)")
    loop: Literal["ours", "generate"] = setting(
        "ours", "decode loop: ours on the model's forward pass, or the library's `generate` with a streamer"
    )


class TransformersEngine(OnTorch, BlockingEngine):
    Options = TransformersOptions
    options: TransformersOptions
    name = library = "transformers"

    # One thread for all calls of torch, loading included: each calling thread gets its own team of OpenMP workers,
    # and two teams on the same cores cost a third of the speed.
    max_threads = 1

    @classmethod
    def memory_need(cls, options: TransformersOptions, size: ModelSize) -> MemoryNeed:
        need = super().memory_need(options, size)
        if options.quantization == "none":
            return need
        return size.need(bits_of(options.quantization), cache=need.cache, device=need.device)

    def load(self) -> EngineInfo:
        if self.options.attention == FLEX and (reason := missing_compiler()) is not None:
            raise EngineUnavailable(f"attention={FLEX} is compiled: {reason}.")
        if self.options.draft_model is not None and not self.options.speculative_tokens:
            raise EngineUnavailable("a draft model needs `speculative_tokens`, such as 5.")
        return self._threads.submit(self._load).result()

    def _load(self) -> EngineInfo:
        import torch

        self._loop = "generate" if self.options.speculative_tokens else self.options.loop
        if self._loop == "generate":
            self.features = ("seed", "stop", "ignore_eos", "min_tokens")
        model = self.open_model()
        self.import_transformers()
        dtype = chosen_dtype(self.options.dtype, self._device)
        state_space = is_state_space(config := config_of(model.folder))
        if state_space and self.options.attention != "auto":
            raise EngineUnavailable("a state-space model has no attention: serve it without `attention`.")
        implementation = choose(self.options.attention, self._device)
        if self.options.attention == "efficient":
            implementation = repeating_heads()
        self._net = self._read(model, dtype, implementation)
        self.end_phase("weights")
        if self.options.speculative_tokens and state_space:
            raise EngineUnavailable(
                "a state-space model cannot take back wrong guesses: serve it without `speculative_tokens`."
            )
        self._assistance = self._assisted_by(dtype)
        takes = inspect.signature(self._net.forward).parameters
        self._kept = "logits_to_keep" if "logits_to_keep" in takes else None
        if implementation is not None:
            with tried_out(self.options.attention, name_of(dtype)), torch.inference_mode():
                _, cache = self._forward([0] * PASS, {})
                self._forward([0], cache)
        attention = self.options.attention if implementation else self._net.config._attn_implementation
        stored = weights_format(self._net, dtype, self.options.quantization)
        facts: dict[str, Any] = {"attention": attention, "loop": self._loop, "threads": torch.get_num_threads()}
        if state_space:  # in place of keys and values that grow with the text
            facts |= {"attention": "none", "state_bytes": kept_values(config, 0) * dtype.itemsize}
        return self.info(stored, activations=name_of(dtype), **facts)

    def _read(self, model: Model, dtype: torch.dtype, attention: str | None) -> Any:
        settings = {} if attention is None else {"attn_implementation": attention}
        quantised = loading_settings(self.options.quantization, model, self._device, dtype)
        if quantised:
            model = with_weights(model)  # random weights are quantised from a file
        net = read_network(model, self._device, dtype, **settings, **quantised)
        return quantised_after(net, self.options.quantization)

    def _assisted_by(self, dtype: torch.dtype) -> dict[str, Any]:
        """Return settings of `generate`; none without speculative decoding. Raises `EngineUnavailable`."""
        count = self.options.speculative_tokens
        if not count:
            return {}
        if self.options.draft_model is None:
            return {"prompt_lookup_num_tokens": count}
        try:
            model = fetch_model(self.options.draft_model)
        except ValueError as error:
            raise EngineUnavailable(str(error)) from error
        draft = read_network(model, self._device, dtype)
        theirs, ours = draft.config.vocab_size, self._net.config.vocab_size
        if theirs != ours:
            raise EngineUnavailable(
                f"the draft model has a vocabulary of {theirs} tokens and the model one of {ours}: take a draft of the "
                "same family."
            )
        # By default the library drafts more or fewer tokens as it goes on, and stops drafting if it is in doubt.
        draft.generation_config.num_assistant_tokens = count
        draft.generation_config.num_assistant_tokens_schedule = "constant"
        draft.generation_config.assistant_confidence_threshold = 0.0
        return {"assistant_model": draft}

    def answer_blocking(self, request: GenerateRequest, put: Callable[[Chunk], bool]) -> None:
        if self._loop == "ours":
            super().answer_blocking(request, put)
            return
        from engines.pytorch.generate import Streamer, generate

        most = request.token_limit(self._context_length)
        streamer = Streamer(AnswerText(request, self._tokenizer, self._end_ids, most), put)
        generate(self._net, request, streamer, most, self._end_ids, **self._assistance)

    def generate_blocking(self, request: GenerateRequest) -> Iterator[Chunk]:
        for _, chunk in self._tokens(request):
            yield chunk
            if chunk.finish_reason is not None:
                return

    def _tokens(self, request: GenerateRequest) -> Iterator[tuple[int, Chunk]]:
        """Yield tokens without end, each as soon as it is sampled."""
        import torch

        most = request.token_limit(self._context_length)
        answer = SampledAnswer(request, self._tokenizer, self._end_ids, most, self._device)
        ids, cache = list(request.prompt_token_ids), dict[str, Any]()
        while True:
            with torch.inference_mode():  # not around the yield: this mode belongs to the thread, not to the generator
                logits, cache = self._forward(ids, cache)
                id, chunk = answer.next(logits)
            ids = [id]
            yield id, chunk

    def _forward(self, new: list[int], cache: dict[str, Any]) -> tuple[torch.Tensor, dict[str, Any]]:
        """Return logits `[vocabulary]` after the last token, and the cache of all tokens."""
        import torch

        keep = {self._kept: 1} if self._kept else {}
        out = self._net(input_ids=torch.tensor([new], device=self._device), use_cache=True, **cache, **keep)
        return out.logits[0, -1], _cache_of(out)


def _cache_of(out: Any) -> dict[str, Any]:
    """Return the state for the next forward pass: keys and values, or the state of a state-space model."""
    for name in ("past_key_values", "cache_params"):
        if out.get(name) is not None:
            return {name: out[name]}
    raise EngineUnavailable("this model has no cache, so it cannot generate token by token.")
