"""What `enginebench bench` measures, how often, for how long at most, and which files it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from settings_schema import setting, write_list

measure_setting = partial(setting, group="What is measured")
effort_setting = partial(setting, group="How often")

Sizes = tuple[int, ...]


def read_sizes(text: str) -> Sizes:
    """`32,128,512`, ascending and each once. Raises `ValueError` with a sentence."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"sizes are whole numbers above 0 with commas between, such as 32,128,512, not `{text}`.")
    return tuple(sorted({int(part) for part in parts}))


sizes_setting = partial(measure_setting, read=read_sizes, write=write_list)


@dataclass(frozen=True, slots=True)
class FileSettings:
    baseline: Path | None = setting(None, "Result to compare with, as by `enginebench gate`.", metavar="FILE")
    save_baseline: bool = setting(False, "Write the result to --baseline; nothing is judged.")
    output: Path | None = setting(None, "Write the JSON document to this file.", metavar="FILE")
    html: Path | None = setting(None, "Write a page with plots to this file.", metavar="FILE")

    @property
    def written(self) -> list[Path]:
        """Where the JSON document goes."""
        kept = (self.output, self.baseline if self.save_baseline else None)
        return [path for path in kept if path is not None]


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
        "Requests sent at the same time. Default: powers of 2 up to 64, on a GPU up to 1024, limited by what the "
        "engine runs together.",
        metavar="REQUESTS,…",
    )
    prompt_tokens: int = measure_setting(32, "Prompt length for generation and batches.", metavar="TOKENS", least=1)
    batch_tokens: int = measure_setting(32, "Answer length of each request in a batch.", metavar="TOKENS", least=2)
    samples: int = effort_setting(100, "Samples of each measure, over all rounds.", metavar="N", least=1)
    rounds: int = effort_setting(
        5, "Rounds; in each one, every engine is restarted and measured.", metavar="N", least=1
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
