"""Large bodies are read beside the event loop, and neither block it nor another request."""

from __future__ import annotations

import asyncio
import json
import threading

from engines.contract.base import EngineInfo
from servers.openai.intake import LARGE, Intake
from servers.openai.prompts import ByteTokenizer, Messages
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


def test_a_small_body_is_accepted_while_a_large_one_is_being_read() -> None:
    async def work() -> None:
        tokenizer = StuckTokenizer()
        intake = Intake(tokenizer, ServerSettings())
        large = asyncio.create_task(intake.accept(chat("x" * (2 * LARGE)), "chat", INFO))
        assert await asyncio.to_thread(tokenizer.begun.wait, 10)
        small = await intake.accept(chat("hi"), "chat", INFO)
        assert small.request.prompt == "user: hi\nassistant:"
        assert not large.done()
        tokenizer.released.set()
        assert len((await large).request.prompt_token_ids) > LARGE

    asyncio.run(asyncio.wait_for(work(), 30))
