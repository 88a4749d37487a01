"""What a dialect is: how one request is written for an API, and how its answer is read.

A dialect is added by a class with these members, an `Answer` of its own, and a row in `endpoints.py`.
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
"""Makes the headers that depend on the request itself, from the `Host` header, the path and the body.

Raises `OSError` with a sentence where that is no longer possible."""


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    text: str


GREEDY = Sampling()


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What is asked, in no API's words. `prompt` is a conversation, or token ids where the API takes them; `fields` are
    in the words of the API that is asked, and take the place of its own.

    `seed` is the request's own; it is sent only where something is sampled.
    """

    model: str
    prompt: tuple[Message, ...] | tuple[int, ...]
    max_tokens: int
    streamed: bool = True
    sampling: Sampling = GREEDY
    seed: int | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    max_tokens_field: str = "max_tokens"  # the name of the limit in OpenAI's chat API
    stream_usage: bool = True  # OpenAI's APIs are asked for the usage of a stream, in `stream_options`

    @property
    def options(self) -> dict[str, Any]:
        """By our names: what is asked of the sampling, and the seed where it is not greedy."""
        return self.sampling.options | given(seed=self.seed if self.sampling.temperature else None)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Raises `UserMistake` for token ids."""
        messages = tuple(part for part in self.prompt if isinstance(part, Message))
        if len(messages) < len(self.prompt):
            raise UserMistake("only --endpoint completions accepts token ids as a prompt.")
        return messages

    def apart(self) -> tuple[str, list[Message]]:
        """The system's text, and the other messages: for APIs that send them in different places."""
        system = "\n\n".join(message.text for message in self.messages if message.role == "system")
        return system, [message for message in self.messages if message.role != "system"]


class Dialect(ABC):
    """`key_variable` is the environment variable that clients of this API take their key from. `fields` are the API's
    names of the sampling options that it has, by ours: an option that is not named here is not sent."""

    key_variable: ClassVar[str]
    answer: ClassVar[type[Answer]]
    fields: ClassVar[Mapping[str, str]]

    def takes(self, option: str) -> bool:
        """Whether the API has this sampling option."""
        return option in self.fields

    @abstractmethod
    def path(self, request: ModelRequest) -> str: ...

    @abstractmethod
    def body(self, request: ModelRequest) -> dict[str, Any]: ...

    def options(self, request: ModelRequest) -> dict[str, Any]:
        """Return the sampling options that the API has, under its names."""
        return {self.fields[name]: value for name, value in request.options.items() if name in self.fields}

    def written(self, request: ModelRequest) -> bytes:
        """The body as it is sent, with the request's own fields and the extra ones that were given."""
        body, extra = {**self.body(request), **request.fields}, request.sampling.extra_body
        return msgspec.json.encode(merged(body, msgspec.json.decode(extra)) if extra else body)

    def headers(self, key: str | None) -> dict[str, str]:
        """Headers of every request. `key` is the server's key, where one was given."""
        return {"Authorization": f"Bearer {key}"} if key else {}

    def signer(self, key: str | None, host: str) -> Signer | None:
        """For APIs whose requests are signed. Raises `UserMistake` where credentials are missing."""
        return None


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not `None`."""
    return {name: value for name, value in fields.items() if value is not None}


def merged(body: Any, patch: Mapping[str, Any]) -> Any:
    """`patch` merged into `body`: objects are merged, `null` removes a field (RFC 7396, JSON Merge Patch)."""
    into = dict(body) if isinstance(body, dict) else {}
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict):
            into[name] = merged(into.get(name), value)
        else:
            into[name] = value
    return into
