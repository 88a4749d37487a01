"""The worker that runs engines written in Python."""

import asyncio
import subprocess
import sys
from pathlib import Path

from engines.contract.base import Launch
from engines.contract.protocol import AskStats, Load, Stats, decode_to_parent, encode
from engines.process.child import ChildEngine
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
