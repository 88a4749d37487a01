"""How the time of a token of `pytorch-baseline` grows with its context: without a cache, each token is a prefill.

    python -m validation.speed.baseline_growth --output validation/results/baseline_growth.json    # a quiet machine

One answer is generated per round, from a prompt of `--prompt` tokens. The time of a token is the gap before it; the
median over the rounds is fitted by a line in the context's length. Between the rounds, prompts of several lengths are
prefilled for one token each; interpolated and summed over the answer's contexts, they are what its tokens should take.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import numpy as np

from engines.contract.base import GenerateRequest
from engines.models.fetch import fetch_model
from engines.process.child import ChildEngine
from engines.process.loading import load_engine
from validation.program import command_line, write

PREFILLS = 9  # lengths between the shortest and the longest context


async def token_times(engine: ChildEngine, prompt: int, tokens: int) -> list[float]:
    """Seconds of each token, the first one included."""
    ids = tuple(100 + 37 * at % 40_000 for at in range(prompt))
    stamps = [time.perf_counter()]
    async for ready in engine.generate(GenerateRequest("", ids, tokens, ignore_eos=True)):
        stamps += [time.perf_counter()] * len(ready)
    return np.diff(stamps).tolist()


async def measure(
    prompt: int, tokens: int, rounds: int, lengths: Sequence[int]
) -> tuple[list[list[float]], list[list[float]]]:
    """Times of the answers' tokens and of the prefills, by round."""
    answers, prefills = [], []
    engine = load_engine("pytorch-baseline", fetch_model(), {})
    await engine.start()
    try:
        await token_times(engine, prompt, 4)  # pages are read
        for _ in range(rounds):
            answers.append((await token_times(engine, prompt, tokens + 1))[1:])
            prefills.append([(await token_times(engine, length, 1))[0] for length in lengths])
    finally:
        await engine.stop()
    return answers, prefills


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--prompt", type=int, default=16, help="tokens (default 16)")
    parser.add_argument("--tokens", type=int, default=240, help="of the answer (default 240)")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    contexts = np.arange(given.prompt + 1, given.prompt + given.tokens + 1)
    lengths = np.linspace(contexts[0], contexts[-1], PREFILLS).round().astype(int)
    answers, prefills = asyncio.run(measure(given.prompt, given.tokens, given.rounds, lengths.tolist()))
    seconds, prefill = np.median(answers, axis=0), np.median(prefills, axis=0)
    slope, base = np.polyfit(contexts, seconds, 1)
    explained = 1 - float(np.var(seconds - (base + slope * contexts)) / np.var(seconds))
    ratio = float(seconds.sum() / np.interp(contexts, lengths, prefill).sum())
    write(
        given.output,
        "torch",
        contexts=[int(contexts[0]), int(contexts[-1])],
        base=float(base),
        per_context_token=float(slope),
        explained=explained,
        answer_over_summed_prefills=ratio,
        token_seconds=seconds.tolist(),
        prefill_lengths=lengths.tolist(),
        prefill_seconds=prefill.tolist(),
    )
    print(f"a token takes {1e3 * base:.1f} ms + {1e6 * slope:.0f} µs per token of context, R² {explained:.3f}")
    print(f"the answer takes {ratio:.3f} times its summed prefills")


if __name__ == "__main__":
    main()
