"""A server around an engine that writes into every token when it was generated, to measure the delay added after it.

    python -m validation.speed.stamped_engine 0.02        # seconds per token; prints its address when it is ready

The text of a token is the reading of CLOCK_MONOTONIC in nanoseconds, which every process of a Linux machine shares.
"""

from __future__ import annotations

import sys
import time

from engines.contract.base import Chunk
from engines.fake.engine import FakeEngine


class StampedEngine(FakeEngine):
    def sent(self, chunk: Chunk) -> Chunk:
        return Chunk(f" {time.clock_gettime_ns(time.CLOCK_MONOTONIC)}", chunk.tokens, chunk.finish_reason)


def main() -> None:
    from engines.process.supervisor import ChildEngine
    from servers.app import create_app
    from servers.http.address import listen
    from servers.openai.prompts import ByteTokenizer
    from servers.serve import run
    from servers.settings import ServerSettings

    options = {"tpot": sys.argv[1], "concurrency": "2000"}
    engine = ChildEngine("stamped", None, options, target="validation.speed.stamped_engine:StampedEngine")
    settings = ServerSettings(port=0)
    run(create_app(engine, ByteTokenizer(), settings), listen(settings))


if __name__ == "__main__":
    main()
