"""What it costs an engine to be served: behind our server, against the same engine driven through its child process.

    python -m validation.speed.served_engines                         # all that can run here, about ten minutes
    python -m validation.speed.served_engines burn candle --rounds 3
    python -m validation.speed.served_engines --output validation/results/served_engines.json

An engine that is not measured again keeps its figures in that file.

Both sides are loaded and then take turns, and swap who goes first from round to round, so that what drifts on the
machine affects both. Each user asks for one greedy answer after the other. A rate is tokens over the seconds from the
first question to the end of the last answer; the ratio is taken within a round.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any

from engines.contract.base import GenerateRequest, Model
from engines.contract.errors import EngineUnavailable
from engines.models.fetch import DEFAULT, fetch_model
from engines.process.child import ChildEngine
from engines.process.loading import load_engine
from validation.processes import started_server
from validation.program import command_line, measured_before, write

TOKENS = 32  # of each answer
FEWER_TOKENS = {"pytorch-baseline": 8}  # each of its tokens reads the whole text again
ANSWERS = {1: 4, 16: 16}  # by users: answers of one turn, all users together
PROMPT = "Tell me in a few sentences what happened in the city of Paris in the year {year}, and what people thought."
ENGINES = {
    "transformers": {"dtype": "float32"},
    "transformers-batching": {"dtype": "float32", "concurrency": "16"},
    "pytorch-baseline": {},
    "torch-jit": {"dtype": "float32", "batches": "1,16", "lengths": "512"},
    "torch-compile": {"dtype": "bfloat16", "batches": "1,16", "lengths": "512"},
    "mistralrs": {"dtype": "float32", "concurrency": "16"},
    "candle": {"dtype": "float32", "concurrency": "16"},
    "burn": {"dtype": "float32"},
    "llamacpp": {"dtype": "float16", "concurrency": "16"},
    "openvino": {"dtype": "float16"},
    "vllm": {"dtype": "bfloat16", "concurrency": "16"},
    "lmrs": {},
}


@dataclass(frozen=True, slots=True)
class Result:
    """Tokens per second of each round, all users together."""

    engine: str
    users: int
    direct: list[float]
    served: list[float]

    @property
    def ratios(self) -> list[float]:
        return [served / direct for direct, served in zip(self.direct, self.served, strict=True)]


def prompts(users: int, turn: int) -> list[str]:
    """Return new prompts in every turn, so that no cache helps."""
    return [PROMPT.format(year=1000 + 40 * turn + number) for number in range(ANSWERS[users])]


def rate(answers: list[int], tokens: int, took: float) -> float:
    if set(answers) != {tokens}:
        raise SystemExit(f"answers of {tokens} tokens were asked for, not of {answers}")
    return sum(answers) / took


async def served(pool: ThreadPoolExecutor, port: int, questions: list[str], tokens: int) -> float:
    """Ask with a thread and a connection for each user, who asks again after each answer."""
    began = time.perf_counter()
    answers = await asyncio.to_thread(lambda: list(pool.map(lambda question: _ask(port, question, tokens), questions)))
    return rate(answers, tokens, time.perf_counter() - began)


def _ask(port: int, question: str, tokens: int) -> int:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    body = {"prompt": question, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    line.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    *events, end = line.getresponse().read().split(b"\n\n")[:-1]
    line.close()
    if end != b"data: [DONE]":
        raise SystemExit(f"the answer was not complete: {end!r}")
    return int(json.loads(events[-1].removeprefix(b"data: "))["usage"]["completion_tokens"])


async def direct(
    engine: ChildEngine, encode: Callable[[str], list[int]], users: int, questions: list[str], tokens: int
) -> float:
    waiting = list(reversed(questions))

    async def user() -> list[int]:
        counts = []
        while waiting:
            question = waiting.pop()
            stream = engine.generate(GenerateRequest(question, tuple(encode(question)), tokens, ignore_eos=True))
            counts.append(sum([chunk.tokens async for ready in stream for chunk in ready]))
        return counts

    began = time.perf_counter()
    answers = await asyncio.gather(*(user() for _ in range(users)))
    return rate([count for mine in answers for count in mine], tokens, time.perf_counter() - began)


async def measure(name: str, model: Model, rounds: int) -> list[Result]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(model.folder / "tokenizer.json"))

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text).ids)

    engine = load_engine(name, model, ENGINES[name])
    options = [word for key, value in ENGINES[name].items() for word in ("-o", f"{key}={value}")]
    command = [sys.executable, "-m", "enginebench", "serve", "--engine", name, *options]
    results = [Result(name, users, [], []) for users in ANSWERS]
    tokens = FEWER_TOKENS.get(name, TOKENS)
    await engine.start()
    try:
        with started_server([*command, "--model", DEFAULT, "--port", "0"]) as (_, port):
            for turn in range(-1, rounds):  # the first one warms up
                for result in results:
                    with ThreadPoolExecutor(result.users) as pool:
                        questions = prompts(result.users, turn + 1)
                        for side in ("direct", "served") if turn % 2 else ("served", "direct"):
                            if side == "direct":
                                speed = await direct(engine, encode, result.users, questions, tokens)
                            else:
                                speed = await served(pool, port, questions, tokens)
                            if turn >= 0:
                                getattr(result, side).append(speed)
    finally:
        await engine.stop()
    return results


def main() -> None:
    parser = command_line(__doc__)
    parser.add_argument("engine", nargs="*", choices=[*ENGINES, []], help="all by default")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    model, engines = fetch_model(), measured_before(arguments.output)
    print(f"{'engine':14}{'users':>6}{'direct tokens/s':>17}{'served tokens/s':>17}{'served/direct':>15}  rounds")
    for name in arguments.engine or ENGINES:
        measured: dict[str, Any] = {
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "load_average": os.getloadavg()[0],
        }
        try:
            results = asyncio.run(measure(name, model, arguments.rounds))
        except (ValueError, EngineUnavailable) as error:
            print(f"{name} is left out: {error}")
            continue
        for result in results:
            spread = " ".join(f"{ratio:.3f}" for ratio in result.ratios)
            print(
                f"{result.engine:14}{result.users:6}{median(result.direct):17.1f}{median(result.served):17.1f}"
                f"{median(result.ratios):15.3f}  {spread}"
            )
        measured["results"] = [asdict(result) | {"ratio": median(result.ratios)} for result in results]
        engines[name] = measured
        write(arguments.output, "transformers", "mistralrs", engines=engines)  # a later engine may be interrupted


if __name__ == "__main__":
    main()
