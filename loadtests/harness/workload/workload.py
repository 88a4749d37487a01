"""What users ask: prompts of a wanted length, no two alike, and the request bodies around them.

A server with a prefix cache need not compute a prompt that it has seen, so every prompt starts with words of its own,
and another run asks other words; `--shared-prefix-tokens` and `--same-prompts` ask for the opposite. Each user draws
from a stream of its own, so the same seed asks the same whether one process makes the load or eight.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any

import msgspec

from loadtests.harness.client.client import Call
from loadtests.harness.workload.lengths import Lengths, parse_lengths
from loadtests.harness.workload.words import INSTRUCTION, WORDS, WordTokens

PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
ID_BYTES = 8


def prompt_id(prompt: str) -> str:
    """Equal for equal prompts."""
    return blake2b(prompt.encode(), digest_size=ID_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to be sent, and what its record says of it beforehand."""

    call: Call
    planned_prompt_tokens: int | None = None
    planned_output_tokens: int | None = None
    prompt_id: str | None = None
    session: str | None = None
    turn: int | None = None
    request_class: str | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Everything that decides what is asked. `ignore_eos` makes answers run to their full length.

    Lengths come from `seed`; the words of the prompts from `seed` and `prompt_set` together.
    """

    model: str
    endpoint: str
    streamed: bool
    prompt_tokens: Lengths
    shared_prefix_tokens: int
    output_tokens: Lengths
    temperature: float
    ignore_eos: bool
    seed: int
    prompt_set: str
    word_tokens: WordTokens

    def asks_of(self, user: int) -> UserAsks:
        """The requests of one user; `user` is its number in the whole run, over all workers."""
        return UserAsks(self, user)

    def call(self, prompt: str, max_tokens: int, sampling_seed: int) -> Call:
        body: dict[str, Any] = {"model": self.model, "max_tokens": max_tokens, "temperature": self.temperature}
        if self.endpoint == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        if self.streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.temperature > 0:
            body["seed"] = sampling_seed
        if self.ignore_eos:
            body["ignore_eos"] = True
        return Call(PATHS[self.endpoint], msgspec.json.encode(body), self.streamed)

    def shared_prefix(self) -> str:
        if not self.shared_prefix_tokens:
            return ""
        words = max(1, round(self.shared_prefix_tokens / self.word_tokens.per_word))
        return " ".join(Random(f"prefix {self.seed}/{self.prompt_set}").choices(WORDS, k=words)) + " "


class UserAsks:
    """An endless supply of one user's requests."""

    def __init__(self, workload: Workload, user: int) -> None:
        self._workload = workload
        self._prefix = workload.shared_prefix()
        self._lengths = Random(f"lengths {workload.seed}/{user}")
        self._words = Random(f"words {workload.seed}/{workload.prompt_set}/{user}")

    def next(self, asks: Mapping[str, str]) -> Ask:
        """`asks` are the settings that the stage has of its own, as in `StagePlan.asks`."""
        workload = self._workload
        prompt_tokens = self._length(asks.get("prompt_tokens"), workload.prompt_tokens)
        output_tokens = self._length(asks.get("output_tokens"), workload.output_tokens)
        words, with_instruction = workload.word_tokens.words_for(prompt_tokens - workload.shared_prefix_tokens)
        prompt = self._prefix + " ".join(self._words.choices(WORDS, k=words)) + INSTRUCTION * with_instruction
        return Ask(
            workload.call(prompt, output_tokens, self._words.getrandbits(31)),
            planned_prompt_tokens=prompt_tokens,
            planned_output_tokens=output_tokens,
            prompt_id=prompt_id(prompt),
        )

    def _length(self, here: str | None, otherwise: Lengths) -> int:
        return (otherwise if here is None else parse_lengths(here)).draw(self._lengths)
