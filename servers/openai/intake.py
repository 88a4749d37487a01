"""Convert a request's body to a request for the engine: all validation, the chat template, the tokenizer."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, TypedDict, TypeVar

from msgspec import UNSET

from engines.contract.base import GREEDY_BELOW, GREEDY_TOP_P, EngineInfo, Feature, GenerateRequest
from servers.http.api_errors import ApiError, bad_request
from servers.openai.bodies import (
    Body,
    ChatRequest,
    CompletionRequest,
    GenerationBody,
    TokenizeRequest,
    read,
    read_messages,
    read_prompt,
    read_stop,
)
from servers.openai.decoding import MAX_NAME, TOO_LONG
from servers.openai.prompts import Tokenizer
from servers.openai.wire import ChatWire, Endpoint, TextWire, Wire
from servers.settings import ServerSettings

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions; a chat's is the rest of the context
LARGE = 16 * 1024  # bytes; a larger body is processed in a thread, so that it delays no stream
MAX_TOKENS = 10**9  # a limit above any context; an error cannot show a number of more than 4,300 digits
SHAPES: dict[Endpoint, type[GenerationBody]] = {"chat": ChatRequest, "completions": CompletionRequest}

B = TypeVar("B", bound=Body)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AcceptedRequest:
    """A valid request: what to generate, and in which format to answer. `timeout` in seconds."""

    request: GenerateRequest
    wire: Wire
    streamed: bool
    timeout: float


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text, or token ids. `special`: tokenising adds the model's special tokens, as chat templates write themselves."""

    content: str | list[int]
    special: bool
    messages: tuple[dict[str, str], ...] = ()


class UsageOptions(TypedDict, total=False):
    """Keyword arguments of `Wire` that come from `stream_options`."""

    include_usage: bool
    continuous_usage: bool


class Intake:
    """Read bodies for one engine.

    Reading JSON and rendering templates hold the interpreter lock, so large bodies are read one at a time; tokenising
    releases it. The event loop waits for neither.
    """

    def __init__(self, tokenizer: Tokenizer, settings: ServerSettings) -> None:
        self._tokenizer = tokenizer
        self._settings = settings
        self._fingerprint: tuple[EngineInfo, str] | None = None
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="read")
        self._tokenisers = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="tokenise")

    async def accept(self, content: bytes, endpoint: Endpoint, info: EngineInfo) -> AcceptedRequest:
        """Turn a body into a request for the engine. Raises `ApiError`."""
        body, prompt, text, ids = await self._prepared(content, SHAPES[endpoint], info)
        request = self._request(body, prompt, text, ids, info)
        options = _usage_options(body)
        wire: Wire
        if endpoint == "chat":
            wire = ChatWire(info.model, self._fingerprint_of(info), len(ids), **options)
        else:
            echo = text if isinstance(body, CompletionRequest) and body.echo else ""
            first = None
            if echo and request.logprobs is not None:  # the engine repeats the rest itself, with log-probabilities
                first = self._tokenizer.decode(ids[:1])
                echo = first if text.startswith(first) else ""  # a token that begins every prompt is not in its text
            wire = TextWire(info.model, self._fingerprint_of(info), len(ids), echo=echo, first=first, **options)
        most = self._settings.request_timeout
        return AcceptedRequest(request, wire, bool(body.stream), min(body.timeout or most, most))

    async def tokens(self, content: bytes, info: EngineInfo) -> list[int]:
        """Return token ids of a `TokenizeRequest`. Raises `ApiError`."""
        _, _, _, ids = await self._prepared(content, TokenizeRequest, info)
        return ids

    async def _prepared(self, content: bytes, shape: type[B], info: EngineInfo) -> tuple[B, Prompt, str, list[int]]:
        """Return the body, its prompt, and the prompt's text and token ids."""
        large = len(content) > LARGE
        body, prompt = await _run(self._reader if large else None, self._read, content, shape, info)
        text, ids = await _run(self._tokenisers if large else None, self._tokenise, prompt, info.context_length)
        return body, prompt, text, ids

    def _read(self, content: bytes, shape: type[B], info: EngineInfo) -> tuple[B, Prompt]:
        body = read(content, shape, info.context_length)
        if body.model is not None and body.model != info.model:
            message = f"This server has no model `{body.model[:MAX_NAME]}`; it serves `{info.model}`."
            raise ApiError(404, message, code="model_not_found")
        return body, self._prompt(body, info.context_length)

    def _prompt(self, body: Body, limit: int) -> Prompt:
        match body:
            case ChatRequest():
                if body.top_logprobs is not None and not body.logprobs:
                    raise bad_request("`top_logprobs` needs `logprobs` to be true.", "top_logprobs")
                messages = read_messages(body.messages)
                return Prompt(self._tokenizer.render(messages), False, tuple(messages))
            case CompletionRequest():
                if body.echo and body.logprobs is not None and body.stream:
                    raise bad_request("`echo` with `logprobs` is not streamed: leave out `stream`.", "echo")
                return Prompt(read_prompt(body.prompt, limit), True)
            case _:
                assert isinstance(body, TokenizeRequest)
                if body.prompt is not None and body.messages is UNSET:
                    return Prompt(body.prompt, body.add_special_tokens is not False)
                if body.prompt is not None or body.messages is UNSET:
                    raise bad_request("Give either `prompt` or `messages`.", "prompt")
                text = self._tokenizer.render(read_messages(body.messages), body.add_generation_prompt)
                return Prompt(text, bool(body.add_special_tokens))

    def _tokenise(self, prompt: Prompt, limit: int) -> tuple[str, list[int]]:
        """Return text and token ids. Raises `ApiError` for an id outside the vocabulary."""
        if isinstance(prompt.content, str):
            return prompt.content, self._tokenizer.encode(prompt.content, prompt.special, limit)
        ids, size = prompt.content, self._tokenizer.vocab_size
        if ids and max(ids) >= size:
            raise bad_request(f"Token id {max(ids)} is outside the vocabulary of {size} tokens.", "prompt")
        return self._tokenizer.decode(ids), ids

    def _fingerprint_of(self, info: EngineInfo) -> str:
        """Return a hash of everything that may change an answer: engine, versions, model, number format, options."""
        if self._fingerprint is None or self._fingerprint[0] is not info:
            facts = {name: fact for name, fact in asdict(info).items() if name != "startup"}
            text = json.dumps(facts, sort_keys=True, default=str)
            self._fingerprint = info, "fp_" + hashlib.sha256(text.encode()).hexdigest()[:12]
        return self._fingerprint[1]

    def _request(
        self, body: GenerationBody, prompt: Prompt, text: str, ids: list[int], info: EngineInfo
    ) -> GenerateRequest:
        temperature = 1.0 if body.temperature is None else body.temperature
        top_p = 1.0 if body.top_p is None else body.top_p
        greedy = temperature < GREEDY_BELOW or top_p <= GREEDY_TOP_P
        max_tokens, min_tokens = _max_tokens(body, len(ids), info), body.min_tokens or 0
        if min_tokens > max_tokens:
            raise bad_request(
                f"`min_tokens` is {min_tokens}, more than the limit of {max_tokens} tokens.", "min_tokens"
            )
        stop, logprobs = read_stop(body.stop), body.alternatives()
        # Log-probabilities of the prompt's own tokens, as with vLLM: these are generated as forced tokens.
        scored = isinstance(body, CompletionRequest) and bool(body.echo) and logprobs is not None and len(ids) > 1
        used: dict[Feature, object] = {
            "forced": scored,
            "seed": body.seed is not None and not greedy,  # greedy decoding uses no random numbers
            "stop": stop,
            "ignore_eos": body.ignore_eos,
            "min_tokens": min_tokens,
            "logprobs": logprobs is not None,
        }
        for feature, value in used.items():
            if value and feature not in info.features:
                if feature == "forced":
                    raise bad_request(
                        f"{info.name} gives no log-probabilities of given tokens: leave out `echo`.", "echo"
                    )
                raise bad_request(f"The engine {info.name} does not support `{feature}`; leave it out.", feature)
        return GenerateRequest(
            prompt=text,
            prompt_token_ids=tuple(ids[:1] if scored else ids),
            max_tokens=max_tokens + (len(ids) - 1 if scored else 0),
            forced_token_ids=tuple(ids[1:]) if scored else (),
            temperature=0.0 if greedy else temperature,
            top_p=1.0 if greedy else top_p,
            seed=None if greedy else body.seed,
            stop=stop,
            ignore_eos=bool(body.ignore_eos),
            min_tokens=min_tokens,
            logprobs=logprobs,
            messages=prompt.messages if "messages" in info.features and prompt.messages else None,
        )


async def _run(pool: Executor | None, work: Callable[..., T], *arguments: Any) -> T:
    """Run work in a thread of the pool; without a pool, here and now."""
    if pool is None:
        return work(*arguments)
    return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)


def _max_tokens(body: GenerationBody, prompt_tokens: int, info: EngineInfo) -> int:
    if not prompt_tokens:
        raise bad_request("The prompt is empty: it has no tokens.", "prompt")
    chat = isinstance(body, ChatRequest)
    left = info.context_length - prompt_tokens
    limit = min(body.token_limit() or (left if chat else min(DEFAULT_COMPLETION_TOKENS, left)), MAX_TOKENS)
    if left < 1 or limit > left:
        raise bad_request(
            f"This model's context length is {info.context_length} tokens; the request needs "
            f"{prompt_tokens + max(1, limit)} ({prompt_tokens} in the prompt, {max(1, limit)} for the answer).",
            "messages" if chat else "prompt",
            TOO_LONG,
        )
    return limit


def _usage_options(body: GenerationBody) -> UsageOptions:
    options = body.stream_options
    if options is None:
        return {}
    if options.include_obfuscation:
        raise bad_request("`stream_options.include_obfuscation` is not supported.", "stream_options")
    if not body.stream:
        raise bad_request("`stream_options` needs `stream` to be true.", "stream_options")
    return {"include_usage": bool(options.include_usage), "continuous_usage": bool(options.continuous_usage_stats)}
