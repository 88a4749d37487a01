"""Children of a few lines: what they get wrong is explained, and lines cut anywhere are read whole."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from engines.contract.base import Launch, TokenLogprob
from engines.contract.errors import EngineCrashed, EngineUnavailable
from engines.process.supervisor import ChildEngine
from tests.support.engines.children import answer, request, scripted

Runner = Callable[[Coroutine[Any, Any, None]], None]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        pytest.param("say(type='ready', version=99, info=INFO); time.sleep(60)", "protocol 99", id="another version"),
        pytest.param(
            "print('hello'); sys.stdout.flush(); time.sleep(60)", "violated the protocol", id="not the protocol"
        ),
        pytest.param("sys.exit(3)", "exited with code 3", id="ends at once"),
        pytest.param(
            "say(type='error', id=None, kind='unavailable', message='no CUDA here'); time.sleep(60)",
            "no CUDA here",
            id="says why not",
        ),
        pytest.param(
            "say(type='error', id=None, kind='unavailable', message='no CUDA here'); sys.exit(3)",
            "no CUDA here",
            id="says why not and ends",
        ),
    ],
)
async def test_a_child_that_cannot_start_is_explained(tmp_path: Path, body: str, sentence: str) -> None:
    engine = scripted(tmp_path, body)
    with pytest.raises(EngineUnavailable, match=sentence):
        await engine.start()
    assert engine.pid is None


async def test_a_program_that_is_not_there_is_named_and_leaves_nothing_open() -> None:
    before = psutil.Process().num_fds()
    engine = ChildEngine("x", None, {}, launch=Launch(("/no/such/program",)))
    with pytest.raises(EngineUnavailable, match=r"cannot start /no/such/program"):
        await engine.start()
    await asyncio.sleep(0)
    assert psutil.Process().num_fds() == before


async def test_however_lines_are_cut_and_mixed_each_is_heard(tmp_path: Path) -> None:
    # In one write: half a line that the next write ends, and answers between other messages.
    engine = scripted(
        tmp_path,
        """
        for got in requests():
            one = dict(type="chunk", id=got["id"], tokens=1)
            lines = [dict(one, text="a"), dict(type="stats", device_memory_bytes=7), dict(one, text="é"),
                     dict(one, text=""), dict(one, text="b", logprobs=[dict(token="b", logprob=-0.5)], news=1),
                     dict(type="done", id=got["id"], finish_reason="stop")]
            data = "".join(json.dumps(line, ensure_ascii=False) + "\\n" for line in lines).encode()
            cut = int(got["max_tokens"])
            sys.stdout.buffer.write(data[:cut]); sys.stdout.buffer.flush()
            time.sleep(0.002)
            sys.stdout.buffer.write(data[cut:]); sys.stdout.buffer.flush()
        """,
    )
    await engine.start()
    for cut in range(1, 330, 3):
        stream = engine.generate(request(cut))
        chunks = [chunk async for ready in stream for chunk in ready]
        assert [chunk.text for chunk in chunks] == ["a", "é", "", "b"]
        assert chunks[3].logprobs == (TokenLogprob("b", -0.5),)
        assert stream.finish_reason == "stop"
        assert (await engine.stats()).device_memory_bytes == 7
    await engine.stop()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_the_last_words_of_a_process_are_heard(tmp_path: Path, run: Runner) -> None:
    async def main() -> None:
        engine = scripted(
            tmp_path,
            """
            for got in requests():
                lines = [json.dumps(dict(type="chunk", id=got["id"], text="x" * 100, tokens=1))] * got["max_tokens"]
                lines.append(json.dumps(dict(type="done", id=got["id"], finish_reason="length")))
                print("\\n".join(lines), flush=True)
                sys.exit(1)
            """,
        )
        await engine.start()
        answered = asyncio.create_task(answer(engine, 5000))
        await asyncio.sleep(0)
        time.sleep(0.5)  # noqa: ASYNC251  # until its words and its end are there together
        assert await answered == 5000
        await engine.stop()

    run(main())


@pytest.mark.parametrize("line", ["b'[' * 100_000 + b'\\n'", 'b\'{"type":"ready","version":1,"info":null}\\n\''])
async def test_a_line_that_is_no_message_ends_the_child_and_says_why(tmp_path: Path, line: str) -> None:
    engine = scripted(
        tmp_path,
        f"""
        import signal
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        for got in requests():
            sys.stdout.buffer.write({line}); sys.stdout.buffer.flush()
        """,
    )
    await engine.start()
    with pytest.raises(EngineCrashed, match="violated the protocol"):
        await answer(engine)
    await engine.stop()


async def test_a_line_without_an_end_takes_linear_time(tmp_path: Path) -> None:
    engine = scripted(
        tmp_path,
        """
        for got in requests():
            while True: sys.stdout.buffer.write(b"x" * 1_000_000)
        """,
    )
    await engine.start()
    began = time.process_time()
    with pytest.raises(EngineCrashed, match="violated the protocol"):
        await answer(engine)
    assert time.process_time() - began < 1, "64 MB are read in pieces of 64 kB"
    await engine.stop()
