"""A server around an engine that knows the answers to the graded questions.

    python tests/support/servers/graded_engine.py sound|broken        # prints its address when it is ready

With `broken`, the engine mixes up the rows of a batch: a request that runs with others gets the answer to another one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from enginebench.settings.schema import setting
from engines.contract.base import BlockingEngine, Chunk, EngineInfo, GenerateRequest
from loadtests.harness.workload.graded_questions import graded_questions
from tests.support.servers.engine_server import serve

STEP = 0.01  # seconds
UNKNOWN = 5  # every fifth question is one that the model cannot answer


@dataclass(frozen=True, slots=True)
class GradedOptions:
    batch: str = setting("sound", "sound or broken")


class GradedEngine(BlockingEngine):
    Options = GradedOptions
    options: GradedOptions

    def load(self) -> EngineInfo:
        self._answers = {
            request.messages[0][1]: (k, request.expected) for k, request in enumerate(graded_questions().requests)
        }
        self._running: dict[int, str] = {}
        return EngineInfo("graded", "1", "python", "graded", "none", "cpu", "continuous", 16, 4096)

    def generate_blocking(self, request: GenerateRequest) -> Iterator[Chunk]:
        number, answer = next(known for question, known in self._answers.items() if question in request.prompt)
        self._running[number] = "no idea" if number % UNKNOWN == 0 else str(answer)
        try:
            time.sleep(STEP)
            rows = dict(self._running)
        finally:
            text = self._running.pop(number)
        others = [row for other, row in rows.items() if other != number]
        if others and self.options.batch == "broken":
            text = others[0]
        yield Chunk(f"It is {text}.", 4, "stop")


if __name__ == "__main__":
    serve("graded", "tests.support.servers.graded_engine:GradedEngine", {"batch": sys.argv[1]})
