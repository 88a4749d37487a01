"""The measures of one engine, and which of them it can take: by its context, by how many requests it runs together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bench.settings import BenchSettings
from engines.contract.base import EngineInfo

Kind = Literal["prefill", "generate", "batch"]
MOST_ON_CPU, MOST_ON_GPU = 64, 1024  # requests of the largest batch, where no sizes are given


@dataclass(frozen=True, slots=True)
class Case:
    """`requests` are sent at the same time, each with a prompt of `prompt_tokens`, for answers of `answer_tokens`."""

    kind: Kind
    size: int  # prompt tokens of a prefill, answer tokens of a generation, requests of a batch
    requests: int
    prompt_tokens: int
    answer_tokens: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.size}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A case that was not measured, or not to its end, and why."""

    case: str
    why: str


def cases_of(settings: BenchSettings, info: EngineInfo) -> tuple[list[Case], list[LeftOut]]:
    """In the order in which they are measured: each kind by ascending size."""
    wanted = [Case("prefill", tokens, 1, tokens, 1) for tokens in settings.prefill]
    wanted += [Case("generate", tokens, 1, settings.prompt_tokens, tokens) for tokens in settings.generate]
    wanted += [
        Case("batch", requests, requests, settings.prompt_tokens, settings.batch_tokens)
        for requests in settings.batch or _batches(info)
    ]
    possible, left_out = [], []
    for case in wanted:
        if case.prompt_tokens + case.answer_tokens > info.context_length:
            left_out.append(LeftOut(case.name, f"the context holds {info.context_length} tokens"))
        elif case.requests > info.max_concurrency:
            left_out.append(LeftOut(case.name, f"the engine runs {info.max_concurrency} at a time with these options"))
        else:
            possible.append(case)
    return possible, left_out


def _batches(info: EngineInfo) -> list[int]:
    most = MOST_ON_CPU if on_cpu(info.device) else MOST_ON_GPU
    return [2**power for power in range(most.bit_length())]


def on_cpu(device: str) -> bool:
    """Also for an engine that computes nothing."""
    return device.partition(":")[0] in {"cpu", "none"}
