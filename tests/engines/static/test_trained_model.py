"""With trained weights: the static decoder's greedy answers are those of Transformers on ten prompts."""

import pytest

from engines.contract.base import GenerateRequest
from engines.models.fetch import fetch_model
from engines.static.batch import Batch, Sequence
from engines.static.step_shapes import Buckets
from engines.static.weights import DecoderShape, weights_of
from tests.support.engines.reference import Reference
from tests.support.engines.static_decoder import generated, logits_are_those_of_transformers

pytestmark = pytest.mark.xdist_group("torch")

BUCKETS = Buckets((1, 10), (64,), 16)
TOKENS = 6


def test_ten_prompts_get_the_tokens_of_transformers(prompts: list[tuple[int, ...]]) -> None:
    import torch
    from tokenizers import Tokenizer

    from engines.static.decoder import Decoder
    from engines.static.step import Step

    folder = fetch_model().folder
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    reference, taken_apart = Reference.of(folder), Reference.of(folder).model
    shape = DecoderShape.from_config(taken_apart.config, "test")
    step = Step(shape, weights_of(taken_apart, BUCKETS.lengths[-1]))
    batch = Batch(Decoder(step, BUCKETS, lambda step, shape, example: step))
    requests = [GenerateRequest("", one, TOKENS, ignore_eos=True) for one in prompts]
    sequences = [Sequence(one, tokenizer, frozenset(), torch.device("cpu"), BUCKETS.lengths[-1]) for one in requests]
    answers = generated(batch, *sequences)
    for one, answer in zip(prompts, answers, strict=True):
        assert answer == reference.greedy(one, TOKENS, answer)
    logits_are_those_of_transformers(batch.decoder, reference, prompts[:3], [answer[:2] for answer in answers[:3]])
