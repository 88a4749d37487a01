"""Every engine that this machine can run on its GPU, in 32-bit floats: the tokens of Transformers on the CPU.

make test-gpu
"""

from __future__ import annotations

import shutil
import subprocess

import pytest

from engines.contract.registry import engine_class
from engines.machine.devices import visible_gpus
from engines.machine.memory import gpu_memory
from engines.process.engine_loading import load_engine
from engines.rust.programs import PROGRAMS, find
from tests.support.engines.small_model import small_model
from tests.support.engines.ten_questions import answers_of, assert_those_of_transformers, recorded_questions

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
TF32 = 0.02  # Burn's 32-bit products take tensor cores, which round to 10 bits: 0.006 on an H200
SMALL = {"batches": "1,4", "lengths": "1024", "prompts": "1"}  # each shape takes a second, or several to compile


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("transformers", {}, id="transformers"),
        # flash and cudnn take no 32-bit floats, in which tokens can be compared.
        *(
            pytest.param("transformers", {"attention": kernel}, id=f"transformers, {kernel} attention")
            for kernel in ("eager", "math", "efficient")
        ),
        # By itself Transformers takes nearly all of a GPU, most of it for masks where there is no flash attention.
        pytest.param("transformers-batching", {"kv_tokens": "8192"}, id="transformers-batching"),
        pytest.param("pytorch-baseline", {}, id="pytorch-baseline"),
        pytest.param("torch-jit", SMALL, id="torch-jit"),
        pytest.param("torch-compile", SMALL | {"batches": "4"}, id="torch-compile"),
        pytest.param("cuda-graph", SMALL, id="cuda-graph"),
        pytest.param("cuda-graph", SMALL | {"device": "cuda:1"}, id="cuda-graph, on the second GPU"),
        pytest.param("compile-cuda-graph", SMALL | {"batches": "4"}, id="compile-cuda-graph"),
        pytest.param("candle", {}, id="candle, one at a time"),
        pytest.param("candle", {"concurrency": "16"}, id="candle, in a batch"),
        pytest.param("candle", {"dtype": "q8_0", "concurrency": "4"}, id="candle, quantised"),
        pytest.param("burn", {"concurrency": "16"}, id="burn"),
    ],
)
async def test_the_tokens_are_those_of_transformers_on_a_cpu(
    name: str, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name in PROGRAMS:
        monkeypatch.setenv("ENGINEBENCH_RUST_PROFILE", "release")
        program = find(name)
        if program is None or DEVICE not in program.parent.name.split("+"):
            pytest.skip(f"{name} is not built for a GPU: make engines FEATURES=cuda")
    elif (reason := engine_class(name).why_not_here()) is not None:
        pytest.skip(reason)
    if options.get("device") == "cuda:1" and len(visible_gpus()) < 2:
        pytest.skip("there is one GPU")
    exact = {} if name == "pytorch-baseline" else {"dtype": "float32"}
    questions = recorded_questions()
    engine = load_engine(name, small_model(), {"device": DEVICE} | exact | options)
    info = await engine.start()
    try:
        answers, stats = await answers_of(engine, info, questions), await engine.stats()
    finally:
        await engine.stop()
    if "dtype" in options:
        assert all(answers.alone), "rounded weights have answers of their own"
    else:
        assert_those_of_transformers(answers, info, questions, TF32 if name == "burn" else 1e-4)
    assert info.device.startswith(DEVICE)
    assert stats.device_memory_peak_bytes is not None
    assert stats.device_memory_peak_bytes >= 1_000_000


def test_memory_is_what_nvidia_smi_says() -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("there is no nvidia-smi here")
    names = visible_gpus()
    words = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits", f"--id={','.join(names)}"]
    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    totals = [gpu.total / 2**20 for gpu in gpu_memory(names)]
    assert totals == pytest.approx([float(text) for text in printed], rel=0.02)
