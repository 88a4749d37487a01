"""The server for `server_soak.py`: the fake engine, with limits short enough to be reached every few seconds.

    python -m validation.speed.soak_server        # prints its address when it is ready

It has one additional path, `/tasks`: the number of asyncio tasks.
"""

from __future__ import annotations

import asyncio
import socket

from engines.process.engine_loading import load_engine
from servers.app import create_app
from servers.http.address import listen
from servers.openai.prompts import ByteTokenizer
from servers.serve import run
from servers.settings import ServerSettings

CONCURRENCY = 8
QUEUE = 6
ENGINE = {"ttft": "0.05", "tpot": "0.02", "jitter": "0.5", "concurrency": str(CONCURRENCY)}
LIMITS = ServerSettings(
    port=0,
    queue_size=QUEUE,
    max_body_bytes=256 * 1024,
)
SEND_BUFFER = 16 * 1024  # bytes in the kernel, so that a client that does not read is noticed early


def main() -> None:
    app = create_app(load_engine("fake", options=ENGINE), ByteTokenizer(), LIMITS)

    @app.get("/tasks")
    async def tasks() -> int:
        return len(asyncio.all_tasks())

    listener = listen(LIMITS)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
    run(app, listener)


if __name__ == "__main__":
    main()
