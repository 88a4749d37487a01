"""From a request's body to a request for the engine. All validation happens here, before the queue."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypedDict, TypeVar, cast

from pydantic import ValidationError

from engines.contract.base import EngineInfo, Feature, GenerateRequest
from servers.http.errors import ApiError, bad_request, from_validation
from servers.openai.prompts import Tokenizer
from servers.openai.schemas import (
    IRRELEVANT,
    UNUSED,
    Body,
    ChatRequest,
    CompletionRequest,
    Message,
    Sampling,
    TokenIds,
    TokenizeRequest,
)
from servers.openai.wire import ChatWire, TextWire, Wire
from servers.settings import ServerSettings

DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's default for /v1/completions; that of a chat is the rest of the context
LONG_TEXT = 16_384  # characters; longer text is tokenised in a thread, so that it delays no other stream

B = TypeVar("B", bound=Body)


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

    def parse(self, content: bytes, shape: type[B], info: EngineInfo) -> B:
        """The body as a `shape`. Raises `ApiError`, also where it names another model."""
        try:
            body = shape.model_validate_json(content)
        except ValidationError as error:
            raise from_validation(error) from None
        if body.model is not None and body.model != (served := self.model_name(info)):
            raise ApiError(
                404, f"This server has no model `{body.model}`; it serves `{served}`.", code="model_not_found"
            )
        for name, value in (body.model_extra or {}).items():
            _refuse_unless_harmless(name, value)
        return body

    async def chat(self, body: ChatRequest, info: EngineInfo) -> AcceptedRequest:
        if body.max_tokens is not None and body.max_completion_tokens is not None:
            raise bad_request("Give `max_completion_tokens` or `max_tokens`, not both.", "max_tokens")
        if body.top_logprobs is not None and not body.logprobs:
            raise bad_request("`top_logprobs` needs `logprobs` to be true.", "top_logprobs")
        prompt, ids = await self._render(body.messages, special=False)
        max_tokens = self._max_tokens(body.max_completion_tokens or body.max_tokens, None, len(ids), info)
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        request = self._request(body, prompt, ids, max_tokens, logprobs, info)
        wire = ChatWire(self.model_name(info), self.fingerprint(info), len(ids), **_usage_options(body))
        return AcceptedRequest(request, wire, bool(body.stream), self._timeout(body))

    async def completion(self, body: CompletionRequest, info: EngineInfo) -> AcceptedRequest:
        if body.echo and body.logprobs is not None:
            raise bad_request("`echo` with `logprobs` is not supported: prompts get no log probabilities.", "echo")
        prompt, ids = await self._single_prompt(body.prompt)
        max_tokens = self._max_tokens(body.max_tokens, DEFAULT_COMPLETION_TOKENS, len(ids), info)
        request = self._request(body, prompt, ids, max_tokens, body.logprobs, info)
        echo = prompt if body.echo else ""
        wire = TextWire(self.model_name(info), self.fingerprint(info), len(ids), echo=echo, **_usage_options(body))
        return AcceptedRequest(request, wire, bool(body.stream), self._timeout(body))

    async def tokens(self, body: TokenizeRequest) -> list[int]:
        if (body.prompt is None) == (body.messages is None):
            raise bad_request("Give either `prompt` or `messages`.", "prompt")
        if body.messages is not None:
            special = bool(body.add_special_tokens)
            return (await self._render(body.messages, special, body.add_generation_prompt))[1]
        return await self._encode(cast(str, body.prompt), special=body.add_special_tokens is not False)

    def text(self, ids: Sequence[int]) -> str:
        """The text of token ids. Raises `ApiError` for an id outside the vocabulary."""
        size = self._tokenizer.vocab_size
        if ids and max(ids) >= size:
            raise bad_request(f"Token id {max(ids)} is outside the vocabulary of {size} tokens.", "prompt")
        return self._tokenizer.decode(ids)

    def model_name(self, info: EngineInfo) -> str:
        return self._settings.served_model or info.model

    def fingerprint(self, info: EngineInfo) -> str:
        """Changes with anything that may change an answer: engine, versions, model, number format, options."""
        if self._fingerprint is None or self._fingerprint[0] is not info:
            facts = json.dumps(asdict(info), sort_keys=True, default=str)
            self._fingerprint = info, "fp_" + hashlib.sha256(facts.encode()).hexdigest()[:12]
        return self._fingerprint[1]

    async def _render(
        self, messages: Sequence[Message], special: bool, add_generation_prompt: bool = True
    ) -> tuple[str, list[int]]:
        prompt = self._tokenizer.render([message.plain() for message in messages], add_generation_prompt)
        return prompt, await self._encode(prompt, special)  # templates write the special tokens themselves

    async def _single_prompt(self, given: str | TokenIds | list[str] | list[TokenIds]) -> tuple[str, list[int]]:
        prompt: str | list[int]
        if isinstance(given, list) and given and not isinstance(given[0], int):
            if len(given) > 1:
                raise bad_request("`prompt` holds several prompts; send one in each request.", "prompt")
            prompt = given[0]
        else:
            prompt = cast("str | list[int]", given)
        if isinstance(prompt, str):
            return prompt, await self._encode(prompt, special=True)
        return self.text(prompt), prompt

    async def _encode(self, text: str, special: bool) -> list[int]:
        if len(text) < LONG_TEXT:
            return self._tokenizer.encode(text, special)
        return await asyncio.to_thread(self._tokenizer.encode, text, special)

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
        self,
        body: Sampling,
        prompt: str,
        ids: list[int],
        max_tokens: int,
        logprobs: int | None,
        info: EngineInfo,
    ) -> GenerateRequest:
        temperature = 1.0 if body.temperature is None else body.temperature
        stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
        if "" in stop:
            raise bad_request("A stop string needs at least one character.", "stop")
        min_tokens = body.min_tokens or 0
        if min_tokens > max_tokens:
            raise bad_request(
                f"`min_tokens` is {min_tokens}, more than the limit of {max_tokens} tokens.", "min_tokens"
            )
        asked: dict[Feature, object] = {
            "seed": body.seed is not None and temperature > 0,  # greedy decoding uses no random numbers
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
            temperature=temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            seed=body.seed,
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
    if not body.stream:
        raise bad_request("`stream_options` needs `stream` to be true.", "stream_options")
    return {
        "include_usage": bool(options.include_usage),
        "continuous_usage": bool(options.continuous_usage_stats),
    }


def _refuse_unless_harmless(name: str, value: object) -> None:
    if value is None or name in IRRELEVANT:
        return
    if name not in UNUSED:
        raise bad_request(f"There is no field `{name}`.", name)
    if not any(type(value) is type(unused) or _numbers(value, unused) for unused in UNUSED[name] if value == unused):
        raise bad_request(f"`{name}` is not supported here with this value; leave it out.", name)


def _numbers(*values: object) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
