"""The answers of Transformers with the same weights in 32-bit floats, to which other engines are compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.engines.torch_when_used import torch

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
    """A model in Transformers."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()

    @classmethod
    def of(cls, folder: Path) -> Reference:
        from transformers import AutoModelForCausalLM

        return cls(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))

    @classmethod
    def of_gguf(cls, file: Path) -> Reference:
        """Load the weights of a GGUF file, which Transformers' reader dequantises."""
        from transformers import AutoModelForCausalLM

        net = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        return cls(net)

    def likeliest(self, prompt: Sequence[int], count: int) -> list[tuple[int, float]]:
        """Return the `count` likeliest ids of the next token with their log-probabilities."""
        top = torch.log_softmax(self.logits(prompt)[-1], -1).topk(count)
        return list(zip(top.indices.tolist(), top.values.tolist(), strict=True))

    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        """Return the greedy answer of `count` tokens."""
        answer: list[int] = []
        while len(answer) < count:
            answer.append(int(self.logits([*prompt, *answer])[-1].argmax()))
        return answer

    def answer(self, prompt: Sequence[int], count: int) -> tuple[list[int], list[float]]:
        """Return the ids of Transformers' own greedy generation, and their log-probabilities."""
        made = self.model.generate(
            torch.tensor([list(prompt)]),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=-1,  # no token ends it
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        ids = made.sequences[0, len(prompt) :].tolist()
        logs = [float(torch.log_softmax(each[0], -1)[id]) for each, id in zip(made.logits, ids, strict=True)]
        return ids, logs

    def logits(self, ids: Sequence[int]) -> Any:
        """Return the logits after each of these tokens, `[tokens, vocabulary]`."""
        with torch.inference_mode():
            return self.model(torch.tensor([list(ids)])).logits[0]
