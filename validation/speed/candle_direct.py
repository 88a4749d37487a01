"""The candle engine with one user against candle-transformers in a plain loop: the same model, prompt and tokens.

    python -m validation.speed.candle_direct --output validation/results/candle_direct.json    # on a quiet machine

Both are timed from their first to their last token, in turn. The ratio is the engine's speed over the loop's.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from engines.contract.base import GenerateRequest, Model
from engines.contract.errors import EngineUnavailable
from engines.models.fetch import fetch_model
from engines.process.loading import load_engine
from engines.rust.programs import build, cargo
from validation.program import command_line, write

PROMPT = 40


def direct(model: Model, tokens: int) -> float:
    """Seconds that the plain loop takes from its first to its last token."""
    command = ["run", "--release", "--locked", "--package", "enginebench-candle", "--example", "direct", "--"]
    done = cargo([*command, str(model.folder), str(PROMPT), str(tokens)], quiet=True)
    if done.returncode:
        raise EngineUnavailable(done.stderr)
    return float(done.stdout)


def engine(model: Model, tokens: int) -> float:
    """The same through the engine's process."""
    ids = tuple(100 + 37 * at % 40_000 for at in range(PROMPT))

    async def answer() -> float:
        child = load_engine("candle", model, {"dtype": "float32", "device": "cpu"})
        await child.start()
        try:
            stamps = []
            async for ready in child.generate(GenerateRequest("", ids, tokens, ignore_eos=True)):
                stamps += [time.perf_counter()] * len(ready)
            return stamps[-1] - stamps[0]
        finally:
            await child.stop()

    return asyncio.run(answer())


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    given = parser.parse_args()
    build("candle")
    model = fetch_model()
    direct(model, 2)  # builds it
    rounds = [(engine(model, given.tokens), direct(model, given.tokens)) for _ in range(given.rounds)]
    ratios = [loop / served for served, loop in rounds]
    median, low, high = statistics.median(ratios), min(ratios), max(ratios)
    write(
        given.output,
        tokens=given.tokens,
        engine_tokens_per_second=[(given.tokens - 1) / served for served, _ in rounds],
        direct_tokens_per_second=[(given.tokens - 1) / loop for _, loop in rounds],
        ratio_median=median,
        ratio_range=[low, high],
    )
    print(f"the engine has {median:.3f} [{low:.3f}, {high:.3f}] of the speed of the plain loop")


if __name__ == "__main__":
    main()
