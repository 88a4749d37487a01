"""The baseline: Hugging Face Transformers without any optimisation, one request at a time.

The decode loop is that of `model.generate`, written out so that each token can be sent as soon as it is sampled: one
forward pass over the prompt, then one per token, with the model's own key/value cache. It is as fast as `generate`;
nothing is compiled, fused or batched.

    enginebench serve --engine transformers -o dtype=float32
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from engines.contract.base import (
    BlockingEngine,
    Chunk,
    EngineInfo,
    EngineStats,
    EngineUnavailable,
    FinishReason,
    GenerateRequest,
    TokenLogprob,
)
from engines.models.fetch import context_length
from engines.text.detokenize import Detokenizer
from engines.text.sampling import Sampler, logprob_of
from engines.text.stop import StopStrings
from settings_schema import setting

if TYPE_CHECKING:
    import torch

NEEDED = ("torch", "transformers", "safetensors", "tokenizers")
WEIGHTS_SEED = 0  # of models with random weights: the same ones in every run
NATIVE_BF16 = ("avx512_bf16", "amx_bf16", " bf16 ")  # as Linux names it on x86 and on Arm


@dataclass(frozen=True, slots=True)
class TransformersOptions:
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "auto: float16 on a GPU, bfloat16 on a CPU that has it in hardware, else float32"
    )
    device: str = setting("auto", "auto, cpu, cuda, cuda:1 …")
    threads: int | None = setting(None, "CPU threads (none: torch decides)", least=1)


class TransformersEngine(BlockingEngine):
    Options = TransformersOptions
    options: TransformersOptions
    cuda_by = "torch"

    # One thread for everything that torch computes, loading included: each computing thread gets its own team of
    # OpenMP workers, and two teams on the same cores cost a third of the speed.
    max_threads = 1

    @classmethod
    def why_not_here(cls) -> str | None:
        if missing := [name for name in NEEDED if find_spec(name) is None]:
            return f"it needs {', '.join(missing)}; install with: pip install 'enginebench[transformers]'"
        return None

    @classmethod
    def version_here(cls) -> str | None:
        return version("transformers") if cls.why_not_here() is None else None

    def load(self) -> EngineInfo:
        # OpenMP's workers spin while they wait for each other, by default for milliseconds. On cores shared with a
        # server and a load generator that makes every token ten times slower; with no spin at all each is a third
        # slower. A short one costs nothing either way. Read when torch is imported, so set before.
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
        return self._threads().submit(self._load).result()

    def _load(self) -> EngineInfo:
        import torch
        from tokenizers import Tokenizer

        assert self.model is not None
        if self.options.threads is not None:
            torch.set_num_threads(self.options.threads)
        self._device = _device(self.options.device)
        dtype = _dtype(self.options.dtype, self._device)
        try:
            self._net = self._read(dtype)
        except (OSError, ValueError, RuntimeError) as error:
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise EngineUnavailable(f"transformers could not load {self.model.name}: {first}") from error
        self._tokenizer = Tokenizer.from_file(str(self.model.folder / "tokenizer.json"))
        self._end_ids = _end_ids(self._net)
        self._context_length = context_length(self.model.folder)
        takes = inspect.signature(self._net.forward).parameters
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        return EngineInfo(
            name="transformers",
            version=version("transformers"),
            language="python",
            model=self.model.name,
            dtype=str(dtype).removeprefix("torch."),
            device=str(self._device),
            batching="none",
            max_concurrency=1,
            context_length=self._context_length,
            features=("seed", "stop", "logprobs", "ignore_eos", "min_tokens"),
            options=asdict(self.options) | {"threads": torch.get_num_threads()},
            libraries={name: version(name) for name in ("torch", "transformers", "tokenizers")},
        )

    def _read(self, dtype: torch.dtype) -> Any:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
        from transformers.utils import logging

        assert self.model is not None
        logging.disable_progress_bar()
        folder, trusted = self.model.folder, self.model.trust_remote_code
        if not self.model.random_weights:
            net = AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, local_files_only=True, trust_remote_code=trusted
            )
            return net.to(self._device).eval()
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
        torch.manual_seed(WEIGHTS_SEED)
        with torch.device(self._device):  # generated on the device
            return AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=trusted).eval()

    def generate_blocking(self, request: GenerateRequest) -> Iterator[Chunk]:
        most = request.most_tokens(self._context_length)
        text, stops = Detokenizer(self._tokenizer, request.prompt_token_ids), StopStrings(request.stop)
        for produced, (id, logprobs) in enumerate(self._tokens(request), start=1):
            finish: FinishReason | None = None
            ready = text.add(id)
            if produced > request.min_tokens:
                ready = stops.add(ready)
            if stops.met or (id in self._end_ids and not request.ignore_eos):
                finish = "stop"
            elif produced >= most:
                finish = "length"
            if finish is not None and not stops.met:
                ready += stops.add(text.rest())
                ready, finish = (ready, "stop") if stops.met else (ready + stops.rest(), finish)
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
        import torch

        on_gpu = torch.cuda.is_available() and self._device.type == "cuda"
        return EngineStats(device_memory_bytes=torch.cuda.memory_reserved(self._device) if on_gpu else None)


def _cache_of(out: Any) -> dict[str, Any]:
    """What one forward pass passes to the next: keys and values, or the state of a state-space model."""
    for name in ("past_key_values", "cache_params"):
        if out.get(name) is not None:
            return {name: out[name]}
    raise EngineUnavailable("this model has no cache, so it cannot generate token by token.")


def _end_ids(net: Any) -> frozenset[int]:
    """The tokens that end an answer: models have one, several, or none."""
    for config in (getattr(net, "generation_config", None), net.config):
        ids = getattr(config, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    return frozenset()


def _device(wanted: str) -> torch.device:
    import torch

    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise EngineUnavailable(f"there is no device `{wanted}`; use cpu, cuda or cuda:<number>.") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise EngineUnavailable(f"torch finds {torch.cuda.device_count()} CUDA devices, so not `{wanted}`; use cpu.")
    return device


def _dtype(wanted: str, device: torch.device) -> torch.dtype:
    import torch

    if wanted != "auto":
        dtype: torch.dtype = getattr(torch, wanted)
        return dtype
    if device.type != "cpu":
        return torch.float16
    return torch.bfloat16 if _cpu_computes_bf16() else torch.float32


def _cpu_computes_bf16() -> bool:
    """Whether the CPU has bfloat16 instructions; without them it is slower than float32."""
    try:
        with open("/proc/cpuinfo") as cpuinfo:
            flags = next(line for line in cpuinfo if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return False
    return any(name in flags for name in NATIVE_BF16)
