"""Large bodies are read beside the event loop, and neither block it nor another request."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from engines.contract.base import EngineInfo
from servers.openai.intake import LARGE, Intake
from servers.openai.prompts import ByteTokenizer, Messages
from servers.openai.wire import TextWire
from servers.settings import ServerSettings

INFO = EngineInfo("x", "1", "python", "a-model", "none", "cpu", "none", 1, 131_072)


class StuckTokenizer(ByteTokenizer):
    """Renders a large chat only once it is released."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()

    def render(self, messages: Messages, add_generation_prompt: bool = True) -> str:
        prompt = super().render(messages, add_generation_prompt)
        if len(prompt) > LARGE:
            self.begun.set()
            assert self.released.wait(10), "nothing else can run"
        return prompt


def chat(text: str) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": 1}).encode()


async def test_the_fingerprint_changes_with_options_and_not_with_the_duration_of_the_start() -> None:
    async def fingerprint(**changes: Any) -> str:
        intake = Intake(ByteTokenizer(), ServerSettings())
        accepted = await intake.accept(chat("hi"), "chat", replace(INFO, **changes))
        return str(accepted.wire._common["system_fingerprint"])

    assert await fingerprint() == await fingerprint(startup={"load": 1.5})
    assert await fingerprint() != await fingerprint(options={"threads": 4})


class TokenizerWithStart(ByteTokenizer):
    """Begins every text with a special token."""

    def encode(self, text: str, special: bool, limit: int) -> list[int]:
        return [0, *super().encode(text, special, limit)]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join("<s>" if token == 0 else super(TokenizerWithStart, self).decode([token]) for token in ids)


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), TokenizerWithStart()])
async def test_an_echo_is_the_prompt_with_and_without_log_probabilities(tokenizer: ByteTokenizer) -> None:
    """The engine repeats all tokens but the first."""

    async def begins(**fields: object) -> tuple[str, list[str]]:
        content = json.dumps({"prompt": "Hi", "echo": True, "max_tokens": 1, **fields}).encode()
        info = replace(INFO, features=("logprobs", "forced"))
        accepted = await Intake(tokenizer, ServerSettings()).accept(content, "completions", info)
        assert isinstance(accepted.wire, TextWire)
        return accepted.wire._echo, accepted.wire._first

    assert await begins() == ("Hi", [])
    with_start = isinstance(tokenizer, TokenizerWithStart)
    assert await begins(logprobs=1) == (("", ["<s>"]) if with_start else ("H", ["H"]))


async def test_a_small_body_is_accepted_while_a_large_one_is_being_read() -> None:
    tokenizer = StuckTokenizer()
    intake = Intake(tokenizer, ServerSettings())
    large = asyncio.create_task(intake.accept(chat("x" * (2 * LARGE)), "chat", INFO))
    assert await asyncio.to_thread(tokenizer.begun.wait, 10)
    small = await intake.accept(chat("hi"), "chat", INFO)
    assert small.request.prompt == "user: hi\nassistant:"
    assert not large.done()
    tokenizer.released.set()
    assert len((await large).request.prompt_token_ids) > LARGE
