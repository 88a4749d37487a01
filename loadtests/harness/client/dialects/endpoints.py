"""The dialects by the names that `--endpoint` takes."""

from __future__ import annotations

from typing import Literal

from loadtests.harness.client.dialects.bedrock import Converse
from loadtests.harness.client.dialects.dialect import Dialect
from loadtests.harness.client.dialects.messages import Messages
from loadtests.harness.client.dialects.openai import ChatCompletions, TextCompletions
from loadtests.harness.client.dialects.responses import Responses

Endpoint = Literal["chat", "completions", "responses", "messages", "bedrock"]
DIALECTS: dict[Endpoint, Dialect] = {
    "chat": ChatCompletions(),
    "completions": TextCompletions(),
    "responses": Responses(),
    "messages": Messages(),
    "bedrock": Converse(),
}
