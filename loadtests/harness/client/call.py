"""A request before it is sent, and its record."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from enginebench.records.request import RequestRecord
from loadtests.harness.client.dialects.dialect import Dialect
from loadtests.harness.client.dialects.openai import ChatCompletions

CHAT: Dialect = ChatCompletions()


@dataclass(frozen=True, slots=True)
class Call:
    """`body` is the JSON document. The client completes `record`."""

    path: str  # "/v1/chat/completions"
    body: bytes
    streamed: bool
    dialect: Dialect = CHAT  # how the answer is to be read
    kept: bool = False  # the text of the answer is recorded
    expected: str | None = None  # the exact answer, against which the server's is graded
    record: RequestRecord = field(default_factory=RequestRecord.planned)

    def again(self) -> Call:
        """Return the next attempt. Call this before this attempt is sent."""
        return replace(self, record=msgspec.structs.replace(self.record, attempt=self.record.attempt + 1))
