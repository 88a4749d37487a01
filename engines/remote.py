"""Any OpenAI-compatible server behind the identical server: TGI, LMDeploy, Triton, `trtllm-serve`, hosted services.

Requests are passed on and answers passed back as they come; nothing is computed here. With `--model`, prompts are
tokenised here and sent as token ids, as every other engine gets them. Without it, they are sent as text, or with
`api=chat` as messages, and the server tokenises them. A key is read from ENGINEBENCH_REMOTE_API_KEY.

    enginebench serve remote -o url=http://127.0.0.1:8001/v1
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from enginebench.settings.schema import setting
from engines.contract.base import (
    Chunk,
    Engine,
    EngineInfo,
    Feature,
    FinishReason,
    GenerateRequest,
    Launch,
    Model,
    Usage,
)
from engines.contract.errors import (
    BadRequest,
    EngineError,
    EngineOverloaded,
    EngineUnavailable,
    RemoteFailed,
    first_line,
)
from engines.models.fetch import context_length
from engines.text.detokenize import tokenizer_of

if TYPE_CHECKING:
    import httpx

KEY = "ENGINEBENCH_REMOTE_API_KEY"
CONTEXT_LENGTH = 131_072  # tokens, if unknown
MAX_TOKENS = 10**9  # limit of one request's answer
CONNECT_TIMEOUT = 10.0  # seconds
IDLE_TIMEOUT = 600.0  # seconds without a byte
MAX_WAIT = 86_400.0  # seconds that a server may ask to wait before the next try
KEPT_OPEN = 4.0  # seconds that an unused connection is kept: servers close theirs after 5
END_OF_BODY = 1.0  # seconds for the end to come after the last event
REASONING = ("reasoning_content", "reasoning")  # names of reasoning in a chat's delta
FINISH: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
    "eos_token": "stop",  # TGI
    "tool_calls": "stop",
    "function_call": "stop",
}
NEW_LIMIT = "max_completion_tokens"  # the only name for OpenAI's newer models
FAILED = {"abort", "error"}  # finish reasons of failed requests, as vLLM and SGLang call them


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    url: str = setting("", "address of the server's API, such as http://127.0.0.1:8001/v1")
    api: Literal["completions", "chat"] = setting("completions", "API path: /completions or /chat/completions")
    name: str | None = setting(None, "name of the model on that server (none: the first that it lists)")
    concurrency: int = setting(256, "requests that run at a time", least=1)
    context: int | None = setting(None, "maximum tokens of prompt plus answer (none: what the server reports)", least=1)


class RemoteEngine(Engine):
    Options = RemoteOptions
    options: RemoteOptions
    name, language = "remote", "any"
    features: tuple[Feature, ...] = ("seed", "stop", "ignore_eos", "min_tokens")
    loads_on = "main"
    _limit = "max_tokens"  # name of the field, until the server asks for the new one

    @classmethod
    def version_here(cls) -> str | None:
        return version("httpx")

    @classmethod
    def gpus_of(cls, options: RemoteOptions) -> int:
        """Return 0: this machine's GPUs are not known to be the other server's, whatever it reports."""
        return 0

    @classmethod
    def launch(cls, options: RemoteOptions, model: Model | None) -> Launch:
        """Raises `EngineUnavailable`."""
        if not options.url.startswith(("http://", "https://")):
            raise EngineUnavailable("remote needs the address of a server: -o url=http://127.0.0.1:8001/v1")
        return Launch()

    async def load(self) -> EngineInfo:  # type: ignore[override]  # on the main thread it may be asynchronous
        import httpx

        self._tokenizer = None if self.model is None else tokenizer_of(self.model.folder)
        key = os.environ.get(KEY, "").strip()
        self._client = httpx.AsyncClient(
            base_url=self.options.url.rstrip("/") + "/",
            headers={"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {key}"} if key else {}),
            timeout=httpx.Timeout(IDLE_TIMEOUT, connect=CONNECT_TIMEOUT),
            limits=connections(self.options.concurrency),
            verify=ssl.create_default_context(),  # the system's trust store, or that of SSL_CERT_FILE
            trust_env=False,
        )
        card = await self._card()
        engine = await self._engine_behind()
        self._name = self.options.name or str(card["id"])
        limit = self.options.context or int(card.get("max_model_len") or 0)
        guess = CONTEXT_LENGTH if self.model is None else context_length(self.model.folder)
        self._context_length, self._is_guessed = limit or guess, not limit and self.model is None
        if self.options.api == "chat":
            self.features = (*self.features, "messages")
        version, dtype, device = (str(engine.get(name, "unknown")) for name in ("version", "dtype", "device"))
        concurrency = self.options.concurrency
        info = self.describe(
            version, dtype, device, self._context_length, concurrency, ["httpx"], server=engine.get("name")
        )
        return replace(info, model=self._name)

    async def _card(self) -> Mapping[str, Any]:
        """Return the entry of the model among those that the server lists. Raises `EngineUnavailable`."""
        name = self.options.name
        try:
            answer = await self._client.get("models")
            models = answer.raise_for_status().json()["data"]
        except Exception as error:  # no server, no such path, no JSON
            if name is not None:
                return {"id": name}  # some servers list nothing
            raise EngineUnavailable(
                f"{self.options.url} does not list its models ({first_line(error)}); is it an OpenAI-compatible API? "
                f"Where it lists none, name one with -o name=…; a key is read from {KEY}."
            ) from error
        for card in models:
            if name is None or card.get("id") == name:
                return dict(card)
        listed = ", ".join(str(card.get("id")) for card in models) or "none"
        raise EngineUnavailable(f"{self.options.url} has no model `{name}`; it lists {listed}.")

    async def _engine_behind(self) -> Mapping[str, Any]:
        """Return the facts of the engine if the server is this project's; empty for other servers."""
        try:
            return dict((await self._client.get("engine")).raise_for_status().json())
        except Exception:  # another server answers 404, or anything
            return {}

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Chunk]:
        import httpx

        sent, first = time.monotonic(), None
        counted, usage, finish = 0, None, None
        try:
            async with contextlib.aclosing(self._posted(request)) as answer:
                async for event in answer:
                    text, reason = _content(event)
                    if isinstance(event.get("usage"), dict):
                        usage = event["usage"]
                    finish = reason or finish
                    if text:
                        first = first or time.monotonic()
                        tokens = self._tokens_in(text, event.get("usage"), counted)
                        counted += tokens
                        yield Chunk(text, tokens)
        except httpx.HTTPError as error:
            raise RemoteFailed(f"the connection to {self.options.url} failed ({first_line(error)}).") from error
        if finish is None:
            raise RemoteFailed(f"{self.options.url} ended the answer without a finish reason.")
        yield self._last(finish, usage, counted, None if first is None else first - sent)

    async def _posted(self, request: GenerateRequest) -> AsyncGenerator[dict[str, Any]]:
        path = "completions" if self.options.api == "completions" else "chat/completions"
        body = self.body(request)
        try:
            async for event in posted(self._client, path, body):
                yield event
        except BadRequest as refusal:
            if NEW_LIMIT in body or NEW_LIMIT not in str(refusal):
                raise
            self._limit = NEW_LIMIT
            async for event in posted(self._client, path, self.body(request)):
                yield event

    def _last(self, finish: FinishReason, usage: Mapping[str, Any] | None, counted: int, first: float | None) -> Chunk:
        """Return the last chunk, with the tokens that have no text, such as the end of text."""
        produced = _count(usage, "completion_tokens")
        cached = _count((usage or {}).get("prompt_tokens_details"), "cached_tokens")
        figures = Usage(None, first, cached, _count(usage, "prompt_tokens"), produced)
        return Chunk("", 0 if produced is None else max(0, produced - counted), finish, (), figures)

    def body(self, request: GenerateRequest) -> dict[str, Any]:
        """Return the body to send. Fields that OpenAI does not have are sent only if requested."""
        # An answer that fills a context of unknown length has no limit: the rest of a guess may exceed what the server
        # allows, and in a chat without a limit the server uses all that it has.
        fills = len(request.prompt_token_ids) + request.max_tokens >= self._context_length
        unlimited = self._is_guessed and fills and self.options.api == "chat"
        optional = {
            "seed": request.seed,
            "stop": list(request.stop) or None,
            "ignore_eos": request.ignore_eos or None,
            "min_tokens": request.min_tokens or None,
            self._limit: None if unlimited else request.max_tokens,
        }
        return {
            **self._prompt(request),
            "model": self._name,
            "temperature": 0 if request.greedy else request.temperature,
            "top_p": request.top_p,
            "stream": True,
            "stream_options": {"include_usage": True},
            **{name: value for name, value in optional.items() if value is not None},
        }

    def _prompt(self, request: GenerateRequest) -> dict[str, Any]:
        if self.options.api == "completions":
            return {"prompt": request.prompt if self.model is None else list(request.prompt_token_ids)}
        return {"messages": list(request.messages or [{"role": "user", "content": request.prompt}])}

    def _tokens_in(self, text: str, usage: Mapping[str, Any] | None, counted: int) -> int:
        """Count tokens by the server's count, else by the model's tokenizer, else as one."""
        if (produced := _count(usage, "completion_tokens")) is not None:
            return max(0, produced - counted)
        if self._tokenizer is None or (text.isascii() and " " not in text[1:]):
            return 1
        return max(1, len(self._tokenizer.encode(text, add_special_tokens=False).ids))


def connections(concurrency: int) -> httpx.Limits:
    """Return limits under which a client reuses its connections."""
    import httpx

    return httpx.Limits(max_connections=None, max_keepalive_connections=concurrency, keepalive_expiry=KEPT_OPEN)


async def posted(client: httpx.AsyncClient, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    """Yield the events of a streamed answer. Closing the generator early closes the connection, which ends the request
    at the server.

    Raises the server's refusal as an `EngineError`.
    """
    import httpx

    async with contextlib.AsyncExitStack() as opened:
        try:
            answer = await opened.enter_async_context(client.stream("POST", path, json=body))
        except httpx.RemoteProtocolError:  # the server had closed a kept connection, and answered nothing
            answer = await opened.enter_async_context(client.stream("POST", path, json=body))
        if answer.status_code != 200:
            raise _refusal(answer, await answer.aread())
        async for event in _events(answer):
            yield event


async def _events(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    """Yield events up to `[DONE]` or the end. Raises `RemoteFailed` for an error event."""
    rest, body = b"", answer.aiter_bytes()
    async for data in body:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            content = line.strip().removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if content == b"[DONE]":
                await _ended(body)
                return
            if content:
                try:
                    event = json.loads(content)
                except ValueError as error:
                    raise RemoteFailed(f"the server sent an event that is no JSON: {content[:100]!r}.") from error
                if not isinstance(event, dict):
                    raise RemoteFailed(f"the server sent an event that is no object: {content[:100]!r}.")
                if event.get("error"):
                    raise RemoteFailed(f"the server failed: {_message_of(event)}")
                yield event


async def _ended(body: AsyncIterator[bytes]) -> None:
    """Read a body to its end, after which its connection is used again. A body that does not end is closed."""
    import httpx

    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(END_OF_BODY):
            async for _ in body:
                pass


def _message_of(document: Any) -> str:
    """Return the message of an error: OpenAI's form is {"error": {"message": …}}; others write only the text."""
    error = document.get("error", document) if isinstance(document, dict) else document
    return str(error.get("message", error) if isinstance(error, dict) else error)


def _content(event: Mapping[str, Any]) -> tuple[str, FinishReason | None]:
    """Return text and finish reason of an event; a chunk with nothing but usage has neither. Raises `RemoteFailed` if
    the server aborted the answer."""
    for choice in event.get("choices") or ():
        if not isinstance(choice, dict):
            continue
        delta = choice.get("delta") or {}
        parts = [choice.get("text"), *(delta.get(name) for name in REASONING), delta.get("content")]
        reason = choice.get("finish_reason")
        if reason in FAILED:
            raise RemoteFailed(f"the server ended this answer with `{reason}`.")
        text = "".join(part for part in parts if isinstance(part, str))
        return text, FINISH.get(reason, "stop") if reason else None
    return "", None


def _count(usage: Any, name: str) -> int | None:
    """Return a number of tokens; `None` if the server gave none, or an invalid one."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _seconds(retry_after: str) -> float | None:
    """Parse seconds; `None` for a date and for anything else."""
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(retry_after)) <= MAX_WAIT:
            return seconds
    return None


def _refusal(answer: httpx.Response, content: bytes) -> EngineError:
    """Return the server's refusal as our error, in its own words."""
    words = f"the server answered {answer.status_code}"
    with contextlib.suppress(ValueError):
        words = f"{words}: {_message_of(json.loads(content))}"
    if answer.status_code == 429:
        return EngineOverloaded(words, _seconds(answer.headers.get("retry-after", "")))
    if answer.status_code in {401, 403}:
        return RemoteFailed(f"{words} (a key is read from {KEY})")  # not unavailable: clients would try again
    if answer.status_code == 503:
        return EngineUnavailable(words)
    return BadRequest(words) if 400 <= answer.status_code < 500 else RemoteFailed(words)
