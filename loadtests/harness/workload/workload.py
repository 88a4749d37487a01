"""What users ask: prompts of a wanted length, no two alike, and the request bodies around them.

A server with a prefix cache need not compute a prompt that it has seen, so every prompt starts with words of its own;
`--shared-prefix-tokens` asks for the opposite. Each user draws from a stream of its own, seeded by the run's seed and
the user's number, so the same seed asks the same whether one process makes the load or eight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from loadtests.harness.client.client import Call
from loadtests.harness.run.options import Endpoint
from loadtests.harness.workload.lengths import Lengths

PATHS: dict[Endpoint, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}

# Short, common English words: one token each, leading space included, in the vocabularies of today's models.
VOCABULARY = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one you
were all her she there would their we him been has when who will no more if out so up said what its about than into
them can only other time new some could these two may first then do any like my now over such our man me even most
made after also did many off before must well back through years much where your way down should because long each
just state those people too how little good world make very year still see own work men day get here old life both
between being under three never know same last another while us might great go come since against right came take used
few house use place during high without again home around small however found part school thought went say general
once upon course war until always away something fact water less public put thing almost hand enough far took head yet
government system better set told nothing night end why called eyes find going look asked later point next city
business case group face money form kind service best among power important different interest
"""
WORDS = tuple(VOCABULARY.split())
INSTRUCTION = "\n\nWrite a long story that uses these words."
MIN_WORDS = 4  # however short the prompt shall be: fewer would repeat themselves among many users


@dataclass(frozen=True, slots=True)
class WordTokens:
    """How many tokens a prompt of `n` of our words becomes: `overhead + per_word * n`, chat template included."""

    overhead: float
    per_word: float
    measured: bool  # by the server's tokenizer; otherwise assumed

    def words_for(self, tokens: int) -> int:
        return max(MIN_WORDS, round((tokens - self.overhead) / self.per_word))


ASSUMED = {
    "chat": WordTokens(overhead=20.0, per_word=1.0, measured=False),
    "completions": WordTokens(overhead=10.0, per_word=1.0, measured=False),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """Everything that decides what is asked. `ignore_eos` makes answers run to their full length."""

    model: str
    endpoint: Endpoint
    streamed: bool
    prompt_tokens: Lengths
    shared_prefix_tokens: int
    output_tokens: Lengths
    temperature: float
    ignore_eos: bool
    seed: int
    word_tokens: WordTokens

    def calls(self, user: int) -> Iterator[Call]:
        """The requests of one user, without end. `user` is the user's number in the whole run, over all workers."""
        rng = Random(f"user {self.seed}/{user}")
        prefix = self._shared_prefix()
        while True:
            words = self.word_tokens.words_for(self.prompt_tokens.draw(rng) - self.shared_prefix_tokens)
            prompt = prefix + " ".join(rng.choices(WORDS, k=words)) + INSTRUCTION
            yield self.call(prompt, self.output_tokens.draw(rng), rng)

    def call(self, prompt: str, max_tokens: int, rng: Random) -> Call:
        body: dict[str, Any] = {"model": self.model, "max_tokens": max_tokens, "temperature": self.temperature}
        if self.endpoint == "chat":
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        if self.streamed:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self.temperature > 0:
            body["seed"] = rng.getrandbits(31)
        if self.ignore_eos:
            body["ignore_eos"] = True
        return Call(PATHS[self.endpoint], msgspec.json.encode(body), self.streamed)

    def facts(self) -> dict[str, Any]:
        """For `meta.json`: what two runs must have in common to be comparable."""
        return {
            "endpoint": self.endpoint,
            "streamed": self.streamed,
            "prompt_tokens": str(self.prompt_tokens),
            "shared_prefix_tokens": self.shared_prefix_tokens,
            "output_tokens": str(self.output_tokens),
            "temperature": self.temperature,
            "ignore_eos": self.ignore_eos,
            "seed": self.seed,
            "prompt_length_measured": self.word_tokens.measured,
        }

    def _shared_prefix(self) -> str:
        if not self.shared_prefix_tokens:
            return ""
        words = max(1, round(self.shared_prefix_tokens / self.word_tokens.per_word))
        return " ".join(Random(f"prefix {self.seed}").choices(WORDS, k=words)) + " "
