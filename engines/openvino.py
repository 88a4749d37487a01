"""OpenVINO GenAI's continuous batching, on CPUs and Intel GPUs, in an environment of its own.

It reads GGUF: a model's own file, or one that is written once from its safetensors. Prompts go in as token ids, each
step's token ids come out; scheduler, attention and sampling are OpenVINO's, text and stop strings ours. One thread
steps the pipeline, and adds and cancels requests between two steps.

    enginebench engines install openvino
    enginebench serve --engine openvino -o dtype=q8_0
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Literal

from engines.contract.base import Chunk, EngineInfo, EngineStats, FinishReason, GenerateRequest
from engines.contract.errors import EngineUnavailable, FatalError, first_line
from engines.machine.devices import usable_cores
from engines.models.fetch import context_length
from engines.models.size import MemoryNeed, ModelSize
from engines.models.to_gguf import file_for, format_of
from engines.process.installed import Environment, InstalledEngine, Packages
from engines.text.answer import StopStrings
from engines.text.detokenize import Detokenizer
from settings.schema import setting

GIB = 1024**3
FINISH: dict[str, FinishReason] = {"STOP": "stop", "LENGTH": "length"}
Piece = tuple[list[int], str]  # new token ids, and the finish reason's name


@dataclass(frozen=True, slots=True)
class OpenVinoOptions:
    concurrency: int = setting(64, "requests that run in one batch", least=1)
    dtype: Literal["auto", "float16", "q8_0", "q4_0", "gguf"] = setting(
        "auto", "number format of the weights. auto: a GGUF file as it is, else float16; q…: written once as GGUF"
    )
    device: str = setting("CPU", "OpenVINO's name of the device: CPU, GPU, GPU.1 …")
    threads: int | None = setting(None, "CPU threads (none: one per core)", least=1)
    kv_gib: int = setting(2, "memory for keys and values in GiB", least=1)
    batch_tokens: int = setting(256, "maximum tokens per step", least=1)
    prefix_cache: bool = setting(False, "reuse the keys and values of shared prompt prefixes")
    python: str | None = setting(None, "interpreter that has OpenVINO GenAI (none: the one of `engines install`)")


class OpenVinoEngine(InstalledEngine):
    Options = OpenVinoOptions
    options: OpenVinoOptions
    cuda_by = None
    environment = Environment(
        "openvino", "openvino_genai", cpu=Packages(("openvino-genai==2026.4.1.0", "gguf==0.19.0"))
    )

    @classmethod
    def device_of(cls, options: OpenVinoOptions) -> str:
        return options.device.lower()

    @classmethod
    def memory_need(cls, options: OpenVinoOptions, size: ModelSize) -> MemoryNeed:
        dtype = format_of(options.dtype, size.gguf is not None)
        return size.need(dtype, cache=options.kv_gib * GIB, cache_options=("kv_gib",), device=cls.device_of(options))

    def load(self) -> EngineInfo:
        assert self.model is not None
        try:
            import openvino_genai
            from tokenizers import Tokenizer
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
        config = json.loads((self.model.folder / "config.json").read_text())
        ends = config.get("eos_token_id")
        self._ends = set(ends if isinstance(ends, list) else [ends]) - {None}
        self._tokenizer = Tokenizer.from_file(str(self.model.folder / "tokenizer.json"))
        self._context_length = context_length(self.model.folder)
        self._stepper = Stepper(self._pipeline)
        return EngineInfo(
            name="openvino",
            version=version("openvino-genai"),
            language="c++",
            model=self.model.name,
            dtype=dtype,
            device=self.options.device.lower(),
            batching="continuous",
            max_concurrency=self.options.concurrency,
            context_length=self._context_length,
            features=("seed", "stop", "ignore_eos", "min_tokens"),
            options=asdict(self.options) | {"threads": self._threads},
            libraries={name: version(name) for name in ("openvino", "openvino-genai")},
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
        config.max_new_tokens = request.most_tokens(self._context_length)
        config.min_new_tokens = request.min_tokens
        config.ignore_eos = request.ignore_eos
        config.stop_token_ids = set() if request.ignore_eos else self._ends
        config.do_sample = not request.greedy
        if not request.greedy:
            config.temperature, config.top_p = request.temperature, request.top_p
            if request.seed is not None:
                config.rng_seed = request.seed
        return config

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        text, stops = Detokenizer(self._tokenizer, request.prompt_token_ids), StopStrings(request.stop)
        running = self._stepper.add(request.prompt_token_ids, self._generation(request))
        try:
            while True:
                ids, reason = await running.pieces()
                given = FINISH.get(reason)
                decoded = "".join(text.add(id) for id in ids) + (text.rest() if given is not None else "")
                ready, finish = stops.step(decoded, given)
                yield Chunk(ready, len(ids), finish)
                if finish is not None:
                    return
        finally:
            running.leave()

    def stats(self) -> EngineStats:
        usage = self._pipeline.get_metrics().cache_usage  # in percent
        return EngineStats(kv_cache_usage=usage / 100)

    def close(self) -> None:
        self._stepper.stop()


class Running:
    """One request as its asyncio task sees it."""

    def __init__(self, stepper: Stepper) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Piece | BaseException] = asyncio.Queue()
        self._stepper = stepper
        self.handle: Any = None
        self.left = False

    async def pieces(self) -> Piece:
        piece = await self._arrived.get()
        if isinstance(piece, BaseException):
            raise piece
        return piece

    def put(self, piece: Piece | BaseException) -> None:
        """From the stepping thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, piece)

    def leave(self) -> None:
        self.left = True
        self._stepper.wake()


class Stepper:
    """The thread that owns the pipeline."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._new: queue.SimpleQueue[tuple[Running, Any, Any] | None] = queue.SimpleQueue()
        self._running: list[Running] = []
        self._stopped = False
        self._count = 0
        threading.Thread(target=self._run, name="openvino-steps", daemon=True).start()

    def add(self, ids: tuple[int, ...], config: Any) -> Running:
        running = Running(self)
        self._new.put((running, ids, config))
        return running

    def wake(self) -> None:
        self._new.put(None)

    def stop(self) -> None:
        self._stopped = True
        self.wake()

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._take_new(wait=not self._running)
                self._drop_left()
                if self._pipeline.has_non_finished_requests():
                    self._pipeline.step()
                    self._hand_out()
            except Exception as error:  # any exception of the library ends the pipeline
                for running in self._running:
                    running.put(FatalError(f"OpenVINO failed: {first_line(error)}"))
                self._running.clear()

    def _take_new(self, wait: bool) -> None:
        while True:
            try:
                taken = self._new.get(block=wait)
            except queue.Empty:
                return
            wait = False
            if taken is not None:
                self._start(*taken)

    def _start(self, running: Running, ids: tuple[int, ...], config: Any) -> None:
        import numpy as np
        from openvino import Tensor

        self._count += 1
        try:
            prompt = Tensor(np.array([ids], dtype=np.int64))
            running.handle = self._pipeline.add_request(self._count, prompt, config)
        except RuntimeError as error:
            running.put(EngineUnavailable(f"OpenVINO refuses this request: {first_line(error)}"))
        else:
            self._running.append(running)

    def _drop_left(self) -> None:
        for running in [one for one in self._running if one.left]:
            running.handle.cancel()
            self._running.remove(running)

    def _hand_out(self) -> None:
        for running in list(self._running):
            while running.handle.can_read():
                for output in running.handle.read().values():
                    reason = output.finish_reason.name
                    running.put((list(output.generated_ids), reason))
                    if reason != "NONE":
                        running.left = True
