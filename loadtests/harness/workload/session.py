"""A conversation: each turn sends the whole history, including the real answers, and new text."""

from __future__ import annotations

from enginebench.records.request import RequestRecord
from loadtests.harness.client.dialects.dialect import Message

MARGIN = 64  # tokens that a chat template may add around two messages


class Session:
    """`ask`, then `answered`, turn by turn."""

    def __init__(self, name: str, turns: int) -> None:
        self.name = name
        self.turn = -1  # that was asked last
        self.messages: tuple[Message, ...] = ()
        self._turns = turns
        self._tokens = 0  # of the last prompt and its answer, as the server counted them

    def ask(self, text: str) -> None:
        self.turn += 1
        self.messages += (Message("user", text),)

    @property
    def is_waiting(self) -> bool:
        """Whether a turn was asked that has no answer."""
        return bool(self.messages) and self.messages[-1].role == "user"

    def answered(self, ended: RequestRecord, text: str) -> bool:
        """Whether there is another turn."""
        self.messages += (Message("assistant", text),)
        self._tokens = (ended.prompt_tokens or 0) + (ended.output_tokens or 0)
        return ended.outcome == "ok" and bool(text) and self.turn + 1 < self._turns

    def has_room_for(self, tokens: int, context: int | None) -> bool:
        return context is None or self._tokens + tokens + MARGIN <= context
