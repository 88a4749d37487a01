"""lm.rs behind its shim: against a stand-in that speaks its websocket; with `make test-lmrs` against the real one."""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engines.contract.base import BadRequest, EngineCrashed, EngineUnavailable, GenerateRequest, Model
from engines.contract.registry import load_engine
from engines.lmrs.engine import LmrsEngine, LmrsOptions
from engines.process.child import ChildEngine
from engines.process.pipes import HeardChunk
from tests.conftest import BackgroundLoop
from tests.support.lmrs_model import STAND_IN, rendered, write_program, write_stand_in, write_tiny_llama


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny-llama"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_stand_in(tmp_path_factory.mktemp("lmrs"))


@pytest.fixture(scope="module")
def engine(tiny: Model, program: Path, background: BackgroundLoop) -> Iterator[ChildEngine]:
    engine = load_engine("lmrs", tiny, {"program": str(program), "dtype": "q8_0"})
    background.run(engine.start())
    yield engine
    background.run(engine.stop())


def ask(
    engine: ChildEngine, background: BackgroundLoop, prompt: str, **settings: Any
) -> tuple[list[HeardChunk], str | None]:
    async def answer() -> tuple[list[HeardChunk], str | None]:
        stream = engine.generate(GenerateRequest(prompt, (1, 2, 3), **({"max_tokens": 8} | settings)))
        return [chunk async for ready in stream for chunk in ready], stream.finish_reason

    return background.run(answer())


def test_it_says_what_it_cannot_do(engine: ChildEngine) -> None:
    info = engine.info
    assert info is not None
    assert (info.version, info.dtype, info.max_concurrency, info.batching) == ("1.0", "q8_0", 1, "none")
    assert (info.context_length, info.features) == (8192, ("stop",))
    assert "template of its own" in info.options["prompt"]


def test_an_answer_ends_where_lmrs_ends_it(engine: ChildEngine, background: BackgroundLoop) -> None:
    chunks, finish = ask(engine, background, "say 3")
    assert ("".join(chunk.text for chunk in chunks), sum(chunk.tokens for chunk in chunks)) == (" say say say", 4), (
        "the end of text is the fourth"
    )
    assert finish == "stop"


def test_an_answer_ends_at_its_limit_though_lmrs_goes_on(engine: ChildEngine, background: BackgroundLoop) -> None:
    chunks, finish = ask(engine, background, "one two", max_tokens=5)
    assert ("".join(chunk.text for chunk in chunks), finish) == (" one two one two one", "length")


def test_a_stop_string_across_tokens_ends_the_answer(engine: ChildEngine, background: BackgroundLoop) -> None:
    chunks, finish = ask(engine, background, "one two three", stop=("two th",))
    assert ("".join(chunk.text for chunk in chunks), finish) == (" one ", "stop")


def test_the_message_is_taken_out_of_the_servers_template(engine: ChildEngine, background: BackgroundLoop) -> None:
    chunks, _ = ask(engine, background, rendered("say 2", "12 May 2026"))
    assert "".join(chunk.text for chunk in chunks) == " say say"


def test_each_request_starts_a_conversation_of_its_own(engine: ChildEngine, background: BackgroundLoop) -> None:
    pids = set()
    for _ in range(3):
        ask(engine, background, "say 1")
        assert engine.pid is not None
        pids |= {child.pid for child in psutil.Process(engine.pid).children()}
    assert len(pids) >= 3
    assert len(psutil.Process(engine.pid).children()) <= 1, "only the one that is ready for the next request"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        pytest.param({"seed": 1}, "no seed", id="a seed"),
        pytest.param({"logprobs": 2}, "neither logprobs", id="log-probabilities"),
        pytest.param({"ignore_eos": True}, "nor ignore_eos", id="going on after the end of text"),
        pytest.param({"prompt": "  "}, "one user message", id="an empty prompt"),
        pytest.param({"prompt": "<|start_header_id|>user"}, "one user message", id="half a template"),
        pytest.param({"prompt": "the " * 9000}, "whole context", id="a prompt longer than its context"),
    ],
)
def test_what_it_cannot_do_is_refused(
    settings: dict[str, object], reason: str, engine: ChildEngine, background: BackgroundLoop
) -> None:
    prompt = str(settings.pop("prompt", "say 1"))
    with pytest.raises(BadRequest, match=reason):
        ask(engine, background, prompt, **settings)


def test_a_prompt_that_lmrs_reads_otherwise_can_be_refused(
    tiny: Model, program: Path, background: BackgroundLoop
) -> None:
    engine = load_engine("lmrs", tiny, {"program": str(program), "same_tokens": "yes"})
    background.run(engine.start())
    try:
        with pytest.raises(BadRequest, match="not as the server's 3, and same_tokens is set"):
            ask(engine, background, "say 1")
    finally:
        background.run(engine.stop())


@pytest.mark.parametrize("prompt", ["panic 3", "die 3"])
def test_a_crash_is_told_and_the_next_request_is_served(
    prompt: str, engine: ChildEngine, background: BackgroundLoop
) -> None:
    with pytest.raises(EngineCrashed, match="in the middle of its answer"):
        ask(engine, background, prompt)
    assert ask(engine, background, "say 1")[1] == "stop"


def test_a_cancelled_request_ends_its_process(engine: ChildEngine, background: BackgroundLoop) -> None:
    async def leave_early() -> tuple[str | None, int]:
        stream = engine.generate(GenerateRequest("one two", (1,), 5000))
        await anext(stream)
        assert engine.pid is not None
        (busy,) = psutil.Process(engine.pid).children()
        stream.cancel()
        await stream.stopped()
        assert not busy.is_running()
        return stream.finish_reason, busy.pid

    assert background.run(leave_early())[0] == "cancelled"


def test_no_backend_outlives_a_killed_worker(tiny: Model, program: Path, background: BackgroundLoop) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux ties a child's life to its parent's")
    engine = load_engine("lmrs", tiny, {"program": str(program)})
    background.run(engine.start())
    ask(engine, background, "say 1")
    assert engine.pid is not None
    children = wait_for(lambda: psutil.Process(engine.pid).children())
    psutil.Process(engine.pid).kill()
    assert not psutil.wait_procs(children, timeout=10)[1]
    background.run(engine.stop())


def wait_for(look: Callable[[], list[psutil.Process]], timeout: float = 10.0) -> list[psutil.Process]:
    deadline = time.monotonic() + timeout
    while not (found := look()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def test_its_absence_is_a_sentence_with_the_way_out(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ENGINEBENCH_LMRS", raising=False)
    with pytest.raises(EngineUnavailable, match=r"samuel-vitorino/lm\.rs says, then name it in ENGINEBENCH_LMRS"):
        load_engine("lmrs", tiny)


def test_it_is_found_in_the_environment_and_on_the_path(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("ENGINEBENCH_LMRS", str(program))
    assert LmrsEngine.why_not_here() is None
    monkeypatch.delenv("ENGINEBENCH_LMRS")
    assert LmrsEngine.why_not_here() is not None
    monkeypatch.setenv("PATH", str(program.parent))
    assert LmrsEngine.why_not_here() is None


def test_another_program_of_that_name_is_told_apart(tiny: Model, tmp_path: Path) -> None:
    other = write_program(tmp_path / "backend", "print('backend 7')")
    with pytest.raises(EngineUnavailable, match=r"is not lm\.rs's"):
        LmrsEngine(tiny, LmrsOptions(program=str(other))).load()


def test_a_file_that_lmrs_cannot_load_is_told_at_once(program: Path, tmp_path: Path) -> None:
    (tmp_path / "model.lmrs").write_bytes(b"nonsense" * 64)
    with pytest.raises(EngineUnavailable, match=r"no \.lmrs file of version 4"):
        LmrsEngine(None, LmrsOptions(program=str(program), file=str(tmp_path / "model.lmrs"))).load()


def real_program() -> str:
    named = os.environ.get("ENGINEBENCH_LMRS")
    if named is None or Path(named).resolve() == STAND_IN:
        pytest.skip("name lm.rs's `backend` in ENGINEBENCH_LMRS")
    return named


@pytest.mark.lmrs
@pytest.mark.parametrize(
    "message",
    [
        pytest.param("Once upon a time there was a village near the sea", id="a sentence"),
        pytest.param("def f(x):\n    return x ** 2\n\n\nprint(f(12345678))", id="code"),
        pytest.param("  It's raining,\tthey said. ", id="spaces around and inside"),
    ],
)
def test_the_real_one_answers_as_transformers_does(tiny: Model, message: str) -> None:
    """Greedy, 32-bit: proves the file's tensors, and that lm.rs reads the very ids that are predicted."""
    import datetime

    import torch
    from transformers import AutoModelForCausalLM

    engine = LmrsEngine(tiny, LmrsOptions(program=real_program(), dtype="f32"))
    engine.load()

    async def answer() -> list[str]:
        request = GenerateRequest(message, (1,), 24)
        texts = [chunk.text async for chunk in engine.generate(request)]
        engine.close()
        return texts

    ids = engine._tokenizer.prompt_ids(message.strip(), "llama", datetime.date.today())
    assert ids is not None
    net = AutoModelForCausalLM.from_pretrained(tiny.folder, dtype=torch.float32)
    produced = net.generate(torch.tensor([ids]), max_new_tokens=24, do_sample=False, pad_token_id=0)[0, len(ids) :]
    assert asyncio.run(answer()) == [engine._tokenizer.texts[id] for id in produced.tolist()]


@pytest.mark.lmrs
@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q4_0"])
def test_the_real_one_loads_every_kind_of_file(dtype: str, tiny: Model, background: BackgroundLoop) -> None:
    engine = load_engine("lmrs", tiny, {"program": real_program(), "dtype": dtype})
    background.run(engine.start())
    chunks, finish = ask(engine, background, "Tell me of the sea", max_tokens=16)
    background.run(engine.stop())
    assert (sum(chunk.tokens for chunk in chunks), finish) == (16, "length")
