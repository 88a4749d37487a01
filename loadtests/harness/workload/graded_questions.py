"""The dataset `graded`: 200 generated questions with exact answers, about adding, looking up and copying.

A seed generates them, so they are the same in every run and need no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from random import Random

from loadtests.harness.schedule.trace import Trace, TraceArrival, TraceRequest

GRADED = "graded"  # name of the dataset
QUESTIONS = 200
NAMES = ("Ada", "Ben", "Carla", "David", "Emma", "Frank", "Grace", "Hugo", "Irene", "Jonas", "Karen", "Leo")
WORDS = (
    "amber", "bridge", "candle", "desert", "engine", "forest", "garden", "harbor", "island", "jacket", "kettle",
    "ladder", "mirror", "needle", "orange", "pencil", "rabbit", "silver", "tunnel", "window",
)  # fmt: skip
COPIED = 6  # words


def graded_questions() -> Trace:
    rng = Random("graded questions 1")
    kinds = cycle((_addition, _lookup, _copy))
    return Trace(tuple(islice(_arrivals(kind(rng) for kind in kinds), QUESTIONS)))


def _arrivals(questions: Iterator[tuple[str, str]]) -> Iterator[TraceArrival]:
    for number, (prompt, answer) in enumerate(questions, 1):
        request = TraceRequest(None, None, messages=(("user", prompt),), row=f"question {number}", expected=answer)
        yield TraceArrival(None, (request,))


def _addition(rng: Random) -> tuple[str, str]:
    left, right = rng.randrange(11, 100), rng.randrange(11, 100)
    return f"What is {left} + {right}? Answer with the number only.", str(left + right)


def _lookup(rng: Random) -> tuple[str, str]:
    rooms = {name: rng.randrange(1000, 10_000) for name in NAMES}
    name = rng.choice(NAMES)
    listed = "\n".join(f"{guest}: {room}" for guest, room in rooms.items())
    return f"Guests and their rooms:\n{listed}\nWhich room is {name} in? Answer with the number only.", str(rooms[name])


def _copy(rng: Random) -> tuple[str, str]:
    words = " ".join(rng.sample(WORDS, COPIED))
    return f"Repeat these words in the same order, and write nothing else: {words}", words
