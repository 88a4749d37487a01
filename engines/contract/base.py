"""The engine contract: rendered prompt and token ids in, chunks of text with their token counts out.

An engine does not deal with HTTP, queues or metrics. It runs in a child process (`engines.process.worker` runs it,
`engines.process.supervisor` supervises it), so its computation cannot delay the server that writes its tokens.

Subclass `Engine` when the library is asynchronous, or `BlockingEngine` when it computes in the calling thread. This
module uses only the standard library, because it is also imported in environments that have nothing else of ours.

Run one:  enginebench serve fake -o ttft=0.3 -o tpot=0.02
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any, ClassVar, Literal

from engines.contract.errors import BadRequest
from engines.models.size import MemoryNeed, ModelSize

FinishReason = Literal["stop", "length", "content_filter", "cancelled"]
Batching = Literal["none", "continuous"]
# "messages": the engine also gets chats as they were sent, and renders them itself.
Feature = Literal["seed", "stop", "logprobs", "ignore_eos", "min_tokens", "forced", "messages"]
# The phases of loading; `load` is the part that an engine does not divide further.
Phase = Literal["imports", "weights", "compile", "load"]
GREEDY_BELOW = 1e-3  # a lower temperature is greedy: scaled logits would overflow
# A nucleus of this probability or less is the likeliest token, in every vocabulary of up to a million tokens. In the
# 32-bit floats of most libraries, the smallest values of `top_p` become 0, and some libraries then keep no token.
GREEDY_TOP_P = 1e-6


@dataclass(frozen=True, slots=True)
class Model:
    """A model on this machine's disk, ready to be loaded.

    `folder` holds `config.json`, the tokenizer and safetensors; `gguf` is the file they were converted from, if any.
    With `random_weights` there is only a configuration and a tokenizer, and the engine generates its weights.
    """

    name: str
    folder: Path
    gguf: Path | None = None
    random_weights: bool = False
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """A prompt. Every engine gets the same `prompt_token_ids`; `prompt` is their text, for engines that need it."""

    prompt: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0  # below `GREEDY_BELOW`: greedy
    top_p: float = 1.0  # up to `GREEDY_TOP_P`: greedy
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None  # how many alternatives per token
    forced_token_ids: tuple[int, ...] = ()  # taken in place of sampled tokens, one after the other (teacher forcing)
    messages: tuple[Mapping[str, Any], ...] | None = None  # the chat, for engines that render the template themselves

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW or self.top_p <= GREEDY_TOP_P

    def token_limit(self, context_length: int) -> int:
        """Return the limit of the answer's tokens: `max_tokens`, or what the prompt leaves of the context.

        Raises `BadRequest` if nothing is left.
        """
        length = len(self.prompt_token_ids)
        if not 0 < length < context_length:
            raise BadRequest(f"the prompt has {length} tokens; this model takes 1 to {context_length - 1}.")
        return min(self.max_tokens, context_length - length)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probability of one generated token, and of the likeliest alternatives, likeliest first.

    The bytes are set if they differ from those of the text: a token may be a part of a character.
    """

    token: str
    logprob: float
    top: tuple[tuple[str, float, tuple[int, ...] | None], ...] = ()
    bytes: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """An engine's own figures of one request; `None` if it has none. Durations in seconds."""

    queue: float | None = None  # in the engine's own queue
    first_token: float | None = None  # from the engine's receipt of the request to its first token
    cached_tokens: int | None = None  # prompt tokens taken from a prefix cache
    prompt_tokens: int | None = None  # as a remote server counted them
    completion_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """Text that became ready at one moment, and the number of tokens generated for it.

    `text` may be empty while the bytes of a character are incomplete or a stop string may be forming; the tokens still
    count. The last chunk of a request has `finish_reason`, and `usage` if the engine measures more itself.
    """

    text: str
    tokens: int = 1
    finish_reason: FinishReason | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The facts of a loaded engine: enough to repeat a measurement and to judge whether two are comparable.

    `max_concurrency` is the number of requests it runs at a time (more wait in the server's queue). With `batching`
    "none" they run one by one, with "continuous" they join and leave a running batch.
    """

    name: str
    version: str
    language: str
    model: str
    dtype: str
    device: str
    batching: Batching
    max_concurrency: int
    context_length: int
    features: tuple[Feature, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    startup: Mapping[str, float] = field(default_factory=dict)  # seconds of each phase of its start, in order
    replicas: int = 1  # processes that share the requests; `max_concurrency` is their total


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of resource use; `None` if unknown.

    An engine reports `kv_cache_usage` (0 to 1) and, if its library counts them, the bytes that it has allocated on its
    GPUs, now and at its peak. `engines.process.supervisor` fills in the rest, for the engine's process and all
    processes under it: memory now and at its peak in bytes (the sum of each process's own peak), CPU time in seconds,
    and device memory as the driver sees it, once a second, if the engine does not report its own.
    """

    device_memory_bytes: int | None = None
    device_memory_peak_bytes: int | None = None
    kv_cache_usage: float | None = None
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """How an engine's process is started.

    `command` is a program that implements the protocol. Without one, `engines.process.worker` runs the engine's class
    on the interpreter `python` (none: this one), which needs only the engine's own packages. `environment` is added to,
    or with `None` removed from, the variables of this process. `cores` are the CPUs that it may use (none: all).
    `prefix`, such as a profiler's command, goes before the whole command.
    """

    command: tuple[str, ...] | None = None
    python: str | None = None
    environment: Mapping[str, str | None] = field(default_factory=dict)
    cores: tuple[int, ...] = ()
    prefix: tuple[str, ...] = ()


class Engine(ABC):
    """A model, loaded once, that answers many requests.

    `Options` is a frozen dataclass of the settings people give as `-o name=value`, each declared with `setting` of
    `enginebench.settings.schema`. Heavy imports belong inside the methods: commands that only list engines import the
    class itself.
    """

    name: ClassVar[str]
    language: ClassVar[str] = "python"
    features: tuple[Feature, ...] = ()
    Options: ClassVar[type[Any]]

    # The source of CUDA for the engine's GPU code: torch in its environment, the toolkit that compiles the code, or its
    # own wheel; `None` without GPU code. `enginebench doctor` compares the source with the driver.
    cuda_by: ClassVar[Literal["torch", "toolkit", "wheel"] | None] = None

    def __init__(self, model: Model | None, options: Any) -> None:
        self.model = model
        self.options = options
        self.startup: dict[Phase, float] = {}
        self._phase_began = time.monotonic()

    @classmethod
    def why_not_here(cls) -> str | None:
        """Return one sentence on why this engine cannot run on this machine and how to fix that; `None` when it can."""
        return None

    @classmethod
    def version_here(cls) -> str | None:
        """Return the version of the installed library or program; `None` if there is none or it is unknown."""
        return None

    @classmethod
    def compiler_here(cls) -> str | None:
        """Return the compiler, flags and profile of a program that was built on this machine."""
        return None

    @classmethod
    def launch(cls, options: Any, model: Model | None) -> Launch:
        """Return how the engine's process is started. `why_not_here` is called on the interpreter that this names."""
        return Launch()

    @classmethod
    def device_of(cls, options: Any) -> str:
        """Return the device with these options, as far as is known before loading: `cpu`, `cuda`, `cuda:1` …

        Replicas share the cores of a CPU, and have a GPU each.
        """
        return "cpu"

    @classmethod
    def gpus_of(cls, options: Any) -> int:
        """Return how many GPUs a process takes if it computes on GPUs."""
        return 1

    @classmethod
    def memory_need(cls, options: Any, size: ModelSize) -> MemoryNeed | None:
        """Return the minimum memory for a model of this size. The engine is refused before its process starts if less
        is free; `None` is unknown, and not checked."""
        return None

    def own_server(self, host: str, port: int) -> Launch | None:
        """Return the command of the library's own HTTP server, with the same model, format and limits as this engine,
        to measure the cost of the common server. `None` if the library has none. The server answers 200 at `/health`
        once it is ready. Raises `EngineUnavailable`."""
        return None

    # Whether a request is run before others when a process starts: with most engines the first request is slower.
    warms_up: ClassVar[bool] = True

    # Where `load` is called: on a separate thread or, for libraries that need it, on the main thread, where it may
    # be asynchronous and use the running loop; heartbeats are not answered while it blocks.
    loads_on: ClassVar[Literal["thread", "main"]] = "thread"

    def end_phase(self, phase: Phase, began: float | None = None) -> None:
        """Count the time since the last phase ended, or since `began` on the monotonic clock, as part of `phase`."""
        now = time.monotonic()
        self.startup[phase] = self.startup.get(phase, 0.0) + now - (began or self._phase_began)
        self._phase_began = now

    @abstractmethod
    def load(self) -> EngineInfo:
        """Load the model. Called once; may take minutes. Raises `EngineUnavailable`."""

    def describe(
        self,
        version: str,
        dtype: str,
        device: str,
        context_length: int,
        concurrency: int | None = None,
        libraries: Iterable[str] = (),
        **options: Any,
    ) -> EngineInfo:
        """Return the result of `load`. Options are reported as given, or as in `options`.

        `concurrency` is the number of requests in one batch; none: one after the other. `libraries` are packages.
        """
        return EngineInfo(
            name=self.name,
            version=version,
            language=self.language,
            model=self.name if self.model is None else self.model.name,
            dtype=dtype,
            device=device,
            batching="none" if concurrency is None else "continuous",
            max_concurrency=concurrency or 1,
            context_length=context_length,
            features=self.features,
            options=asdict(self.options) | options,
            libraries={name: version_of(name) for name in libraries},
        )

    @abstractmethod
    def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        """Yield chunks until one has a `finish_reason`. Closing the iterator stops the work within one token."""

    def stats(self) -> EngineStats:
        return EngineStats()

    def close(self) -> None:
        """Release the resources that `load` acquired."""
        return


class BlockingEngine(Engine):
    """An engine whose library computes in the calling thread: each running request has its own thread.

    `max_threads` bounds them if the library has a limit; `load` may set it.
    """

    max_threads = 4096

    @abstractmethod
    def generate_blocking(self, request: GenerateRequest) -> Iterator[Chunk]:
        """Answer like `generate`, in a plain generator, which is closed from its own thread, between two chunks."""

    def answer_blocking(self, request: GenerateRequest, put: Callable[[Chunk], bool]) -> None:
        """Pass each chunk to `put`, which returns whether the next one is still awaited."""
        chunks = self.generate_blocking(request)
        try:
            for chunk in chunks:
                if not put(chunk):
                    break
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[Chunk | BaseException | None] = asyncio.Queue()
        abandoned = threading.Event()

        def put(item: Chunk | BaseException | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.put_nowait, item)

        def deliver(chunk: Chunk) -> bool:
            put(chunk)
            return not abandoned.is_set()

        def run() -> None:
            try:
                self.answer_blocking(request, deliver)
            except BaseException as error:  # raised again when the chunks are awaited
                put(error)
            finally:
                put(None)

        finished = loop.run_in_executor(self._threads, run)
        try:
            while (item := await arrived.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            # The slot is free only when the thread has actually stopped computing.
            abandoned.set()
            await asyncio.shield(finished)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.max_threads, thread_name_prefix="generate")
