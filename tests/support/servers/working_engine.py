"""A server around an engine that computes in a thread, and records when it generated each token.

    python tests/support/servers/working_engine.py FILE        # prints its address when it is ready

A token takes `TOKEN` seconds and cannot be interrupted. FILE gets a line for each, with the time by CLOCK_MONOTONIC.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from enginebench.settings.schema import setting
from engines.contract.base import BlockingEngine, Chunk, EngineInfo, GenerateRequest, TokenLogprob, Usage
from tests.support.servers.engine_server import serve

TOKEN = 0.05
SECRET_PATH = "/srv/models/secret"


@dataclass(frozen=True, slots=True)
class WorkingOptions:
    file: str = setting("", "file that gets a line for each token")


class WorkingEngine(BlockingEngine):
    """Runs two requests at a time. A prompt that begins with an exclamation mark raises an unexpected exception."""

    Options = WorkingOptions
    options: WorkingOptions

    def load(self) -> EngineInfo:
        features = ("logprobs", "ignore_eos")
        return EngineInfo("working", "1", "python", "working", "none", "cpu", "continuous", 2, 4096, features)  # type: ignore[arg-type]

    def generate_blocking(self, request: GenerateRequest) -> Iterator[Chunk]:
        if request.prompt.startswith("!"):
            raise FileNotFoundError(SECRET_PATH)
        for produced in range(1, request.max_tokens + 1):
            time.sleep(TOKEN)
            with open(self.options.file, "a") as made:
                made.write(f"{time.monotonic()}\n")
            top = tuple((f" {rank}", -1.0 - rank, None) for rank in range(request.logprobs or 0))
            known = () if request.logprobs is None else (TokenLogprob(" a", -0.5, top),)
            last = produced == request.max_tokens
            usage = Usage(queue=0.5, first_token=TOKEN, cached_tokens=1) if last else None
            yield Chunk(" a", 1, "length" if last else None, known, usage)


if __name__ == "__main__":
    serve("working", "tests.support.servers.working_engine:WorkingEngine", {"file": sys.argv[1]})
