"""Supervised child processes: the fake engine's, and a few lines of Python."""

import asyncio
import sys
import textwrap
from pathlib import Path

from engines.contract.base import GenerateRequest, Launch
from engines.process.supervisor import ChildEngine, Watch

QUICK = Watch(heartbeat=0.05, hung_after=1.0, restart_first=0.05, restart_most=0.2, stop_grace=1.0)


def request(max_tokens: int = 5) -> GenerateRequest:
    return GenerateRequest("a b", (1, 2), max_tokens)


def fake(**options: str) -> ChildEngine:
    return ChildEngine("fake", None, options, watch=QUICK)


async def answer(engine: ChildEngine, max_tokens: int = 5) -> int:
    return sum([chunk.tokens async for ready in engine.generate(request(max_tokens)) for chunk in ready])


async def until_ready(engine: ChildEngine) -> None:
    async with asyncio.timeout(10):
        while engine.state != "ready":
            await asyncio.sleep(0.01)


def script(folder: Path, body: str) -> tuple[str, ...]:
    """Return the command of a child of a few lines, such as a user could write in any language."""
    path = folder / "child.py"
    path.write_text(
        textwrap.dedent(
            """
            import json, sys, time
            INFO = dict(name="tiny", version="1", language="any", model="m", dtype="f32", device="cpu",
                        batching="none", max_concurrency=1, context_length=4096)
            def say(**line): print(json.dumps(line), flush=True)
            def requests():
                for line in sys.stdin:
                    got = json.loads(line)
                    if got["type"] == "load": say(type="ready", version=1, info=INFO)
                    if got["type"] == "generate": yield got
            """
        )
        + textwrap.dedent(body)
    )
    return (sys.executable, str(path))


def scripted(folder: Path, body: str) -> ChildEngine:
    return ChildEngine("tiny", None, {}, launch=Launch(script(folder, body)), watch=QUICK)
