"""Transformers' own `generate` for one answer, with a streamer that passes its tokens on as they come."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from engines.contract.base import Chunk, GenerateRequest
from engines.contract.errors import BadRequest
from engines.text.answer_text import AnswerText


class Streamer:
    """The streamer that `generate` calls with the prompt, and then with each token."""

    def __init__(self, text: AnswerText, put: Callable[[Chunk], bool]) -> None:
        self._text, self._put = text, put
        self._prompt = True
        self.ended = False

    def put(self, value: Any) -> None:
        ids, self._prompt = ([] if self._prompt else value.flatten().tolist()), False
        for id in ids:
            if not self.ended:
                ready, finish = self._text.add(id)
                self.ended = not self._put(Chunk(ready, 1, finish)) or finish is not None

    def end(self) -> None:
        return


def generate(
    net: Any, request: GenerateRequest, streamer: Streamer, most: int, end_ids: Collection[int], **assistance: Any
) -> None:
    """Generate until the answer ends or is cancelled. Sampling is the same as in other engines: the model's own
    `generation_config` is ignored. With `assistance`, tokens are drafted, and the model verifies several in one pass
    (Leviathan et al. 2023)."""
    import torch
    from transformers import GenerationConfig, StoppingCriteria, StoppingCriteriaList

    class Ended(StoppingCriteria):  # type: ignore[misc, unused-ignore]
        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            return torch.full((len(input_ids),), streamer.ended, dtype=torch.bool, device=input_ids.device)

    if request.logprobs is not None:
        raise BadRequest("`generate` streams no log-probabilities; serve without `loop` and `speculative_tokens`.")
    if request.seed is not None and not request.greedy:
        torch.manual_seed(request.seed)
    ends = sorted(end_ids) or None
    sampled = {"temperature": request.temperature, "top_p": request.top_p, "top_k": 0}
    net.generation_config = GenerationConfig()  # `generate` would add its settings to the given ones
    config = GenerationConfig(
        do_sample=not request.greedy,
        max_new_tokens=most,
        min_new_tokens=request.min_tokens or None,
        eos_token_id=None if request.ignore_eos else ends,
        pad_token_id=ends[0] if ends else 0,
        **({} if request.greedy else sampled),
    )
    ids = torch.tensor([request.prompt_token_ids], device=net.device)
    with torch.inference_mode():
        net.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=config,
            streamer=streamer,
            stopping_criteria=StoppingCriteriaList([Ended()]),
            **assistance,
        )
