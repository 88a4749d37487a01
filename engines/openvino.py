"""OpenVINO GenAI's continuous batching, on CPUs and Intel GPUs, in a separate environment.

It reads GGUF: a model's own file, or one that is written once from its safetensors. Prompts go in as token ids, each
step's token ids come out; scheduler, attention and sampling are OpenVINO's, text and stop strings ours.

    enginebench engines install openvino
    enginebench serve openvino -o dtype=q8_0
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal

from enginebench.settings.schema import setting
from engines.contract.base import Chunk, EngineInfo, EngineStats, FinishReason, GenerateRequest
from engines.contract.errors import EngineError, EngineUnavailable, first_line
from engines.contract.stepping import Generated, SteppingEngine
from engines.machine.devices import usable_cores
from engines.models.fetch import context_length
from engines.models.size import MemoryNeed, ModelSize
from engines.models.stored import end_ids
from engines.models.to_gguf import file_for, format_of
from engines.process.environments import Environment, InstalledEngine, Packages
from engines.text.answer_text import StopStrings
from engines.text.detokenize import Detokenizer, tokenizer_of

GIB = 1024**3
FINISH: dict[str, FinishReason] = {"STOP": "stop", "LENGTH": "length"}


@dataclass(frozen=True, slots=True)
class OpenVinoOptions:
    concurrency: int = setting(64, "requests that run in one batch", least=1, tune="8,32,64,256")
    dtype: Literal["auto", "float16", "q8_0", "q4_0", "gguf"] = setting(
        "auto", "number format of the weights. auto: a GGUF file as it is, else float16; q…: written once as GGUF"
    )
    device: str = setting("CPU", "OpenVINO's name of the device: CPU, GPU, GPU.1 …")
    threads: int | None = setting(None, "CPU threads (none: one per core)", least=1)
    kv_gib: int = setting(2, "memory for keys and values in GiB", least=1)
    batch_tokens: int = setting(256, "maximum tokens per step", least=1, tune="128,256,1024")
    prefix_cache: bool = setting(False, "reuse the keys and values of shared prompt prefixes")
    python: str | None = setting(None, "interpreter that has OpenVINO GenAI (none: the one of `engines install`)")


class OpenVinoEngine(InstalledEngine, SteppingEngine):
    Options = OpenVinoOptions
    options: OpenVinoOptions
    name, title, language = "openvino", "OpenVINO", "c++"
    features = ("seed", "stop", "ignore_eos", "min_tokens")
    cuda_by = None
    environment = Environment(name, "openvino_genai", cpu=Packages(("openvino-genai==2026.4.1.0", "gguf==0.19.0")))

    @classmethod
    def device_of(cls, options: OpenVinoOptions) -> str:
        return options.device.lower()

    @classmethod
    def memory_need(cls, options: OpenVinoOptions, size: ModelSize) -> MemoryNeed:
        dtype = format_of(options.dtype, size.gguf is not None)
        return size.need(dtype, cache=options.kv_gib * GIB, cache_options=("kv_gib",), device=cls.device_of(options))

    def open(self) -> EngineInfo:
        assert self.model is not None
        try:
            import openvino_genai
        except ImportError as error:
            raise EngineUnavailable(f"OpenVINO GenAI cannot be imported here: {error}.") from error
        file, dtype = file_for(self.model, self.options.dtype)
        properties = {"INFERENCE_NUM_THREADS": self._threads} if self.options.device == "CPU" else {}
        try:
            self._pipeline: Any = openvino_genai.ContinuousBatchingPipeline(
                str(file), self._scheduling(), self.options.device, properties
            )
        except RuntimeError as error:
            raise EngineUnavailable(f"OpenVINO could not load {self.model.name}: {first_line(error)}") from error
        self._end_ids, self._tokenizer = end_ids(self.model.folder), tokenizer_of(self.model.folder)
        self._context_length = context_length(self.model.folder, has_windows=False)
        self.batch = PipelineBatch(self._pipeline)
        return self.describe(
            version("openvino-genai"),
            dtype,
            self.options.device.lower(),
            self._context_length,
            self.options.concurrency,
            ("openvino", "openvino-genai"),
            threads=self._threads,
        )

    @property
    def _threads(self) -> int:
        return self.options.threads or len(usable_cores())

    def _scheduling(self) -> Any:
        from openvino_genai import SchedulerConfig

        config = SchedulerConfig()
        config.max_num_seqs = self.options.concurrency
        config.max_num_batched_tokens = self.options.batch_tokens
        config.cache_size = self.options.kv_gib
        config.enable_prefix_caching = self.options.prefix_cache
        config.dynamic_split_fuse = True  # prompts are prefilled in pieces, in the same steps as running answers
        return config

    def _generation(self, request: GenerateRequest) -> Any:
        from openvino_genai import GenerationConfig

        config = GenerationConfig()
        config.max_new_tokens = request.token_limit(self._context_length)
        config.min_new_tokens = request.min_tokens
        config.ignore_eos = request.ignore_eos
        config.stop_token_ids = set() if request.ignore_eos else set(self._end_ids)
        config.do_sample = not request.greedy
        if not request.greedy:
            config.temperature, config.top_p = request.temperature, request.top_p
            # Without one, OpenVINO draws the same numbers for every request.
            config.rng_seed = secrets.randbits(63) if request.seed is None else request.seed % 2**63
        return config

    def sequence_of(self, request: GenerateRequest) -> Sequence:
        text, stops = Detokenizer(self._tokenizer, request.prompt_token_ids), StopStrings(request.stop)
        return Sequence(request.prompt_token_ids, self._generation(request), text, stops, request.min_tokens)

    def stats(self) -> EngineStats:
        usage = self._pipeline.get_metrics().cache_usage  # in percent
        return EngineStats(kv_cache_usage=usage / 100)


class Sequence:
    """A request and its handle in the pipeline."""

    def __init__(
        self, ids: tuple[int, ...], generation: Any, text: Detokenizer, stops: StopStrings, min_tokens: int
    ) -> None:
        self.ids, self.generation = ids, generation
        self._text, self._stops = text, stops
        self._unchecked = min_tokens  # tokens in which no stop string is looked for
        self.handle: Any = None
        self.cancelled = False

    def chunk(self, output: Any) -> Chunk:
        ending = FINISH.get(output.finish_reason.name)
        decoded = "".join(map(self._text.add, output.generated_ids))
        self._unchecked -= len(output.generated_ids)
        if self._unchecked >= 0:
            return Chunk(decoded + (self._text.rest() if ending is not None else ""), len(output.generated_ids), ending)
        text, finish = self._stops.step(decoded + (self._text.rest() if ending is not None else ""), ending)
        return Chunk(text, len(output.generated_ids), finish)


class PipelineBatch:
    """OpenVINO's own batch: requests are added and cancelled between two steps."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self.sequences: list[Sequence] = []
        self._numbers = itertools.count(1)

    def add(self, sequence: Sequence) -> None:
        self.sequences.append(sequence)

    def step(self) -> Iterator[Generated]:
        yield self._admit()
        if self._pipeline.has_non_finished_requests():
            self._pipeline.step()
        yield self._generated()

    def _admit(self) -> Generated:
        """Start new sequences, and release cancelled ones."""
        left: Generated = []
        for sequence in list(self.sequences):
            if sequence.cancelled:
                left.append((sequence, None))
                self._remove(sequence)
            elif sequence.handle is None and (error := self._start(sequence)) is not None:
                left.append((sequence, error))
                self._remove(sequence)
        return left

    def _start(self, sequence: Sequence) -> EngineUnavailable | None:
        import numpy as np
        from openvino import Tensor

        try:
            prompt = Tensor(np.array([sequence.ids], dtype=np.int64))
            sequence.handle = self._pipeline.add_request(next(self._numbers), prompt, sequence.generation)
        except RuntimeError as error:
            return EngineUnavailable(f"OpenVINO refuses this request: {first_line(error)}")
        return None

    def _generated(self) -> Generated:
        generated: Generated = []
        for sequence in list(self.sequences):
            while sequence in self.sequences and sequence.handle.can_read():
                for output in sequence.handle.read().values():
                    chunk = sequence.chunk(output)
                    generated.append((sequence, chunk))
                    if chunk.finish_reason is not None:
                        self._remove(sequence)
                        break
            if sequence in self.sequences and sequence.handle.get_status().name == "IGNORED":
                generated.append((sequence, EngineError("the request needs more room for keys and values (kv_gib).")))
                self._remove(sequence)
        return generated

    def _remove(self, sequence: Sequence) -> None:
        """Cancel and forget a sequence; the pipeline does not know of ends at stop strings."""
        if sequence.handle is not None:
            sequence.handle.cancel()
        self.sequences.remove(sequence)
