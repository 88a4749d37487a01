"""A request as it is sent."""

from __future__ import annotations

from dataclasses import dataclass

from loadtests.harness.client.dialects.dialect import Dialect
from loadtests.harness.client.dialects.openai import ChatCompletions

CHAT: Dialect = ChatCompletions()


@dataclass(frozen=True, slots=True)
class Call:
    """`body` is the JSON document, `streamed` whether the answer is asked for as a stream, `kept` whether its text is
    recorded."""

    path: str  # "/v1/chat/completions"
    body: bytes
    streamed: bool
    dialect: Dialect = CHAT  # how the answer is to be read
    kept: bool = False
