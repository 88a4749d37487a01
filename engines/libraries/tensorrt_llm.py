"""TensorRT-LLM through its `LLM` class, on NVIDIA GPUs, in a separate environment.

`LLM` is TensorRT-LLM's back end on PyTorch, with its own kernels, scheduler and CUDA graphs; no TensorRT engine is
built. Prompts go in as token ids, and each step's text and tokens come out (`generate_async` with streaming). Its reuse
of cache blocks is off unless requested. Stop strings are cut here, because TensorRT-LLM looks for their token ids, and
the same text may have other ids. Seeds are not supported, because this version's sampler has one for all requests.
NVIDIA's containers include TensorRT-LLM: there, `-o python=/usr/bin/python3` runs it without an installation. For a
running `trtllm-serve`, use the engine `remote`.

    enginebench engines install tensorrt-llm
    enginebench serve tensorrt-llm
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

from enginebench.settings.schema import setting
from engines.contract.base import Chunk, EngineInfo, FinishReason, GenerateRequest, Model
from engines.contract.errors import BadRequest, EngineError, first_line
from engines.libraries.library import Library, LibraryOptions, drop_none
from engines.models.fetch import context_length
from engines.process.environments import Environment, Packages
from engines.text.answer_text import StopStrings

NGRAM = 4  # longest run of tokens that is looked up to guess the next ones
FINISH: dict[str, FinishReason] = {"stop": "stop", "length": "length", "cancelled": "cancelled"}


@dataclass(frozen=True, slots=True)
class TensorRtLlmOptions(LibraryOptions):
    gpu_memory: float = setting(
        0.9, "share of a GPU's memory, once the weights are loaded, for keys and values", least=0.01, most=1
    )
    batch_tokens: int | None = setting(
        None, "maximum tokens per step (none: TensorRT-LLM decides)", least=1, tune="none,4096,16384"
    )


class TensorRtLlmEngine(Library):
    Options = TensorRtLlmOptions
    options: TensorRtLlmOptions
    name, title = "tensorrt-llm", "TensorRT-LLM"
    environment = Environment(
        name,
        "tensorrt_llm",
        # Its wheels are for these Pythons and for CUDA 13, while PyPI's torch 2.9.1, which it pins, is for CUDA 12.
        # TensorRT's libraries are on PyPI as packages that fetch the real ones from NVIDIA's index.
        cuda=Packages(
            ("tensorrt-llm==1.2.1", "torch==2.9.1"),
            pythons=("3.12", "3.10"),
            arguments=("--torch-backend", "cu130", "--index", "https://pypi.nvidia.com"),
            system=("libmpi",),
        ),
    )

    def start(self, model: Model) -> Any:
        """Start the library on the running loop, on which its results are awaited."""
        from tensorrt_llm import LLM

        return LLM(**self.arguments(model))

    def arguments(self, model: Model) -> dict[str, Any]:
        from tensorrt_llm.llmapi import CudaGraphConfig, KvCacheConfig

        options = self.options
        arguments = drop_none(
            model=str(model.folder),
            dtype=self.dtype_of(model),
            max_batch_size=options.concurrency,
            tensor_parallel_size=options.tensor_parallel,
            trust_remote_code=model.trust_remote_code,
            kv_cache_config=KvCacheConfig(
                enable_block_reuse=options.prefix_cache, free_gpu_memory_fraction=options.gpu_memory
            ),
            max_seq_len=options.context or context_length(model.folder),
            max_num_tokens=options.batch_tokens,
            load_format="dummy" if model.random_weights else None,
            speculative_config=self._speculation(),
        )
        # By default, only a few batch sizes have graphs, and other batches run without one.
        graphs = None if options.eager else CudaGraphConfig(max_batch_size=options.concurrency, enable_padding=True)
        arguments["cuda_graph_config"] = graphs
        if options.speculative_tokens:
            arguments["disable_overlap_scheduler"] = True  # guessing needs the tokens of the previous step
        return arguments

    def info(self) -> EngineInfo:
        info = super().info()
        return replace(info, options={**info.options, "backend": "PyTorch back end"})

    def _speculation(self) -> Any:
        from tensorrt_llm.llmapi import DraftTargetDecodingConfig, NGramDecodingConfig

        count = self.options.speculative_tokens
        if not count:
            return None
        if self.options.draft_model is None:
            return NGramDecodingConfig(max_draft_len=count, max_matching_ngram_size=NGRAM)
        return DraftTargetDecodingConfig(max_draft_len=count, speculative_model_dir=self.options.draft_model)

    def sampling(self, request: GenerateRequest) -> Any:
        from tensorrt_llm import SamplingParams

        fields = drop_none(
            max_tokens=request.token_limit(self.context_length),
            min_tokens=request.min_tokens or None,
            stop=list(request.stop) or None,
            include_stop_str_in_output=True,  # `StopStrings` cuts
            ignore_eos=request.ignore_eos,
            # One candidate is greedy at any temperature, which may not be 0.
            **({"top_k": 1} if request.greedy else {"temperature": request.temperature, "top_p": request.top_p}),
        )
        return SamplingParams(**fields)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        if request.stop and request.min_tokens:
            raise BadRequest("TensorRT-LLM ends at a stop string before min_tokens; leave out one of them.")
        stops = StopStrings(request.stop)
        try:
            result = self.library.generate_async(
                list(request.prompt_token_ids), sampling_params=self.sampling(request), streaming=True
            )
        except ValueError as error:
            raise BadRequest(f"TensorRT-LLM refuses this request: {first_line(error)}") from error
        try:
            async for step in result:
                (output,) = step.outputs
                text, finish = stops.step(output.text_diff, _finish(output))
                yield Chunk(text, len(output.token_ids_diff), finish)
                if finish is not None:
                    return
        finally:
            if not result.finished:
                result.abort()


def _finish(output: Any) -> FinishReason | None:
    """Read the finish reason. Raises `EngineError` if TensorRT-LLM aborted the request."""
    if output.finish_reason is None:
        return None
    if output.finish_reason not in FINISH:
        raise EngineError(f"TensorRT-LLM ended this answer with `{output.finish_reason}`.")
    return FINISH[output.finish_reason]
