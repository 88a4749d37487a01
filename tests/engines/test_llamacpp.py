"""llama.cpp against a stand-in for its program; with the program itself by `make test-installed`."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.contract.base import GenerateRequest, Model
from engines.contract.errors import EngineError, EngineUnavailable, FatalError
from engines.llamacpp.engine import LlamaCppEngine, LlamaCppOptions, _gpu_of
from engines.process.engine_loading import load_engine
from engines.process.supervisor import ChildEngine
from tests.conftest import BackgroundLoop
from tests.support.engines.lmrs_model import write_program
from tests.support.servers.served import until

STAND_IN = Path(__file__).parents[1] / "support" / "engines" / "llama_server_stand_in.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A file that the stand-in takes for a GGUF file."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text('{"max_position_embeddings": 8192}')
    (folder / "m.gguf").write_bytes(b"GGUF")
    return Model("m", folder, folder / "m.gguf")


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What the stand-in noted: its command line, then a line for each request that was left."""
    folder = tmp_path_factory.mktemp("llama")
    script = f"import runpy; runpy.run_path({str(STAND_IN)!r}, run_name='__main__')"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINEBENCH_LLAMACPP", str(write_program(folder / "llama-server", script)))
        patch.setenv("STAND_IN_NOTES", str(folder / "notes"))
        yield folder / "notes"


@pytest.fixture(scope="module")
def engine(model: Model, notes: Path, background: BackgroundLoop) -> Iterator[ChildEngine]:
    engine = load_engine("llamacpp", model, {"concurrency": "3", "threads": "2", "device": "cpu"})
    background.run(engine.start())
    yield engine
    background.run(engine.stop())


async def answer(engine: ChildEngine, request: GenerateRequest) -> tuple[str, int, str | None]:
    stream = engine.generate(request)
    chunks = [chunk async for ready in stream for chunk in ready]
    return "".join(chunk.text for chunk in chunks), sum(chunk.tokens for chunk in chunks), stream.finish_reason


def test_its_own_server_is_the_program_with_the_same_limits(model: Model, notes: Path) -> None:
    launch = LlamaCppEngine(model, LlamaCppOptions(device="cpu")).own_server("127.0.0.1", 8123)
    assert launch.command is not None
    given = dict(itertools.pairwise(launch.command))
    assert (given["--port"], given["--alias"]) == ("8123", model.name)
    assert "--no-cache-prompt" in launch.command


def test_the_program_gets_its_slots_context_and_threads(engine: ChildEngine, notes: Path, model: Model) -> None:
    words = json.loads(notes.read_text().splitlines()[0])
    given = dict(itertools.pairwise(words))
    assert given["--model"] == str(model.gguf)
    assert (given["--parallel"], given["--ctx-size"]) == ("3", str(3 * 4096))
    assert (given["--threads"], given["--n-gpu-layers"]) == ("2", "0")
    info = engine.info
    assert info is not None
    assert (info.version, info.dtype, info.max_concurrency, info.context_length) == ("4711", "gguf", 3, 4096)


def test_tokens_are_counted_by_the_programs_own_count(engine: ChildEngine, background: BackgroundLoop) -> None:
    assert background.run(answer(engine, GenerateRequest("", (1, 2), 4))) == (" once upon a time", 4, "length")


def test_a_stop_string_is_the_programs_work(engine: ChildEngine, background: BackgroundLoop) -> None:
    request = GenerateRequest("", (1, 2), 40, stop=("there",))
    assert background.run(answer(engine, request)) == (" once upon a time ", 5, "stop")


def test_a_cancel_closes_the_connection(engine: ChildEngine, background: BackgroundLoop, notes: Path) -> None:
    async def leave() -> str | None:
        stream = engine.generate(GenerateRequest("", (1,), 4000))
        await anext(stream)
        stream.cancel()
        await stream.stopped()
        return stream.finish_reason

    assert background.run(leave()) == "cancelled"
    until(lambda: "left" in notes.read_text(), "the program notices")


def test_a_refusal_is_passed_on(engine: ChildEngine, background: BackgroundLoop) -> None:
    with pytest.raises(EngineError, match="token 14 is refused"):
        background.run(answer(engine, GenerateRequest("", (14,), 4)))


def test_a_program_that_ends_is_replaced(engine: ChildEngine, background: BackgroundLoop) -> None:
    with pytest.raises(FatalError):
        background.run(answer(engine, GenerateRequest("", (13,), 40)))
    until(lambda: engine.restarts == 1 and engine.state == "ready", "it is started again", seconds=60)
    assert background.run(answer(engine, GenerateRequest("", (1,), 2)))[1] == 2


async def test_a_file_that_it_cannot_load_gets_a_sentence(notes: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 8192}')
    (tmp_path / "m.gguf").write_bytes(b"nonsense")
    with pytest.raises(EngineUnavailable, match="llama-server ended with code 1 while loading"):
        await load_engine("llamacpp", Model("m", tmp_path, tmp_path / "m.gguf"), {}).start()


CUDA = "\n  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80500 MiB free)\n  BLAS: OpenBLAS (0 MiB, 0 MiB free)"


METAL = "\n  MTL0: Apple M4 Max (98304 MiB, 98303 MiB free)"


@pytest.mark.parametrize(
    ("listed", "device"),
    [("", "cpu"), ("\n  BLAS: OpenBLAS (0 MiB, 0 MiB free)", "cpu"), (CUDA, "cuda"), (METAL, "metal")],
)
def test_the_program_is_asked_for_its_gpu(
    listed: str, device: str, notes: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_DEVICES", listed)
    _gpu_of.cache_clear()
    engine = LlamaCppEngine(model, LlamaCppOptions())
    assert engine.device_of(engine.options) == device
    assert engine.device_of(LlamaCppOptions(device="cpu")) == "cpu"
    command = engine.own_server("127.0.0.1", 8123).command
    assert command is not None
    given = dict(itertools.pairwise(command))
    on_one_gpu = ("999", "none")
    assert (given["--n-gpu-layers"], given.get("--split-mode")) == (("0", None) if device == "cpu" else on_one_gpu)
    if device == "cpu":
        with pytest.raises(EngineUnavailable, match="lists no GPU"):
            asyncio.run(LlamaCppEngine(model, LlamaCppOptions(device="gpu")).load())
    _gpu_of.cache_clear()


@pytest.mark.alone  # a hundred and twenty answers at once, from a program that must go on answering whether it is well
async def test_a_client_is_not_the_limit_of_its_slots(model: Model, notes: Path) -> None:
    """httpx opens 100 connections by default: more requests would wait, unseen, in front of the program."""
    engine = load_engine("llamacpp", model, {"concurrency": "120", "device": "cpu"})
    await engine.start()
    try:
        streams = [engine.generate(GenerateRequest("", (1,), 4000)) for _ in range(120)]
        firsts = await asyncio.gather(*(asyncio.wait_for(anext(stream), 60) for stream in streams))
        assert len(firsts) == 120
    finally:
        await engine.stop()


def test_without_the_program_it_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINEBENCH_LLAMACPP", "/no/such/program")
    reason = LlamaCppEngine.why_not_here()
    assert reason is not None
    assert reason.endswith("or run: enginebench engines install llamacpp")


@pytest.mark.parametrize("seed", [-1, 2**32 - 1, -(2**63)])
def test_no_seed_means_a_random_one(model: Model, seed: int) -> None:
    engine = LlamaCppEngine(model, LlamaCppOptions())
    engine._context_length = 4096
    sent = engine.body(GenerateRequest("p", (1,), 5, temperature=1.0, seed=seed))["seed"]
    assert 0 <= sent < 2**32 - 1
