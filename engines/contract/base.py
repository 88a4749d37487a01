"""The engine contract: rendered prompt and token ids in, chunks of text with their token counts out.

An engine knows nothing of HTTP, queues or metrics. It lives in a child process (`engines.process.worker` runs it,
`engines.process.child` watches it), so its computing cannot hold up the server that writes its tokens to the network.

Write one by subclassing `Engine` when the library is asynchronous, or `BlockingEngine` when it computes in the calling
thread. This module is plain standard library, because it is also imported inside foreign environments.

See one at work:  enginebench serve --engine fake -o ttft=0.3 -o tpot=0.02
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

FinishReason = Literal["stop", "length", "cancelled"]
Batching = Literal["none", "static", "continuous"]
Feature = Literal["seed", "stop", "logprobs", "echo", "ignore_eos", "min_tokens"]
ErrorKind = Literal["bad_request", "unavailable", "crashed", "internal"]


# The errors. Every one is a sentence for a person, with the way out.


class EngineError(Exception):
    """What an engine reports instead of an answer; `kind` decides the HTTP status."""

    kind: ErrorKind = "internal"


class BadRequest(EngineError):
    """The request asks for something this engine cannot do, or makes no sense."""

    kind = "bad_request"


class EngineUnavailable(EngineError):
    """The engine cannot run here, or is not loaded: a missing package, model or device."""

    kind = "unavailable"


class EngineCrashed(EngineError):
    """The engine's process ended while the request was running."""

    kind = "crashed"


# What goes in and what comes out.


@dataclass(frozen=True, slots=True)
class Model:
    """A model on this machine's disk, ready to be loaded.

    `folder` holds `config.json`, the tokenizer and, unless `gguf` stands alone, safetensors. With `random_weights`
    there is only a configuration, and the engine draws its weights.
    """

    name: str
    folder: Path
    gguf: Path | None = None
    random_weights: bool = False
    trust_remote_code: bool = False


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One prompt. Every engine gets the same `prompt_token_ids`; `prompt` is the same text for those that need it."""

    prompt: str
    prompt_token_ids: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0  # 0 is greedy
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None  # how many alternatives per token

    def most_tokens(self, context_length: int) -> int:
        """How long the answer may become: what was asked for, or what the context has left after the prompt.

        Raises `BadRequest` where that is nothing.
        """
        length = len(self.prompt_token_ids)
        if not 0 < length < context_length:
            raise BadRequest(f"a prompt has 1 to {context_length - 1} tokens here, and this one has {length}.")
        return min(self.max_tokens, context_length - length)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural-log probability of one produced token, and of the likeliest alternatives, likeliest first."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """Text that became ready at one moment, and how many tokens it took.

    `text` may be empty while the bytes of a character are incomplete or a stop string may be forming; the tokens still
    count. The last chunk of a request carries `finish_reason`.
    """

    text: str
    tokens: int = 1
    finish_reason: FinishReason | None = None
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine is, once loaded: enough to repeat a measurement and to judge whether two are alike.

    `max_concurrency` is how many requests it runs at a time (more wait in the server's queue), `batching` how it runs
    them: one by one, in lock step, or joining and leaving a running batch.
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


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A moment in an engine's life. Bytes; KV use from 0 to 1; `None` where the engine cannot tell."""

    memory_bytes: int | None = None
    device_memory_bytes: int | None = None
    kv_cache_usage: float | None = None


class Engine(ABC):
    """One model, loaded once, that answers many requests.

    `Options` is a frozen dataclass of the settings people give as `-o name=value`; each field carries its help in
    `field(metadata={"help": ...})`. Heavy imports belong inside the methods: the class itself is imported by commands
    that only list engines.
    """

    Options: ClassVar[type[Any]]

    def __init__(self, model: Model | None, options: Any) -> None:
        self.model = model
        self.options = options

    @classmethod
    def why_not_here(cls) -> str | None:
        """One sentence on why this engine cannot run on this machine and what to do; `None` when it can."""
        return None

    @classmethod
    def why_not_with(cls, options: Any) -> str | None:
        """The same, once the options are known: one of them may name what is missing here."""
        return cls.why_not_here()

    @classmethod
    def version_here(cls) -> str | None:
        """Of the library or program that is on this machine; `None` where there is none, or it cannot be told."""
        return None

    @classmethod
    def command(cls) -> tuple[str, ...] | None:
        """The program that speaks the protocol; `None` for an engine in Python, which `engines.process.worker` runs."""
        return None

    @abstractmethod
    def load(self) -> EngineInfo:
        """Make ready to generate. Called once, off the event loop; may take minutes. Raises `EngineUnavailable`."""

    @abstractmethod
    def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        """Yield chunks until one has a `finish_reason`. Closing the iterator stops the work within one token."""

    def stats(self) -> EngineStats:
        return EngineStats()

    def close(self) -> None:
        """Give back what `load` took."""
        return


class BlockingEngine(Engine):
    """An engine whose library computes in the calling thread: each running request has a thread of its own.

    `max_threads` may be set by `load`; at most so many requests run at a time.
    """

    max_threads = 64

    @abstractmethod
    def generate_blocking(self, request: GenerateRequest) -> Iterator[Chunk]:
        """Like `generate`, in a plain generator. It is closed from its own thread, between two chunks."""

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[Chunk | BaseException | None] = asyncio.Queue()
        abandoned = threading.Event()

        def put(item: Chunk | BaseException | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.put_nowait, item)

        def run() -> None:
            chunks = self.generate_blocking(request)
            try:
                for chunk in chunks:
                    put(chunk)
                    if abandoned.is_set():
                        break
            except BaseException as error:  # the thread has nobody else to tell
                put(error)
            finally:
                close = getattr(chunks, "close", None)
                if close is not None:
                    close()
                put(None)

        finished = loop.run_in_executor(self._threads(), run)
        try:
            while (item := await arrived.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            # The slot counts as free only when the thread has really stopped computing.
            abandoned.set()
            await asyncio.shield(finished)

    def _threads(self) -> ThreadPoolExecutor:
        pool: ThreadPoolExecutor | None = self.__dict__.get("_pool")
        if pool is None:
            pool = self.__dict__["_pool"] = ThreadPoolExecutor(self.max_threads, thread_name_prefix="generate")
        return pool


# Settings given as text.


def parse_options(options_class: type[Any], given: Mapping[str, str]) -> Any:
    """Build an `Options` from `name=value` text. Raises `ValueError` with a sentence that lists the choices."""
    hints = typing.get_type_hints(options_class)
    known = {f.name: hints[f.name] for f in dataclasses.fields(options_class)}
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in known:
            choices = ", ".join(sorted(known)) or "none"
            raise ValueError(f"no option called `{name}` for this engine; it has: {choices}.")
        values[name] = _parse(name, text, known[name])
    return options_class(**values)


def _parse(name: str, text: str, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin is Literal:
        choices = typing.get_args(hint)
        if text not in choices:
            raise ValueError(f"option `{name}` is one of {', '.join(map(str, choices))}, not `{text}`.")
        return text
    if origin is types.UnionType or origin is typing.Union:  # `int | None`
        if text.lower() in {"", "none"}:
            return None
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not type(None))
        return _parse(name, text, hint)
    if hint is bool:
        lowered = text.lower()
        if lowered in {"1", "true", "yes", "on"}:
            return True
        if lowered in {"0", "false", "no", "off"}:
            return False
        raise ValueError(f"option `{name}` is true or false, not `{text}`.")
    try:
        return hint(text)
    except ValueError:
        kind = {int: "a whole number", float: "a number"}.get(hint, f"a {hint.__name__}")
        raise ValueError(f"option `{name}` is {kind}, not `{text}`.") from None
