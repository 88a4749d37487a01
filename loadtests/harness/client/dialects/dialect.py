"""The interface of a dialect, which writes requests for an API and reads its answers.

To add a dialect, write a class with these members and its own `Answer`, and add a row in `endpoints.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec

from enginebench.settings.schema import UserMistake
from loadtests.harness.client.model_answer import Answer
from loadtests.harness.client.sampling import Sampling

Role = Literal["system", "user", "assistant"]
Signer = Callable[[str, str, bytes], Mapping[str, str]]
"""Makes the headers that depend on the request, from the `Host` header, the path and the body.

Raises `OSError` with a sentence if that is no longer possible."""


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    text: str


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request in a form that is common to all APIs. `prompt` is a conversation, or token ids if the API accepts them;
    `fields` of the API's body replace those of the dialect.

    `seed` is the request's own; it is sent only if the sampling is random.
    """

    model: str
    prompt: tuple[Message, ...] | tuple[int, ...]
    max_tokens: int
    streamed: bool = True
    sampling: Sampling = GREEDY
    seed: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    max_tokens_field: str = "max_tokens"  # the name of the limit in OpenAI's chat API
    stream_usage: bool = True  # `stream_options` of OpenAI's APIs requests the usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """Raise `UserMistake` for token ids."""
        messages = tuple(part for part in self.prompt if isinstance(part, Message))
        if len(messages) < len(self.prompt):
            raise UserMistake("only --endpoint completions accepts token ids as a prompt.")
        return messages

    def split_system(self) -> tuple[str, list[Message]]:
        """Return the system's text and the other messages, for APIs that send them in different fields."""
        system = "\n\n".join(message.text for message in self.messages if message.role == "system")
        return system, [message for message in self.messages if message.role != "system"]


class Dialect(ABC):
    """`key_variable` is the environment variable from which clients of this API read their key. `fields` maps our names
    of sampling options to the API's; an option that is missing there is not sent."""

    key_variable: ClassVar[str]
    answer: ClassVar[type[Answer]]
    fields: ClassVar[Mapping[str, str]]

    def takes(self, option: str) -> bool:
        return option in self.fields

    @abstractmethod
    def path(self, request: ModelRequest) -> str: ...

    @abstractmethod
    def body(self, request: ModelRequest) -> dict[str, Any]: ...

    def options(self, request: ModelRequest) -> dict[str, Any]:
        """Return the sampling options that the API has, under its names, and the seed if the sampling is not greedy."""
        sampling = request.sampling
        asked = sampling.options | without_none(seed=request.seed if sampling.temperature else None)
        return {self.fields[name]: value for name, value in asked.items() if name in self.fields}

    def written(self, request: ModelRequest) -> bytes:
        """Return the encoded body, with the request's own fields and `--extra-body`."""
        body, extra = {**self.body(request), **request.fields}, request.sampling.extra_body
        return msgspec.json.encode(merged(body, msgspec.json.decode(extra)) if extra else body)

    def headers(self, key: str | None) -> dict[str, str]:
        """Return the headers of every request. `key` is the server's key, if any."""
        return {"Authorization": f"Bearer {key}"} if key else {}

    def signer(self, key: str | None, host: str) -> Signer | None:
        """Return the signer, if the API's requests are signed. Raises `UserMistake` if credentials are missing."""
        return None


def without_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def merged(body: Any, patch: Mapping[str, Any]) -> Any:
    """Merge `patch` into `body`: objects are merged, `null` removes a field (RFC 7396, JSON Merge Patch)."""
    into = dict(body) if isinstance(body, dict) else {}
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict):
            into[name] = merged(into.get(name), value)
        else:
            into[name] = value
    return into
