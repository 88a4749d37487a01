"""lm.rs against a stand-in that speaks its websocket; with `make test-lmrs` against the real program."""

import datetime
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engines.contract.base import GenerateRequest, Model
from engines.contract.errors import BadRequest, EngineCrashed, EngineUnavailable
from engines.lmrs.alphabet import AFTER_MESSAGE, BEFORE_MESSAGE, Alphabet
from engines.lmrs.engine import LmrsEngine, LmrsOptions
from engines.models.random_model import BEFORE_DATE
from engines.process.engine_loading import load_engine
from engines.process.stream import ReceivedChunk
from engines.process.supervisor import ChildEngine
from engines.text.detokenize import tokenizer_of
from tests.conftest import BackgroundLoop
from tests.support.engines.lmrs_model import STAND_IN, VOCABULARY, write_program, write_stand_in


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    program = write_stand_in(tmp_path_factory.mktemp("lmrs"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINEBENCH_LMRS", str(program))
        yield program


@pytest.fixture(scope="module")
def engine(tiny: Model, stand_in: Path, background: BackgroundLoop) -> Iterator[ChildEngine]:
    engine = load_engine("lmrs", tiny, {"dtype": "q8_0"})
    background.run(engine.start())
    yield engine
    background.run(engine.stop())


def chat(*message: int) -> tuple[int, ...]:
    """The ids of a user's message in Llama 3.2's chat template, as the server renders it today."""
    return (*BEFORE_DATE, *TODAY, *BEFORE_MESSAGE, *message, *AFTER_MESSAGE)


TODAY: tuple[int, ...] = ()


@pytest.fixture(scope="module", autouse=True)
def alphabet(tiny: Model) -> Alphabet:
    global TODAY

    found = Alphabet.for_day(tokenizer_of(tiny.folder), VOCABULARY, datetime.datetime.now().date())
    TODAY = found.date
    return found


def ask(
    engine: ChildEngine, background: BackgroundLoop, ids: tuple[int, ...], **settings: Any
) -> tuple[list[ReceivedChunk], str | None]:
    async def answer() -> tuple[list[ReceivedChunk], str | None]:
        stream = engine.generate(GenerateRequest("", ids, **({"max_tokens": 8} | settings)))
        return [chunk async for ready in stream for chunk in ready], stream.finish_reason

    return background.run(answer())


def test_its_temporary_files_go_with_it(
    tiny: Model, stand_in: Path, background: BackgroundLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    engine = load_engine("lmrs", tiny, {"dtype": "q8_0"})
    background.run(engine.start())
    (folder,) = tmp_path.iterdir()
    assert len(list(folder.iterdir())) == 2, "two lists of tokens: with an end of text and without"
    ask(engine, background, chat(30, 31))
    background.run(engine.stop())
    assert list(tmp_path.iterdir()) == []


# The stand-in repeats the message's tokens. Those from 1000 to 1009 end its answer after so many of them.


def test_an_answer_ends_at_the_end_of_text(engine: ChildEngine, background: BackgroundLoop) -> None:
    chunks, finish = ask(engine, background, chat(1003, 400))
    assert ("".join(chunk.text for chunk in chunks), sum(chunk.tokens for chunk in chunks)) == (" <1003>" * 3, 4), (
        "the end of text is the fourth"
    )
    assert finish == "stop"


def test_the_end_of_text_can_be_ignored(engine: ChildEngine, background: BackgroundLoop) -> None:
    chunks, finish = ask(engine, background, chat(1003, 400), ignore_eos=True, max_tokens=7)
    assert (sum(chunk.tokens for chunk in chunks), finish) == (7, "length")


def test_each_request_has_a_conversation_of_its_own(engine: ChildEngine, background: BackgroundLoop) -> None:
    pids = set()
    for _ in range(3):
        ask(engine, background, chat(1001))
        pids |= {child.pid for child in psutil.Process(engine.pid).children()}
    assert len(pids) >= 3
    assert len(psutil.Process(engine.pid).children()) <= 1, "only the one that is ready for the next request"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        pytest.param({"seed": 1, "temperature": 0.7}, "leave `seed` out", id="a seed with sampling"),
        pytest.param({"logprobs": 2}, "neither logprobs", id="log-probabilities"),
        pytest.param({"min_tokens": 2}, "nor min_tokens", id="a minimum of tokens"),
        pytest.param({"ids": (400, 500)}, "set same_tokens=no", id="a prompt without the chat template"),
        pytest.param({"ids": tuple(range(300, 9300))}, "takes 1 to 8191", id="a prompt longer than its context"),
    ],
)
def test_what_it_cannot_do_is_refused(
    settings: dict[str, Any], reason: str, engine: ChildEngine, background: BackgroundLoop
) -> None:
    ids = settings.pop("ids", chat(1001))
    with pytest.raises(BadRequest, match=reason):
        ask(engine, background, ids, **settings)


def test_a_seed_with_greedy_decoding_is_accepted(engine: ChildEngine, background: BackgroundLoop) -> None:
    assert ask(engine, background, chat(1001), seed=3)[1] == "stop"


@pytest.mark.parametrize("token", [pytest.param(2003, id="it panics"), pytest.param(3003, id="it ends")])
def test_a_crash_is_reported_and_the_next_request_is_served(
    token: int, engine: ChildEngine, background: BackgroundLoop
) -> None:
    with pytest.raises(EngineCrashed, match="in the middle of its answer"):
        ask(engine, background, chat(token))
    assert ask(engine, background, chat(1001))[1] == "stop"


def test_a_cancelled_request_ends_its_process(engine: ChildEngine, background: BackgroundLoop) -> None:
    async def leave_early() -> str | None:
        stream = engine.generate(GenerateRequest("", chat(400), 5000))
        await anext(stream)
        (busy,) = psutil.Process(engine.pid).children()
        stream.cancel()
        await stream.stopped()
        assert not busy.is_running()
        return stream.finish_reason

    assert background.run(leave_early()) == "cancelled"


def test_its_absence_is_a_sentence_with_the_way_out(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ENGINEBENCH_LMRS", raising=False)
    with pytest.raises(EngineUnavailable, match=r"samuel-vitorino/lm\.rs says, then put it on PATH or name it"):
        load_engine("lmrs", tiny)


def test_another_program_of_that_name_is_told_apart(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGINEBENCH_LMRS", str(write_program(tmp_path / "backend", "print('backend 7')")))
    with pytest.raises(EngineUnavailable, match=r"is not lm\.rs's"):
        LmrsEngine(tiny, LmrsOptions()).load()


def real_program() -> str:
    named = os.environ.get("ENGINEBENCH_LMRS")
    if named is None or STAND_IN.name in Path(named).read_text(errors="ignore"):
        pytest.skip("name lm.rs's `backend` in ENGINEBENCH_LMRS")
    return named


@pytest.mark.lmrs
@pytest.mark.parametrize("dtype", ["float32", "q8_0", "q4_0"])
def test_the_real_one_loads_every_kind_of_file(dtype: str, tiny: Model, background: BackgroundLoop) -> None:
    real_program()
    engine = load_engine("lmrs", tiny, {"dtype": dtype})
    background.run(engine.start())
    chunks, finish = ask(engine, background, chat(300, 301), max_tokens=16)
    background.run(engine.stop())
    assert (sum(chunk.tokens for chunk in chunks), finish) == (16, "length")
