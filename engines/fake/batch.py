"""The fake engine's common batch: every running request receives a token at the end of each step.

enginebench serve fake -o step=0.02 -o step_per_running=0.002 -o step_per_prompt_token=0.0005
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

Seconds = float
StepSeconds = Callable[[int, int], Seconds]  # (requests that receive a token, prefilled prompt tokens)
Wait = Callable[[Seconds], "asyncio.Future[None] | None"]


class Member:
    """A request in the batch and the steps that it has left."""

    def __init__(self, prompt_tokens: int, steps: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.left = steps
        self._received = 0
        self._ring: asyncio.Future[None] | None = None

    def receive(self) -> None:
        self.left -= 1
        self._received += 1
        if self._ring is not None and not self._ring.done():
            self._ring.set_result(None)

    async def token(self) -> None:
        """Return at the end of the step that brings the next token."""
        while not self._received:
            self._ring = asyncio.get_running_loop().create_future()
            await self._ring
        self._received -= 1


class Batch:
    """Steps follow each other without a pause while there are requests; new requests join the next step."""

    def __init__(self, step_seconds: StepSeconds, slots: int, now: Callable[[], Seconds], at: Wait) -> None:
        self._step_seconds, self._slots, self._now, self._at = step_seconds, slots, now, at
        self._waiting: deque[Member] = deque()
        self._running: set[Member] = set()
        self._loop: asyncio.Task[None] | None = None

    def join(self, prompt_tokens: int, steps: int) -> Member:
        member = Member(prompt_tokens, steps)
        self._waiting.append(member)
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._run())
        return member

    def leave(self, member: Member) -> None:
        """Remove a request that is stopped or cancelled before its last step."""
        self._running.discard(member)
        if member in self._waiting:
            self._waiting.remove(member)

    async def _run(self) -> None:
        due = self._now()  # steps aim at instants, so that lateness does not accumulate
        while self._waiting or self._running:
            admitted = [
                self._waiting.popleft() for _ in range(min(len(self._waiting), self._slots - len(self._running)))
            ]
            self._running.update(admitted)
            due += self._step_seconds(len(self._running), sum(member.prompt_tokens for member in admitted))
            if (ring := self._at(due)) is not None:
                await ring
            else:
                await asyncio.sleep(0)
            for member in self._running:
                member.receive()
            self._running = {member for member in self._running if member.left > 0}
