"""The intentionally unoptimised baseline, to measure the benefit of caches, compilation and batching.

32-bit floats, one operation at a time, no key/value cache (every token computes the whole sequence again), no batching,
a device synchronisation after every layer, no warm-up, even when served. With `cold=yes` each request starts its own
process, and loads the interpreter, imports, weights and CUDA context again. Eager PyTorch as people use it, with a
cache and the library's own kernels, is the engine `transformers`.

    enginebench serve pytorch-baseline --model random:llama-3.2-1b
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from enginebench.settings.schema import setting
from engines.contract.base import BlockingEngine, Chunk, EngineInfo, EngineStats, GenerateRequest, Model
from engines.contract.errors import EngineError
from engines.contract.protocol import ChunkReady, Done, Failed, Generate, Load, decode_to_parent, encode
from engines.models.fetch import context_length
from engines.models.size import STACK, MemoryNeed, ModelSize
from engines.pytorch.device import DEVICE, OnTorch, expected_device
from engines.text.sampler import SampledAnswer

if TYPE_CHECKING:
    from engines.pytorch.unoptimized import Network

NAME = "pytorch-baseline"


@dataclass(frozen=True, slots=True)
class BaselineOptions:
    device: str = setting("auto", DEVICE)
    threads: int | None = setting(None, "CPU threads (none: torch decides)", least=1)
    cold: bool = setting(False, "start a new process, which loads the model again, for each request")


class PytorchBaselineEngine(OnTorch, BlockingEngine):
    Options = BaselineOptions
    options: BaselineOptions
    name = NAME
    max_threads = 1
    warms_up = False

    @classmethod
    def memory_need(cls, options: BaselineOptions, size: ModelSize) -> MemoryNeed:
        return size.need("float32", cache=0, device=cls.device_of(options))

    def load(self) -> EngineInfo:
        assert self.model is not None
        if self.options.cold:
            self._device = expected_device(self.options.device)
            self._context_length = context_length(self.model.folder, has_windows=False)
        else:
            self._threads.submit(self._load).result()
        return self.info("float32")

    def _load(self) -> None:
        model = self.open_model()
        self._context_length = context_length(model.folder, has_windows=False)
        self.network = _network(model, self._device, self._context_length)

    def generate_blocking(self, request: GenerateRequest) -> Iterator[Chunk]:
        most = request.token_limit(self._context_length)
        return self._in_a_new_process(request) if self.options.cold else self._here(request, most)

    def _here(self, request: GenerateRequest, most: int) -> Iterator[Chunk]:
        from engines.pytorch.unoptimized import passes

        answer = SampledAnswer(request, self._tokenizer, self._end_ids, most, self._device)
        ids = list(request.prompt_token_ids)
        for logits in passes(self.network, ids, self._device):
            id, chunk = answer.next(logits)
            ids.append(id)
            yield chunk
            if chunk.finish_reason is not None:
                return

    def _in_a_new_process(self, request: GenerateRequest) -> Iterator[Chunk]:
        """Run the same engine in a worker that loads it, answers this request and ends."""
        target = f"{__spec__.name}:{type(self).__name__}"
        command = [sys.executable, "-m", "engines.process.worker", target]
        options = {"device": self.options.device} | (
            {} if self.options.threads is None else {"threads": str(self.options.threads)}
        )
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            try:
                worker.stdin.write(encode(Load(NAME, self.model, options)) + encode(Generate(1, request)))
                worker.stdin.flush()
                yield from _chunks(worker.stdout)
            finally:
                worker.kill()

    def stats(self) -> EngineStats:
        return EngineStats() if self.options.cold else super().stats()


def _chunks(lines: Any) -> Iterator[Chunk]:
    """Yield the answer that a worker writes. Its last chunk has no finish reason, which the line after it brings."""
    for line in lines:
        match decode_to_parent(line):
            case ChunkReady(_, chunk):
                yield chunk
            case Done(_, finish_reason, usage):
                yield Chunk("", 0, finish_reason, usage=usage)
                return
            case Failed() as failed:
                raise failed.as_error()
    raise EngineError("the request's process ended before its answer.")


def _network(model: Model, device: Any, positions: int) -> Network:
    """Load the network without optimisation."""
    import torch

    from engines.pytorch.network import read_config, read_network
    from engines.pytorch.unoptimized import UnoptimizedLlama, UnoptimizedStack
    from engines.static.weights import DecoderShape, weights_of

    raw = json.loads((model.folder / "config.json").read_text())
    if raw["model_type"] == STACK:
        return UnoptimizedStack(raw, device)
    shape = DecoderShape.from_config(read_config(model), NAME)
    net = read_network(model, device, torch.float32)
    return UnoptimizedLlama(shape, weights_of(net, positions))
