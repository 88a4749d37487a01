"""SGLang's engine in process, on NVIDIA GPUs, in a separate environment.

Prompts go in as token ids and each step's text comes out (`incremental_streaming_output`). Its prefix cache is off
unless requested. Stop strings are cut here, because a streamed beginning of one could not be taken back; SGLang also
stops computing at them. Seeds are not supported, because SGLang honours them only in its deterministic mode, which has
other kernels. For a running SGLang server, use the engine `remote`.

    enginebench engines install sglang
    enginebench serve sglang -o tensor_parallel=2
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from enginebench.settings.schema import setting
from engines.contract.base import Chunk, FinishReason, GenerateRequest, Model, Usage
from engines.contract.errors import BadRequest, EngineError, first_line
from engines.libraries.library import ContextParallelOptions, Library, drop_none, none_if_one
from engines.models.size import MemoryNeed, ModelSize
from engines.process.environments import Environment, Packages
from engines.text.answer_text import StopStrings


@dataclass(frozen=True, slots=True)
class SglangOptions(ContextParallelOptions):
    quantization: str | None = setting(None, "quantised weights, as SGLang names them: fp8, awq, gptq …")
    gpu_memory: float = setting(
        0.85, "share of a GPU's memory for weights, keys and values (mem_fraction_static)", least=0.01, most=1
    )


class SglangEngine(Library):
    Options = SglangOptions
    options: SglangOptions
    name, title = "sglang", "SGLang"
    server_module = "sglang.launch_server"
    environment = Environment(
        name,
        "sglang",
        # FlashInfer compiles kernels at their first use. flash-attn-4 has only pre-releases.
        cuda=Packages(
            ("sglang==0.5.23",), pythons=("3.12", "3.11"), arguments=("--prerelease", "allow"), system=("nvcc",)
        ),
    )

    @classmethod
    def memory_need(cls, options: SglangOptions, size: ModelSize) -> MemoryNeed:
        return replace(super().memory_need(options, size), gpu_share=options.gpu_memory)

    def start(self, model: Model) -> Any:
        import sglang

        return sglang.Engine(**self.arguments(model))

    def server_arguments(self, model: Model) -> dict[str, Any]:
        """Leave out false switches, which have no flag."""
        return {name: value for name, value in self.arguments(model).items() if value is not False}

    def arguments(self, model: Model) -> dict[str, Any]:
        options = self.options
        return drop_none(
            model_path=str(model.folder),
            dtype=self.dtype_of(model),
            max_running_requests=options.concurrency,
            mem_fraction_static=options.gpu_memory,
            tp_size=options.tensor_parallel,
            dcp_size=none_if_one(options.decode_context_parallel),
            attn_cp_size=none_if_one(options.prefill_context_parallel),
            enable_prefill_cp=options.prefill_context_parallel > 1 or None,
            disable_radix_cache=not options.prefix_cache,
            disable_cuda_graph=options.eager,
            # By default, the largest graph is chosen by the GPU's memory, and larger batches run without one.
            cuda_graph_max_bs_decode=None if options.eager else options.concurrency,
            trust_remote_code=model.trust_remote_code,
            incremental_streaming_output=True,
            sampling_defaults="openai",  # not the defaults in the model's folder: every request sets its own
            random_seed=0,
            log_level="warning",
            quantization=options.quantization,
            context_length=options.context,
            load_format="dummy" if model.random_weights else None,
            **self._speculation(),
        )

    def _speculation(self) -> dict[str, Any]:
        count = self.options.speculative_tokens
        if not count:
            return {}
        if self.options.draft_model is None:
            return {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": count}
        return {
            "speculative_algorithm": "STANDALONE",
            "speculative_draft_model_path": self.options.draft_model,
            "speculative_num_steps": count,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": count + 1,
        }

    def sampling(self, request: GenerateRequest) -> dict[str, Any]:
        """Return the fields of `SamplingParams`."""
        return drop_none(
            max_new_tokens=request.token_limit(self.context_length),
            min_new_tokens=request.min_tokens,
            temperature=0.0 if request.greedy else request.temperature,
            top_p=1.0 if request.greedy else request.top_p,
            stop=list(request.stop) or None,
            no_stop_trim=True,  # `StopStrings` cuts
            ignore_eos=request.ignore_eos,
        )

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        if request.stop and request.min_tokens:
            raise BadRequest("SGLang ends at a stop string before min_tokens; leave out one of them.")
        id, stops = uuid.uuid4().hex, StopStrings(request.stop)
        try:
            steps = await self.library.async_generate(
                input_ids=list(request.prompt_token_ids), sampling_params=self.sampling(request), stream=True, rid=id
            )
            async with contextlib.aclosing(steps):
                async for step in steps:
                    text, finish = stops.step(step["text"] or "", _finish(step))
                    cached = step["meta_info"].get("cached_tokens") if self.options.prefix_cache else None
                    usage = None if finish is None else Usage(cached_tokens=cached)
                    yield Chunk(text, len(step["output_ids"]), finish, (), usage)
                    if finish is not None:
                        return
        except ValueError as error:  # SGLang's way to refuse a request
            raise BadRequest(f"SGLang refuses this request: {first_line(error)}") from error
        finally:
            # Does nothing for a request that has ended.
            self.library.tokenizer_manager.abort_request(rid=id)


def _finish(step: dict[str, Any]) -> FinishReason | None:
    """Read the finish reason. Raises `EngineError` if SGLang aborted the request."""
    reason = step["meta_info"].get("finish_reason")
    if reason is None:
        return None
    if reason["type"] == "abort":
        raise EngineError(f"SGLang aborted this request: {reason.get('message', 'it gives no reason')}")
    return "length" if reason["type"] == "length" else "stop"
