"""Request bodies: OpenAI's, as far as they apply to a text model, read with msgspec.

Types are strict: `"5"` is not a number. A field that would change the answer in an unsupported way is refused, never
ignored, because a benchmark that silently drops a setting would report a false result.

Prompts, messages and other parts that may be large are kept as raw JSON at first; `servers.openai.decoding` says why.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from servers.http.api_errors import bad_request
from servers.openai.decoding import decoded, decoded_array, refuse_too_many_values, too_long

# Fields that are accepted at a value that means "not used", or null, and refused at any other.
UNUSED: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "top_k": (-1, 0),
    "use_beam_search": (False,),
    "suffix": ("",),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "moderation": (),
    "prediction": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
}
# Fields that change nothing in an answer.
IRRELEVANT = (
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "parallel_tool_calls",
)
# Fields of a response's message, which clients send back as part of the conversation, and of a tool's result.
UNUSED_IN_MESSAGES: dict[str, tuple[Any, ...]] = {
    "refusal": (),
    "annotations": ([],),
    "audio": (),
    "function_call": (),
    "tool_calls": ([],),
    "tool_call_id": (),
    "parsed": (),
    "reasoning": (),
    "reasoning_content": (),
}
MAX_STOP_STRINGS, MAX_STOP_CHARACTERS = 4, 256
MAX_UNUSED_BYTES = 64  # bytes of JSON; longer values are not among those above

B = TypeVar("B", bound="Body")
TokenId = Annotated[int, Meta(ge=0)]


if TYPE_CHECKING:
    from msgspec import Struct as UnusedFields
    from msgspec import Struct as UnusedInMessages
else:

    def _raw_fields(*names: str) -> type[Struct]:
        fields = [(name, Raw | UnsetType, UNSET) for name in names]
        return msgspec.defstruct("RawFields", fields, kw_only=True, forbid_unknown_fields=True, gc=False)

    UnusedFields, UnusedInMessages = _raw_fields(*UNUSED, *IRRELEVANT), _raw_fields(*UNUSED_IN_MESSAGES)


class Body(UnusedFields, kw_only=True):
    model: str | None = None


class TextPart(Struct, forbid_unknown_fields=True, gc=False):
    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: Raw | UnsetType = UNSET  # without effect


class Message(UnusedInMessages, kw_only=True):
    role: Literal["system", "developer", "user", "assistant"]
    content: Raw | UnsetType = UNSET  # text, an array of text parts, or null
    name: str | None = None  # accepted, but the model does not see it


class StreamOptions(Struct, forbid_unknown_fields=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None  # refused if true


class GenerationBody(Body, kw_only=True):
    """The fields that both endpoints share; docs/server.md explains them."""

    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    stop: Raw | UnsetType = UNSET
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool | None = None
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None  # seconds for the whole answer

    def token_limit(self) -> int | None:
        """Return the answer's limit of tokens. Raises `ApiError`."""
        return self.max_tokens

    def alternatives(self) -> int | None:
        """Return the number of alternatives to each token; `None` without log-probabilities."""
        raise NotImplementedError


class ChatRequest(GenerationBody, kw_only=True):
    messages: Raw
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    def token_limit(self) -> int | None:
        old, new = self.max_tokens, self.max_completion_tokens
        if old is not None and new is not None and old != new:
            raise bad_request(f"`max_tokens` ({old}) and `max_completion_tokens` ({new}) differ.", "max_tokens")
        return old or new

    def alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(GenerationBody, kw_only=True):
    prompt: Raw
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    def alternatives(self) -> int | None:
        return self.logprobs


class TokenizeRequest(Body, kw_only=True):
    """A request to `/tokenize` in vLLM's form: either `prompt` or `messages`."""

    prompt: str | None = None
    messages: Raw | UnsetType = UNSET
    add_special_tokens: bool | None = None  # by default true for a prompt, false for messages
    add_generation_prompt: bool = True


def read(content: bytes, shape: type[B], context_length: int) -> B:
    """Read a body. Raises `ApiError` for malformed JSON, unknown fields, wrong types and unsupported features."""
    refuse_too_many_values(content, context_length)
    body = decoded(content, shape)
    for name, accepted in UNUSED.items():
        _refuse_if_used(getattr(body, name), accepted, name)
    return body


def read_messages(raw: Raw) -> list[dict[str, str]]:
    """Return role and text of each message, as chat templates expect them. Raises `ApiError`."""
    messages = decoded_array(bytes(raw), Message, "messages")
    if not messages:
        raise bad_request("`messages` needs at least 1 message.", "messages")
    return [_plain(message, f"messages.{number}") for number, message in enumerate(messages)]


def _plain(message: Message, where: str) -> dict[str, str]:
    for name, accepted in UNUSED_IN_MESSAGES.items():
        if (value := getattr(message, name)) is not UNSET:
            _refuse_if_used(value, accepted, f"{where}.{name}")
    content = b"null" if message.content is UNSET else bytes(message.content)
    where = f"{where}.content"
    if content.startswith(b'"'):
        text = decoded(content, str, where)
    elif content.startswith(b"["):
        text = "".join(part.text for part in decoded_array(content, TextPart, where))
    elif content != b"null":
        raise bad_request(f"`{where}` is a string or an array of text parts.", where)
    elif message.role == "assistant":
        text = ""
    else:
        raise bad_request(f"`{where}` is required.", where)
    return {"role": "system" if message.role == "developer" else message.role, "content": text}


def read_prompt(raw: Raw, limit: int) -> str | list[int]:
    """Return text or token ids, even if they are the only element of an array. Raises `ApiError`."""
    content = bytes(raw)
    if re.match(rb"\[\s*[\[\"]", content):
        prompts = decoded(content, list[Raw], "prompt")
        if len(prompts) > 1:
            raise bad_request("`prompt` holds several prompts; send one in each request.", "prompt")
        content = bytes(prompts[0])
    if content.startswith(b'"'):
        return decoded(content, str, "prompt")
    if content.startswith(b"["):
        if len(ids := decoded(content, list[TokenId], "prompt")) > limit:
            raise too_long(limit, "prompt")
        return ids
    raise bad_request("`prompt` is a string or an array of token ids.", "prompt")


def read_stop(raw: Raw | UnsetType) -> tuple[str, ...]:
    """Read the stop strings. Raises `ApiError`."""
    content = b"null" if raw is UNSET else bytes(raw)
    if content == b"null":
        return ()
    stop = decoded(content, list[str] if content.startswith(b"[") else str, "stop")
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stop) > MAX_STOP_STRINGS:
        raise bad_request(f"`stop` holds at most {MAX_STOP_STRINGS} strings.", "stop")
    if not all(0 < len(text) <= MAX_STOP_CHARACTERS for text in stop):
        raise bad_request(f"A stop string has 1 to {MAX_STOP_CHARACTERS} characters.", "stop")
    return stop


def _refuse_if_used(raw: Raw | UnsetType, accepted: tuple[Any, ...], where: str) -> None:
    if raw is UNSET:
        return
    text = bytes(raw)
    value = decoded(text, Any, where) if len(text) <= MAX_UNUSED_BYTES else NotImplemented
    if value is None or any(value == choice and _same_type(value, choice) for choice in accepted):
        return
    raise bad_request(f"`{where}` is not supported here with this value; leave it out.", where)


def _same_type(value: object, choice: object) -> bool:
    """Return whether two values have the same JSON type: there is one type of number, and `true` is not a number."""
    numbers = all(isinstance(number, int | float) and not isinstance(number, bool) for number in (value, choice))
    return numbers or type(value) is type(choice)
