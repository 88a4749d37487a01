"""The worker that runs engines written in Python."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from engines.contract.base import Launch
from engines.contract.errors import BadRequest, EngineError, FatalError
from engines.contract.protocol import AskStats, Load, Stats, decode_to_parent, encode
from engines.process.supervisor import ChildEngine
from engines.process.worker import _failed
from tests.support.engines.children import QUICK, answer

ROOT = Path(__file__).parents[3]


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


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with `TORCH`"), "fatal"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`"), "fatal"),
        (EngineError('mistral.rs failed: DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal access")'), "fatal"),
        (RuntimeError("HIP error: unspecified launch failure"), "fatal"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB"), "internal"),
        (RuntimeError("CUDA error: out of memory"), "internal"),
        (EngineError("mistral.rs failed: DriverError(CUDA_ERROR_OUT_OF_MEMORY)"), "internal"),
        (RuntimeError("shapes differ"), "internal"),
        (BadRequest("the prompt is empty."), "bad_request"),
    ],
)
def test_an_error_that_stays_with_a_gpus_process_ends_it(error: Exception, kind: str) -> None:
    assert _failed(1, error).kind == kind


def test_clients_do_not_see_where_a_library_looked() -> None:
    error = FatalError("torch-compile failed: [Errno 2] No such file or directory: '/root/.cache/enginebench/a/x.so'")
    assert _failed(1, error).message.endswith("No such file or directory: 'x.so'")
    assert _failed(None, error).message == str(error), "the user who loads it does"
    quoted = BadRequest("there is no token `/usr/share/dict`; see http://127.0.0.1:8000/v1/models.")
    assert _failed(1, quoted).message == str(quoted)


def test_memory_that_ran_out_is_said_while_loading_and_afterwards() -> None:
    error = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB\nSee /home/someone")
    expected = "the GPU's memory ran out: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB"
    assert [_failed(id, error).message for id in (None, 1)] == [expected, expected]


def test_the_cause_of_an_error_counts() -> None:
    error = EngineError("the step failed.")
    error.__cause__ = RuntimeError("CUDA error: unspecified launch failure")
    assert _failed(1, error).kind == "fatal"


@pytest.mark.parametrize("where", ["load", "generate"])
def test_a_panic_of_a_library_in_rust_is_reported(where: str, tmp_path: Path) -> None:
    """PyO3's `PanicException` is a `BaseException`: it must not leave a parent that waits for ever."""
    (tmp_path / "panicking.py").write_text(
        "from engines.fake.engine import FakeEngine\n"
        "class Panic(BaseException):\n"
        "    pass\n"
        "class Panicking(FakeEngine):\n"
        f"    def {where}(self, *request):\n"
        "        raise Panic('called `Option::unwrap()` on a `None` value')\n"
    )
    command = ("env", f"PYTHONPATH={tmp_path}:{ROOT}", sys.executable, "-m", "engines.process.worker")

    async def main() -> None:
        engine = ChildEngine("fake", None, {}, launch=Launch((*command, "panicking:Panicking")), watch=QUICK)
        try:
            await engine.start()
            await answer(engine)
        finally:
            await engine.stop()

    with pytest.raises(EngineError, match=r"the engine failed \(Panic\)"):
        asyncio.run(asyncio.wait_for(main(), 30))


async def test_what_a_library_prints_does_not_break_the_protocol(tmp_path: Path) -> None:
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
    engine = ChildEngine("fake", None, {}, launch=Launch((*command, "engines.fake.engine:FakeEngine")), watch=QUICK)
    await engine.start()
    assert await answer(engine) == 5
    await engine.stop()
