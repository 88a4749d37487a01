"""From a request's body to a request for the engine. All validation happens here, before the queue."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TypedDict, TypeVar

from msgspec import UNSET

from engines.contract.base import GREEDY_BELOW, EngineInfo, Feature, GenerateRequest
from servers.http.errors import ApiError, bad_request
from servers.openai.arrays import read_ids
from servers.openai.prompts import Tokenizer
from servers.openai.requests import (
    Body,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    Sampling,
    TokenizeRequest,
    read,
    read_messages,
    read_prompt,
    read_stop,
)
from servers.openai.wire import ChatWire, Endpoint, TextWire, Wire
from servers.settings import ServerSettings

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions; that of a chat is the rest of the context
LARGE = 16 * 1024  # bytes; a larger body is processed in a thread, so that it delays no stream
LONGEST_NAME = 100  # characters of a client's text in an error

B = TypeVar("B", bound=Body)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A valid request: what to generate, and in which format to answer. `timeout` in seconds."""

    request: GenerateRequest
    wire: Wire
    streamed: bool
    timeout: float


class UsageOptions(TypedDict, total=False):
    """Keyword arguments of `Wire` that come from `stream_options`."""

    include_usage: bool
    continuous_usage: bool


class Intake:
    """Reads bodies for one engine."""

    def __init__(self, tokenizer: Tokenizer, settings: ServerSettings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._fingerprint: tuple[EngineInfo, str] | None = None
        self._threads = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="large-body")
        # Tokenising releases the interpreter lock, reading JSON and rendering templates do not: one thread at a time.
        self._reading = threading.Lock()

    async def accept(self, content: bytes, endpoint: Endpoint, info: EngineInfo) -> AcceptedRequest:
        """Raises `ApiError`."""
        return await self._run(self._chat if endpoint == "chat" else self._completion, content, info)

    async def tokens(self, content: bytes, info: EngineInfo) -> list[int]:
        """Token ids of a `TokenizeRequest`. Raises `ApiError`."""
        return await self._run(self._tokens, content, info)

    async def text(self, content: bytes, info: EngineInfo) -> str:
        """Text of a `DetokenizeRequest`. Raises `ApiError`."""
        return await self._run(self._text, content, info)

    def model_name(self, info: EngineInfo) -> str:
        return self._settings.served_model or info.model

    async def _run(self, work: Callable[[bytes, EngineInfo], T], content: bytes, info: EngineInfo) -> T:
        if len(content) <= LARGE:
            return work(content, info)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, content, info)

    def _read(self, content: bytes, shape: type[B], info: EngineInfo) -> B:
        body = read(content, shape, info.context_length)
        if body.model is not None and body.model != (served := self.model_name(info)):
            wanted = body.model[:LONGEST_NAME]
            message = f"This server has no model `{wanted}`; it serves `{served}`."
            raise ApiError(404, message, code="model_not_found")
        return body

    def _chat(self, content: bytes, info: EngineInfo) -> AcceptedRequest:
        with self._reading:
            body = self._read(content, ChatRequest, info)
            if body.max_tokens is not None and body.max_completion_tokens is not None:
                raise bad_request("Give `max_completion_tokens` or `max_tokens`, not both.", "max_tokens")
            if body.top_logprobs is not None and not body.logprobs:
                raise bad_request("`top_logprobs` needs `logprobs` to be true.", "top_logprobs")
            messages = read_messages(body.messages, info.context_length)
            prompt = self._tokenizer.render(messages)
        # Templates write the special tokens themselves.
        ids = self._tokenizer.encode(prompt, special=False, limit=info.context_length)
        max_tokens = self._max_tokens(body.max_completion_tokens or body.max_tokens, None, len(ids), info)
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        request = self._request(body, prompt, ids, max_tokens, logprobs, info)
        if "messages" in info.features:
            request = replace(request, messages=tuple(messages))
        wire = ChatWire(self.model_name(info), self._fingerprint_of(info), len(ids), **_usage_options(body))
        return AcceptedRequest(request, wire, bool(body.stream), self._timeout(body))

    def _completion(self, content: bytes, info: EngineInfo) -> AcceptedRequest:
        with self._reading:
            body = self._read(content, CompletionRequest, info)
            if body.echo and body.logprobs is not None:
                raise bad_request("`echo` with `logprobs` is not supported: prompts get no log probabilities.", "echo")
            given = read_prompt(body.prompt, info.context_length)
        if isinstance(given, str):
            prompt, ids = given, self._tokenizer.encode(given, special=True, limit=info.context_length)
        else:
            prompt, ids = self._decode(given), given
        max_tokens = self._max_tokens(body.max_tokens, DEFAULT_COMPLETION_TOKENS, len(ids), info)
        request = self._request(body, prompt, ids, max_tokens, body.logprobs, info)
        echo = prompt if body.echo else ""
        wire = TextWire(self.model_name(info), self._fingerprint_of(info), len(ids), echo=echo, **_usage_options(body))
        return AcceptedRequest(request, wire, bool(body.stream), self._timeout(body))

    def _tokens(self, content: bytes, info: EngineInfo) -> list[int]:
        with self._reading:
            body = self._read(content, TokenizeRequest, info)
            limit = info.context_length
            if (body.prompt is None) == (body.messages is UNSET):
                raise bad_request("Give either `prompt` or `messages`.", "prompt")
            if body.prompt is not None:
                text, special = body.prompt, body.add_special_tokens is not False
            else:
                messages = read_messages(body.messages, limit)
                text, special = (
                    self._tokenizer.render(messages, body.add_generation_prompt),
                    bool(body.add_special_tokens),
                )
        return self._tokenizer.encode(text, special, limit)

    def _text(self, content: bytes, info: EngineInfo) -> str:
        with self._reading:
            ids = read_ids(bytes(self._read(content, DetokenizeRequest, info).tokens), info.context_length, "tokens")
        return self._decode(ids)

    def _decode(self, ids: list[int]) -> str:
        """The text of token ids. Raises `ApiError` for an id outside the vocabulary."""
        size = self._tokenizer.vocab_size
        if ids and max(ids) >= size:
            raise bad_request(f"Token id {max(ids)} is outside the vocabulary of {size} tokens.", "prompt")
        return self._tokenizer.decode(ids)

    def _fingerprint_of(self, info: EngineInfo) -> str:
        """Changes with anything that may change an answer: engine, versions, model, number format, options."""
        if self._fingerprint is None or self._fingerprint[0] is not info:
            facts = json.dumps(asdict(info), sort_keys=True, default=str)
            self._fingerprint = info, "fp_" + hashlib.sha256(facts.encode()).hexdigest()[:12]
        return self._fingerprint[1]

    def _max_tokens(self, asked: int | None, default: int | None, prompt_tokens: int, info: EngineInfo) -> int:
        if not prompt_tokens:
            raise bad_request("The prompt is empty: it has no tokens.", "prompt")
        limit = self._settings.max_output_tokens
        if asked is not None and limit is not None and asked > limit:
            raise bad_request(f"This server limits answers to {limit} tokens; the request asks for {asked}.")
        left = info.context_length - prompt_tokens
        wanted = asked if asked is not None else min(default or left, limit or left)
        if left < 1 or wanted > left:
            raise bad_request(
                f"This model's context length is {info.context_length} tokens; the request needs "
                f"{prompt_tokens + max(1, wanted)} ({prompt_tokens} in the prompt, {max(1, wanted)} for the answer).",
                "messages" if default is None else "prompt",
                "context_length_exceeded",
            )
        return wanted

    def _request(
        self, body: Sampling, prompt: str, ids: list[int], max_tokens: int, logprobs: int | None, info: EngineInfo
    ) -> GenerateRequest:
        temperature = 1.0 if body.temperature is None else body.temperature
        greedy = temperature < GREEDY_BELOW or body.top_p == 0
        stop = read_stop(body.stop)
        min_tokens = body.min_tokens or 0
        if min_tokens > max_tokens:
            raise bad_request(
                f"`min_tokens` is {min_tokens}, more than the limit of {max_tokens} tokens.", "min_tokens"
            )
        asked: dict[Feature, object] = {
            "seed": body.seed is not None and not greedy,  # greedy decoding uses no random numbers
            "stop": stop,
            "ignore_eos": body.ignore_eos,
            "min_tokens": min_tokens,
            "logprobs": logprobs is not None,
        }
        for feature, wanted in asked.items():
            if wanted and feature not in info.features:
                raise bad_request(f"The engine {info.name} does not support `{feature}`; leave it out.", feature)
        return GenerateRequest(
            prompt=prompt,
            prompt_token_ids=tuple(ids),
            max_tokens=max_tokens,
            temperature=0.0 if greedy else temperature,
            top_p=body.top_p or 1.0,
            seed=None if greedy else body.seed,
            stop=stop,
            ignore_eos=bool(body.ignore_eos),
            min_tokens=min_tokens,
            logprobs=logprobs,
        )

    def _timeout(self, body: Sampling) -> float:
        return min(body.timeout or self._settings.request_timeout, self._settings.request_timeout)


def _usage_options(body: Sampling) -> UsageOptions:
    options = body.stream_options
    if options is None:
        return {}
    if options.include_obfuscation:
        raise bad_request("`stream_options.include_obfuscation` is not supported.", "stream_options")
    if not body.stream:
        raise bad_request("`stream_options` needs `stream` to be true.", "stream_options")
    return {"include_usage": bool(options.include_usage), "continuous_usage": bool(options.continuous_usage_stats)}
