"""What a dialect is: how one request is written for an API, and how its answer is read.

A dialect is added by a class with these members, an `Answer` of its own, and a row in `registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from loadtests.harness.client.answer import Answer

Role = Literal["system", "user", "assistant"]
Signer = Callable[[str, str, bytes], Mapping[str, str]]
"""Makes the headers that depend on the request itself, from the `Host` header, the path and the body."""


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What is asked, in no API's words. `prompt` is a conversation, or token ids where the API takes them.

    `temperature` and `sampling_seed` are left out of the body where `None`. `ignore_eos` and `sampling_seed` reach only
    servers whose API has them.
    """

    model: str
    prompt: tuple[Message, ...] | tuple[int, ...]
    max_tokens: int
    streamed: bool = True
    temperature: float | None = 0.0
    sampling_seed: int | None = None
    ignore_eos: bool = False
    max_tokens_field: str = "max_tokens"  # the name of the limit in OpenAI's chat API

    @property
    def messages(self) -> tuple[Message, ...]:
        """Raises `ValueError` with a sentence for token ids."""
        messages = tuple(part for part in self.prompt if isinstance(part, Message))
        if len(messages) < len(self.prompt):
            raise ValueError("only --endpoint completions accepts token ids as a prompt.")
        return messages

    def apart(self) -> tuple[str, list[Message]]:
        """The system's text, and the other messages: for APIs that send them in different places."""
        system = "\n\n".join(message.text for message in self.messages if message.role == "system")
        return system, [message for message in self.messages if message.role != "system"]


class Dialect(Protocol):
    @property
    def key_variable(self) -> str:
        """The environment variable that clients of this API take their key from."""

    @property
    def answer(self) -> type[Answer]: ...

    def path(self, request: ModelRequest) -> str: ...

    def body(self, request: ModelRequest) -> dict[str, Any]: ...

    def headers(self, key: str | None) -> dict[str, str]:
        """Headers of every request. `key` is the server's key, where one was given."""

    def signer(self, key: str | None, environment: Mapping[str, str], host: str) -> Signer | None:
        """For APIs whose requests are signed. Raises `ValueError` with a sentence where credentials are missing."""


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
