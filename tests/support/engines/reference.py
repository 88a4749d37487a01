"""What Transformers would say, as the measure of other engines: the same weights in 32-bit floats."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROMPTS = (
    "Once upon a time, in a small village near the sea, there lived",
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Water boils at",
    "Der schnelle braune Fuchs",
    "1, 2, 3, 4,",
    "<|im_start|>user\nWhat is the capital of Italy?<|im_end|>\n<|im_start|>assistant\n",
    "Dear Sir or Madam,\n\nI am writing",
    "The mitochondria is the",
    "In 1969, humans first",
)


class Reference:
    """A model in Transformers. It is fed whole sequences, which takes a tenth of the time of one token at a time."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()

    @classmethod
    def of(cls, folder: Path) -> Reference:
        import torch
        from transformers import AutoModelForCausalLM

        return cls(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))

    def likeliest(self, prompt: Sequence[int], count: int) -> list[tuple[int, float]]:
        """Ids of the next token with their log-probabilities."""
        import torch

        top = torch.log_softmax(self._logits(prompt)[-1], -1).topk(count)
        return list(zip(top.indices.tolist(), top.values.tolist(), strict=True))

    def greedy(self, prompt: Sequence[int], count: int, guess: Sequence[int]) -> list[int]:
        """The greedy answer of `count` tokens. A guess only saves time: each of its tokens is checked."""
        answer: list[int] = []
        while len(answer) < count:
            tried = [*answer, *guess[len(answer) : count - 1]]
            said = self._logits([*prompt, *tried])[len(prompt) - 1 :].argmax(-1).tolist()
            right = next((at for at, id in enumerate(tried) if id != said[at]), len(tried))
            answer = said[: right + 1]
        return answer

    def _logits(self, ids: Sequence[int]) -> Any:
        import torch

        with torch.inference_mode():
            return self.model(torch.tensor([list(ids)])).logits[0]
