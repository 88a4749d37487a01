"""Sampling of the next token from a model's logits, for engines that run on torch.

Greedy, temperature and nucleus sampling (Holtzman et al. 2020), as in `transformers`. Nothing else is applied, so that
all engines sample from the same distribution.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from engines.contract.base import Chunk, GenerateRequest, TokenLogprob
from engines.contract.errors import EngineError
from engines.text.answer_text import AnswerText
from engines.text.detokenize import token_text

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer


OVERFLOWED = "the model computed no number for any token: its values are beyond the number format (dtype)."


class Sampler:
    """Sample the tokens of one request. With a seed they repeat, on the same device and number format."""

    def __init__(self, request: GenerateRequest, end_ids: Sequence[int], device: torch.device) -> None:
        import torch

        self._temperature, self._top_p = (0.0 if request.greedy else request.temperature), request.top_p
        self._min_tokens, self._end_ids = request.min_tokens, list(end_ids)
        self._picked, self._forced = 0, request.forced_token_ids
        self._generator: torch.Generator | None = None
        if request.seed is not None and not request.greedy:
            self._generator = torch.Generator(device).manual_seed(request.seed)

    def pick(self, logits: torch.Tensor) -> int:
        """Return the next token's id. `logits` has one value per id of the vocabulary. Raises `EngineError` if the
        largest is not finite: arbitrary tokens would be measured as if they were an answer."""
        import torch

        self._picked += 1
        if self._picked <= len(self._forced):
            return self._forced[self._picked - 1]
        if self._picked - len(self._forced) <= self._min_tokens and self._end_ids:
            logits = logits.clone()
            logits[self._end_ids] = -torch.inf
        most, likeliest = torch.stack(
            [extreme.float() for extreme in logits.max(dim=-1)]
        ).tolist()  # one copy from a GPU
        if not math.isfinite(most):
            raise EngineError(OVERFLOWED)
        if self._temperature == 0 or abs(most) > torch.finfo(torch.float32).max * self._temperature:
            return int(likeliest)  # divided by the temperature, the logits would overflow
        probabilities = torch.softmax(logits.float() / self._temperature, dim=-1)
        if self._top_p < 1:
            probabilities = nucleus(probabilities, self._top_p)
        return int(torch.multinomial(probabilities, 1, generator=self._generator))


def nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Zero all but the likeliest tokens that are needed to reach `top_p`, without renormalising. The likeliest token is
    kept for every `top_p`."""
    ordered, ids = probabilities.sort(descending=True)
    reached = ordered.cumsum(dim=-1)[:-1] >= top_p
    return probabilities.index_fill(-1, ids[1:][reached], 0.0)


def logprob_of(logits: torch.Tensor, id: int, alternatives: int, tokenizer: Tokenizer) -> TokenLogprob:
    """Return the natural-log probability of token `id` at temperature 1, and of the likeliest ones."""
    import torch

    logprobs = torch.log_softmax(logits.float(), dim=-1)
    best = logprobs.topk(min(alternatives, len(logprobs)))
    top = []
    for likely, value in zip(best.indices.tolist(), best.values.tolist(), strict=True):
        text, data = token_text(tokenizer, likely)
        top.append((text, value, data))
    text, data = token_text(tokenizer, id)
    return TokenLogprob(text, float(logprobs[id]), tuple(top), data)


class SampledAnswer:
    """The answer to one request from the model's logits, token by token. `most` is the limit of its tokens."""

    def __init__(
        self, request: GenerateRequest, tokenizer: Tokenizer, end_ids: Collection[int], most: int, device: torch.device
    ) -> None:
        self._logprobs, self._tokenizer = request.logprobs, tokenizer
        self._text = AnswerText(request, tokenizer, end_ids, most)
        self._sampler = Sampler(request, () if request.ignore_eos else sorted(end_ids), device)
        self._takes_likeliest = request.greedy and not request.min_tokens and not request.forced_token_ids

    def next(self, logits: torch.Tensor, likeliest: int | None = None) -> tuple[int, Chunk]:
        """Return the token sampled from these logits, and its chunk of the answer. If the `likeliest` token is already
        known, a greedy request need not look for it."""
        id = likeliest if likeliest is not None and self._takes_likeliest else self._sampler.pick(logits)
        logprobs = () if self._logprobs is None else (logprob_of(logits, id, self._logprobs, self._tokenizer),)
        text, finish = self._text.add(id)
        return id, Chunk(text, 1, finish, logprobs)
