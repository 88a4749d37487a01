"""A conversation, each turn of which sends the whole history, including the real answers, and new text."""

from __future__ import annotations

from enginebench.records.request import RequestRecord
from loadtests.harness.client.dialects.dialect import Message

MARGIN = 64  # tokens that a chat template may add around two messages


class Conversation:
    """Call `ask`, then `answered`, for each turn."""

    def __init__(self, name: str, turns: int) -> None:
        self.name = name
        self.turn = -1  # the last one that was asked
        self.messages: tuple[Message, ...] = ()
        self._turns = turns
        self._tokens = 0  # tokens of the last prompt and its answer, by the server's count

    def ask(self, text: str) -> None:
        self.turn += 1
        self.messages += (Message("user", text),)

    @property
    def is_waiting(self) -> bool:
        """Return whether the last turn has no answer."""
        return bool(self.messages) and self.messages[-1].role == "user"

    def answered(self, ended: RequestRecord, text: str) -> bool:
        """Take an answer, and return whether another turn follows."""
        self.messages += (Message("assistant", text),)
        self._tokens = (ended.prompt_tokens or 0) + (ended.output_tokens or 0)
        return ended.outcome == "ok" and bool(text) and self.turn + 1 < self._turns

    def has_room_for(self, tokens: int, context: int | None) -> bool:
        return context is None or self._tokens + tokens + MARGIN <= context
