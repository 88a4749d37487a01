"""An engine's child process: crashes, hangs, noise and broken lines do not take the parent down."""

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from engines.contract.base import EngineCrashed, EngineError, EngineUnavailable, GenerateRequest, Launch, TokenLogprob
from engines.contract.protocol import AskStats, Load, Stats, decode_to_parent, encode
from engines.contract.registry import load_engine
from engines.process.child import ChildEngine
from engines.process.watch import Watch

ROOT = Path(__file__).parents[3]

Runner = Callable[[Coroutine[Any, Any, None]], None]
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


def test_kill_9_fails_what_is_running_and_the_engine_comes_back() -> None:
    async def main() -> None:
        engine = fake(tpot="0.05")
        await engine.start()
        stream = engine.generate(request(1000))
        await anext(stream)
        assert engine.pid is not None
        os.kill(engine.pid, signal.SIGKILL)
        with pytest.raises(EngineCrashed, match="killed by SIGKILL"):
            async for _ in stream:
                pass
        await asyncio.sleep(0.02)
        assert engine.state == "restarting"
        with pytest.raises(EngineUnavailable, match="restarting"):
            engine.generate(request())
        await until_ready(engine)
        assert engine.restarts == 1
        assert await answer(engine) == 5
        await engine.stop()

    asyncio.run(main())


def test_a_process_that_dies_by_itself_is_named_by_its_exit_code() -> None:
    async def main() -> None:
        engine = fake(crash_after="2")
        await engine.start()
        assert await answer(engine) == 5
        with pytest.raises(EngineCrashed, match="exited with code 70"):
            await answer(engine)
        await until_ready(engine)
        await engine.stop()

    asyncio.run(main())


def test_a_hung_engine_is_found_out_and_restarted() -> None:
    async def main() -> None:
        engine = fake(hang_after="1")
        await engine.start()
        with pytest.raises(EngineCrashed, match=r"sent nothing for 1 s"):
            await answer(engine)
        await until_ready(engine)
        assert engine.restarts == 1
        await engine.stop()

    asyncio.run(main())


def test_stopping_while_a_hung_child_is_reaped_ends() -> None:
    """A kill may take effect late, for example while the kernel frees much memory."""

    async def main() -> None:
        engine = fake(hang_after="1")
        await engine.start()
        process, killed = engine._process, asyncio.Event()
        assert process is not None
        kill = process.kill

        def kill_late(because: str) -> None:
            killed.set()
            asyncio.get_running_loop().call_later(0.3, kill, because)

        process.kill = kill_late  # type: ignore[method-assign]
        stream = engine.generate(request())
        async with asyncio.timeout(10):
            await killed.wait()
            await engine.stop()
            with pytest.raises(EngineCrashed):
                await anext(stream)
        assert process.exited.done()
        assert not process.exited.cancelled()

    asyncio.run(main())


def test_a_busy_engine_is_not_taken_for_hung() -> None:
    async def main() -> None:
        engine = fake(ttft="1.5")  # longer than hung_after, but its heart beats
        await engine.start()
        assert await answer(engine) == 5
        assert engine.restarts == 0
        await engine.stop()

    asyncio.run(main())


def test_cancel_before_the_first_token_and_after_the_last() -> None:
    async def main() -> None:
        engine = fake(ttft="30")
        await engine.start()
        at_once = engine.generate(request())
        at_once.cancel()
        waiting = engine.generate(request())
        await asyncio.sleep(0.1)
        waiting.cancel()
        async with asyncio.timeout(2):
            await at_once.stopped()
            await waiting.stopped()
        assert (at_once.finish_reason, waiting.finish_reason) == ("cancelled", "cancelled")
        waiting.cancel()  # too late, and harmless
        await engine.stop()

    asyncio.run(main())


def test_a_failing_request_fails_alone() -> None:
    async def main() -> None:
        engine = fake(fail_rate="1", fail_after="2")
        await engine.start()
        stream = engine.generate(request())
        assert len(await anext(stream)) == 2
        with pytest.raises(EngineError, match="told to fail"):
            await anext(stream)
        assert engine.state == "ready"
        await engine.stop()

    asyncio.run(main())


def test_an_engine_that_cannot_load_says_so() -> None:
    async def main() -> None:
        engine = fake(ttft="-1")
        with pytest.raises(EngineUnavailable, match="option `ttft` is 0 or more, not -1"):
            await engine.start()
        assert engine.state == "failed"

    asyncio.run(main())


def test_an_engine_that_never_finishes_loading_is_given_up() -> None:
    async def main() -> None:
        engine = ChildEngine("fake", None, {"load_time": "600"}, watch=dataclasses.replace(QUICK, load_timeout=1.0))
        with pytest.raises(EngineUnavailable, match=r"not load within 1 s"):
            await engine.start()
        assert (engine.state, engine.pid) == ("failed", None)

    asyncio.run(main())


def test_a_wrong_option_is_refused_before_a_process_starts() -> None:
    with pytest.raises(ValueError, match="option `tpot` is a number, not `fast`"):
        load_engine("fake", options={"tpot": "fast"})


def script(folder: Path, body: str) -> tuple[str, ...]:
    """A child in a few lines, as anyone might write one in any language."""
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


def test_a_child_in_twenty_lines_is_an_engine(tmp_path: Path) -> None:
    async def main() -> None:
        engine = scripted(
            tmp_path,
            """
            for line in sys.stdin:
                got = json.loads(line)
                match got["type"]:
                    case "load": say(type="ready", version=1, info=INFO)
                    case "generate":
                        for _ in range(got["max_tokens"]): say(type="chunk", id=got["id"], text=" hi", tokens=1)
                        say(type="done", id=got["id"], finish_reason="length")
                    case "stats": say(type="stats", device_memory_bytes=1000)
            """,
        )
        info = await engine.start()
        assert (info.name, info.max_concurrency, info.features) == ("tiny", 1, ())
        assert await answer(engine, 9) == 9
        async with asyncio.timeout(5):
            while (await engine.stats()).device_memory_bytes != 1000:
                await asyncio.sleep(0.02)
        await engine.stop()

    asyncio.run(main())


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
def test_a_child_that_cannot_start_is_explained(tmp_path: Path, body: str, sentence: str) -> None:
    async def main() -> None:
        engine = scripted(tmp_path, body)
        with pytest.raises(EngineUnavailable, match=sentence):
            await engine.start()
        assert engine.pid is None

    asyncio.run(main())


def test_a_program_that_is_not_there_is_named_and_leaves_nothing_open() -> None:
    async def main() -> None:
        before = psutil.Process().num_fds()
        engine = ChildEngine("x", None, {}, launch=Launch(("/no/such/program",)))
        with pytest.raises(EngineUnavailable, match=r"cannot start /no/such/program"):
            await engine.start()
        await asyncio.sleep(0)
        assert psutil.Process().num_fds() == before

    asyncio.run(main())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_engine_leaves_nothing_open_however_often_it_starts(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def main() -> None:
        open_before = None
        for _ in range(3):
            engine = fake()
            await engine.start()
            assert await answer(engine) == 5
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            await asyncio.sleep(0.02)
            await until_ready(engine)
            await engine.stop()
            await asyncio.sleep(0.02)
            open_before = open_before or psutil.Process().num_fds()
            assert psutil.Process().num_fds() == open_before

    run(main())


def test_however_lines_are_cut_and_mixed_each_is_heard(tmp_path: Path) -> None:
    # In one write: half a line that the next write ends, and answers between other messages.
    async def main() -> None:
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

    asyncio.run(main())


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


def test_a_child_that_ignores_the_end_of_its_input_is_killed(tmp_path: Path) -> None:
    async def main() -> float:
        engine = scripted(tmp_path, "say(type='ready', version=1, info=INFO)\nwhile True: time.sleep(1)")
        await engine.start()
        pid = engine.pid
        assert pid is not None
        began = time.monotonic()
        await engine.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        return time.monotonic() - began

    assert 0.9 < asyncio.run(main()) < 5


def test_a_worker_that_loads_hears_the_parent_and_the_end_of_its_input() -> None:
    command = [sys.executable, "-m", "engines.process.worker", "engines.fake.engine:FakeEngine"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(encode(Load("fake", None, {"load_time": "600"})) + encode(AskStats()))
        worker.stdin.flush()
        assert isinstance(decode_to_parent(worker.stdout.readline()), Stats)
        worker.stdin.close()
        assert worker.wait(20) == 0


def test_what_a_library_prints_does_not_break_the_protocol(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import builtins, os, sys\n"
        "import engines.fake.engine\n"
        "old = engines.fake.engine.FakeEngine.load\n"
        "def load(self):\n"
        "    print('loading, please wait'); os.write(1, b'straight to the descriptor\\n')\n"
        "    return old(self)\n"
        "engines.fake.engine.FakeEngine.load = load\n"
    )
    command = ("env", f"PYTHONPATH={tmp_path}:{ROOT}", sys.executable, "-m", "engines.process.worker")

    async def main() -> None:
        engine = ChildEngine("fake", None, {}, launch=Launch((*command, "engines.fake.engine:FakeEngine")), watch=QUICK)
        await engine.start()
        assert await answer(engine) == 5
        await engine.stop()

    asyncio.run(main())
