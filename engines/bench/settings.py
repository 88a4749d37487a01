"""The settings of `enginebench bench`: engines with options, cases of each, how often and how long to measure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Literal

from enginebench.settings.schema import UserMistake, options_by_engine, read_sizes, setting, write_list
from engines.contract.base import EngineInfo

sizes_setting = partial(setting, group="What is measured", read=read_sizes, write=write_list)
effort_setting = partial(setting, group="How often")

Sizes = tuple[int, ...]
Kind = Literal["prefill", "generate", "batch"]
MAX_BATCH_ON_CPU, MAX_BATCH_ON_GPU = 64, 1024  # requests, if no sizes are given
PROMPT_TOKENS = 32  # per prompt of generation and batches
BATCH_TOKENS = 32  # per answer in a batch


@dataclass(frozen=True, slots=True)
class BenchSettings:
    """Durations in seconds, lengths in tokens."""

    prefill: Sizes = sizes_setting(
        tuple(2**power for power in (5, 7, 9, 10, 11, 12, 13, 14, 15)),
        "Prompt lengths for prefill, in tokens; those that exceed the context or the time are left out.",
        metavar="TOKENS,…",
    )
    generate: Sizes = sizes_setting(
        (10, 50, 100),
        "Answer lengths for generation, in tokens. The longest one that fits gives the time per decoded token.",
        metavar="TOKENS,…",
    )
    batch: Sizes = sizes_setting(
        (),
        "Requests sent at the same time. Default: powers of 2 up to 64, on a GPU up to 1024, limited by the "
        "engine's concurrency.",
        metavar="REQUESTS,…",
    )
    samples: int = effort_setting(100, "Samples of each measure, over all rounds.", metavar="N", least=1)
    rounds: int = effort_setting(
        5, "Rounds; in each one, every engine is restarted and measured.", flag="--repeat", metavar="N", least=1
    )
    warm_up: int = effort_setting(
        3, "Requests before the first sample of a measure, in every round.", metavar="N", least=0
    )
    seconds: float = effort_setting(
        5.0, "Time limit for the samples of one measure in one round.", metavar="S", least=0.01
    )

    @property
    def samples_per_round(self) -> int:
        return -(-self.samples // self.rounds)


@dataclass(frozen=True, slots=True)
class Variant:
    """An engine with one model and one set of options; `label` is unique."""

    label: str
    engine: str
    model: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def variants_of(
    engines: Sequence[str], models: Sequence[str], options: Sequence[str], sweeps: Sequence[str]
) -> list[Variant]:
    """Combine every engine with every model and all swept values. Raises `UserMistake`.

    `options` are `[engine.]name=value`, `sweeps` are `[engine.]name=value,value,…`.
    """
    for words, what in ((engines, "engine"), (models, "model")):
        if len(set(words)) < len(words):
            raise UserMistake(f"name each {what} once; for several settings of one engine use --sweep name=a,b.")
    fixed, swept = options_by_engine(options, engines), options_by_engine(sweeps, engines)
    variants = []
    for engine, model in product(engines, models or (None,)):
        values = [[value.strip() for value in text.split(",")] for text in swept[engine].values()]
        for combination in product(*values):
            chosen = dict(zip(swept[engine], combination, strict=True))
            words = [engine, *(f"{name}={value}" for name, value in chosen.items())]
            if model is not None and len(models) > 1:
                words.append(model)
            variants.append(Variant(" ".join(words), engine, model, fixed[engine] | chosen))
    return variants


@dataclass(frozen=True, slots=True)
class Case:
    """Requests that are sent at the same time, with the lengths of each prompt and each answer."""

    kind: Kind
    size: int  # prompt tokens of a prefill, answer tokens of a generation, requests of a batch
    requests: int
    prompt_tokens: int
    answer_tokens: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.size}"

    @property
    def tokens(self) -> int:
        """Return the tokens of one request, prompt and answer."""
        return self.prompt_tokens + self.answer_tokens


def cases_of(settings: BenchSettings, info: EngineInfo) -> tuple[list[Case], dict[str, str]]:
    """Return the cases in the order in which they are measured, and why this engine cannot run others, by name."""
    max_batch = MAX_BATCH_ON_CPU if info.device.partition(":")[0] in {"cpu", "none"} else MAX_BATCH_ON_GPU
    batches = settings.batch or [2**power for power in range(max_batch.bit_length())]
    # A prompt as long as the context is one token shorter: engines count the answer's one token, too.
    cases = [Case("prefill", size, 1, size - (size == info.context_length), 1) for size in settings.prefill]
    cases += [Case("generate", size, 1, PROMPT_TOKENS, size) for size in settings.generate]
    cases += [Case("batch", size, size, PROMPT_TOKENS, BATCH_TOKENS) for size in batches]
    possible, left_out = [], {}
    for case in cases:
        if case.tokens > info.context_length:
            left_out[case.name] = f"the context holds {info.context_length} tokens"
        elif case.requests > info.max_concurrency:
            left_out[case.name] = f"the engine runs {info.max_concurrency} at a time with these options"
        else:
            possible.append(case)
    return possible, left_out
