"""What it costs mistral.rs to be served: our server around it, against driving its Runner directly.

    python -m benchmarks.engines.served_mistralrs                    # about three minutes
    python -m benchmarks.engines.served_mistralrs --launches 6 --json

Both sides hold the same model in the same precision and get the same prompts; each user asks for one greedy answer of
48 tokens after the other, streamed. Directly, a user is a thread that iterates over the Runner's chunks, as it must be
done from Python. Served, a user is a thread with a connection to `/v1/completions`. The sides take turns, and swap who
goes first from round to round, so that what drifts on the machine meets both; and both are started anew for every
launch, because a process may be lucky with its memory for as long as it lives. A rate is tokens over the seconds from
the first question to the end of the last answer.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

from benchmarks.started_server import started_server
from engines.mistralrs import AS_IT_IS
from engines.models.fetch import DEFAULT, fetch_model
from loadtests.harness.run.host import host_facts, versions

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 48  # of each answer
PLACES = 16
ANSWERS = {1: 4, PLACES: 16}  # by users: answers of one stage, all users together
TOPICS = ("a fox", "the sea", "an old lamp", "two rivers", "the first snow", "a clock", "bread", "a lost letter")
STORY = (
    "Once upon a time, in a small village near the mountains, there lived somebody who knew everything about {topic}. "
    "Every evening at {hour} o'clock people came to listen. This is what they heard on day {day}:"
)

Answer = tuple[str, int]  # text and tokens
Ask = Callable[[str], Answer]


@dataclass(frozen=True, slots=True)
class Stage:
    """Tokens a second of all users together."""

    side: str
    users: int
    launch: int
    round: int
    rate: float
    answers: tuple[str, ...]


def prompts(users: int, round: int) -> list[str]:
    """The same for both sides, and never the same twice: there is nothing to remember."""
    return [
        STORY.format(topic=TOPICS[number % len(TOPICS)], hour=1 + number, day=100 * users + round)
        for number in range(ANSWERS[users])
    ]


def stage(ask: Ask, users: int, questions: Sequence[str]) -> tuple[float, tuple[str, ...]]:
    """Rate and answers. A user asks again when the answer is there."""
    with ThreadPoolExecutor(users) as crowd:
        list(crowd.map(lambda _: None, range(users)))  # threads are there before the clock runs
        began = time.perf_counter()
        answers = list(crowd.map(ask, questions))
        took = time.perf_counter() - began
    tokens = [count for _, count in answers]
    if tokens != [TOKENS] * len(questions):
        raise SystemExit(f"answers of {TOKENS} tokens were asked for, not of {tokens}")
    return sum(tokens) / took, tuple(text for text, _ in answers)


def direct(folder: Path, pipe: Pipe) -> None:
    """A process that drives the Runner itself: gets (users, questions) until it gets `None`."""
    os.dup2(2, 1)  # mistral.rs says on standard output what it loads
    import mistralrs

    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as template:
        template.write(AS_IT_IS)
        template.flush()
        which: Any = mistralrs.Which.Plain(
            model_id=str(folder), arch=mistralrs.Architecture.Llama, dtype=mistralrs.ModelDType.F32
        )
        runner = mistralrs.Runner(
            which,
            max_seqs=PLACES,
            prefix_cache_n=0,
            token_source="none",
            jinja_explicit=template.name,
        )
    starting = threading.Lock()  # two calls that begin together are refused

    def ask(question: str) -> Answer:
        request = mistralrs.ChatCompletionRequest(
            messages=question, model="default", max_tokens=TOKENS, temperature=0.0, ignore_eos=True, stream=True
        )
        with starting:
            pieces: Any = runner.send_chat_completion_request(request)
        text, tokens = "", 0
        for piece in pieces:
            text += piece.choices[0].delta.content or ""
            if piece.usage is not None:
                tokens = piece.usage.completion_tokens
        return text, tokens

    pipe.send("ready")
    while (work := pipe.recv()) is not None:
        pipe.send(stage(ask, *work))


def served(port: int) -> Ask:
    kept = threading.local()

    def ask(question: str) -> Answer:
        if not hasattr(kept, "line"):
            kept.line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        asked = {"prompt": question, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True}
        kept.line.request("POST", "/v1/completions", json.dumps(asked), {"Content-Type": "application/json"})
        *events, end = kept.line.getresponse().read().split(b"\n\n")[:-1]
        if end != b"data: [DONE]":
            raise SystemExit(f"the answer was not complete: {end!r}")
        chunks = [json.loads(event.removeprefix(b"data: ")) for event in events]
        return "".join(chunk["choices"][0]["text"] for chunk in chunks), chunks[-1]["usage"]["completion_tokens"]

    return ask


@contextlib.contextmanager
def server() -> Iterator[int]:
    """Its port."""
    options = ["-o", f"concurrency={PLACES}", "-o", "dtype=float32", "--model", DEFAULT, "--port", "0"]
    command = [sys.executable, "-m", "enginebench", "serve", "--engine", "mistralrs", *options]
    with started_server(command) as (_, port):
        yield port


@contextlib.contextmanager
def runner() -> Iterator[Pipe]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=direct, args=(fetch_model().folder, there))
    process.start()
    there.close()
    try:
        here.recv()
        yield here
        here.send(None)
    finally:
        process.join(30)
        process.kill()


def measure(launch: int, rounds: int) -> list[Stage]:
    """Both sides side by side, started one after the other: whose model lies first in memory changes with `launch`."""
    stages = []
    with contextlib.ExitStack() as stack:
        if launch % 2:
            pipe = stack.enter_context(runner())
            port = stack.enter_context(server())
        else:
            port = stack.enter_context(server())
            pipe = stack.enter_context(runner())
        sides: dict[str, Callable[[int, list[str]], tuple[float, tuple[str, ...]]]] = {
            "direct": lambda users, questions: _over(pipe, users, questions),
            "served": lambda users, questions: stage(served(port), users, questions),
        }
        for warm_up in sides.values():
            warm_up(1, prompts(1, 99)[:1])
        for round in range(launch * rounds, (launch + 1) * rounds):
            order = list(sides) if round % 2 else list(sides)[::-1]
            for users in ANSWERS:
                for side in order:
                    rate, answers = sides[side](users, prompts(users, round))
                    stages.append(Stage(side, users, launch, round, rate, answers))
    return stages


def _over(pipe: Pipe, users: int, questions: list[str]) -> tuple[float, tuple[str, ...]]:
    pipe.send((users, questions))
    rate, answers = pipe.recv()
    return rate, answers


def summary(stages: Sequence[Stage], users: int) -> dict[str, object]:
    """Medians, and the ratio round by round: what a slow moment does to one round touches both sides of it."""
    by = {(one.side, one.round): one for one in stages if one.users == users}
    rounds = sorted({one.round for one in stages})
    pairs = [(by["direct", round], by["served", round]) for round in rounds]
    ratios = [after.rate / before.rate for before, after in pairs]
    texts = [pair for before, after in pairs for pair in zip(before.answers, after.answers, strict=True)]
    return {
        "users": users,
        "direct": statistics.median(before.rate for before, _ in pairs),
        "served": statistics.median(after.rate for _, after in pairs),
        "ratio": statistics.median(ratios),
        "ratios": sorted(ratios),
        "same_text": sum(before == after for before, after in texts) / len(texts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=2, help="times that both sides are started")
    parser.add_argument("--rounds", type=int, default=2, help="in each launch")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    stages = [one for launch in range(arguments.launches) for one in measure(launch, arguments.rounds)]
    found = [summary(stages, users) for users in ANSWERS]
    if arguments.json:
        rates = [{name: value for name, value in asdict(one).items() if name != "answers"} for one in stages]
        print(json.dumps({"host": host_facts() | versions("mistralrs"), "results": found, "stages": rates}, indent=2))
        return
    print(f"{'users':>5}{'direct tokens/s':>17}{'served tokens/s':>17}{'served/direct':>15}  rounds")
    for one in found:
        spread = " ".join(f"{ratio:.3f}" for ratio in one["ratios"])  # type: ignore[attr-defined]
        print(f"{one['users']:>5}{one['direct']:>17.1f}{one['served']:>17.1f}{one['ratio']:>15.3f}  {spread}")
    print(f"the same text in {found[0]['same_text']:.0%} of the answers with one user")


if __name__ == "__main__":
    main()
