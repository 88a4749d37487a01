"""A static decoder on a small model, and the tokens that it generates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engines.contract.base import GenerateRequest, Model
from engines.static.batch import Batch
from engines.static.batch import Sequence as Running
from engines.static.step_shapes import Buckets
from engines.static.weights import DecoderShape, weights_of
from engines.text.detokenize import tokenizer_of
from tests.support.engines.reference import Reference
from tests.support.engines.tiny_models import VOCABULARY, write_tiny
from tests.support.engines.torch_when_used import torch

if TYPE_CHECKING:
    from engines.static.decoder import Decoder
    from engines.static.step import Step

BUCKETS = Buckets((1, 4), (32, 64), 16)
ONE_BUCKET = Buckets((1,), (64,), 1)  # prompts are read by the decode step

WITHIN = 1e-5  # share of the largest logit: 32-bit floats are summed in another order


class Small:
    """A model of a family with random weights, the answers of Transformers with it, and our decoder."""

    def __init__(self, folder: Path, model_type: str = "llama", **differs: Any) -> None:
        self.model: Model
        self.model, self.reference = write_tiny(folder, model_type, **differs)
        self.tokenizer = tokenizer_of(folder)
        self.shape = DecoderShape.from_config(self.reference.model.config, "test")

    def step(self) -> Step:
        from transformers import AutoModelForCausalLM

        from engines.static.step import Step

        net = AutoModelForCausalLM.from_pretrained(self.model.folder, dtype=torch.float32)
        return Step(self.shape, weights_of(net, BUCKETS.lengths[-1]))

    def batch(
        self, prepare: Callable[..., Any] = lambda step, shape, example: step, buckets: Buckets = BUCKETS
    ) -> Batch:
        from engines.static.decoder import Decoder

        return Batch(Decoder(self.step(), buckets, prepare))

    def sequence(self, prompt: Sequence[int], max_tokens: int = 12, **settings: Any) -> Running:
        request = GenerateRequest("", tuple(prompt), max_tokens, **({"ignore_eos": True} | settings))
        return Running(request, self.tokenizer, frozenset([2]), torch.device("cpu"), BUCKETS.lengths[-1])

    def expected(self, prompt: Sequence[int], tokens: int = 12) -> list[int]:
        return self.reference.greedy(prompt, tokens)


def logits_are_those_of_transformers(
    decoder: Decoder, reference: Reference, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]]
) -> None:
    """Check the logits in 32-bit floats, after each prompt and after each of the tokens that follow it."""
    error = largest = 0.0
    for ids, answer in zip(prompts, answers, strict=True):
        expected = reference.logits([*ids, *answer])[len(ids) - 1 :]
        for start in range(0, len(ids), decoder.buckets.chunk):
            found = decoder.read(0, [ids[start : start + decoder.buckets.chunk]], [start])[0]
        for at, token in enumerate(answer):
            error = max(error, float((found - expected[at]).abs().max()))
            largest = max(largest, float(expected[at].abs().max()))
            found = decoder.advance([token], [len(ids) + at])[0]
    print(f"the greatest difference is {error:.1e}, of logits up to {largest:.1f}")
    assert error <= WITHIN * largest


def prompt(seed: int, tokens: int) -> list[int]:
    """Return distinct token ids."""
    import random

    return random.Random(seed).sample(range(3, VOCABULARY), tokens)


def answers(batch: Batch, *sequences: Running) -> list[list[int] | Exception]:
    """Return the token ids of each sequence, or the error that ended it; all run together."""
    found: dict[int, list[int] | Exception] = {id(one): [] for one in sequences}
    for one in sequences:
        batch.add(one)
    while batch.sequences:
        for part in batch.step():
            for one, item in part:
                if isinstance(item, Exception):
                    found[id(one)] = item
                elif item is not None:
                    tokens = found[id(one)]
                    assert isinstance(tokens, list), "an answer that failed goes on"
                    assert one.next_token is not None
                    tokens.append(one.next_token)
    return [found[id(one)] for one in sequences]


def generated(batch: Batch, *sequences: Running) -> list[list[int]]:
    """Return the token ids of each sequence; all run together."""
    return [tokens for tokens in answers(batch, *sequences) if isinstance(tokens, list)]
