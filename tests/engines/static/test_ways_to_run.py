"""Captured graphs, and what each way to run a step refuses. The tokens of traced and compiled steps: the ten prompts of
tests/engines/contract/test_engine_contract.py.
"""

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enginebench.settings.schema import UserMistake
from engines.contract.errors import EngineUnavailable
from engines.contract.registry import check_options
from engines.pytorch.compiling import compilations_folder, missing_compiler
from engines.static.engine import StaticEngine, StaticOptions
from engines.static.step_shapes import StepShape
from engines.static.ways_to_run import (
    CompileCudaGraphEngine,
    CudaGraphEngine,
    TorchCompileEngine,
    TorchJitEngine,
    captured,
)
from tests.support.engines.static_decoder import (
    BUCKETS,
    ONE_BUCKET,
    Small,
    generated,
    logits_are_those_of_transformers,
    prompt,
)
from tests.support.engines.torch_when_used import torch

pytestmark = pytest.mark.xdist_group("torch")

PROMPTS_TOGETHER = replace(BUCKETS, prompts=(1, 2, 4))
PROMPTS = [prompt(seed, 2 + 5 * seed) for seed in range(10)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    return Small(tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize(("device", "passes"), [("cpu", 1), ("cuda:0", 0)])
def test_on_a_gpu_a_trace_has_no_weights_of_its_own(device: str, passes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`optimize_for_inference` transposes the matrices: a copy of all of them, in every shape."""
    optimised = []

    def optimise(run: Any) -> Any:
        optimised.append(run)
        return run

    monkeypatch.setattr(torch.jit, "trace", lambda step, example, check_trace: step)
    monkeypatch.setattr(torch.jit, "freeze", lambda traced: lambda *inputs: None)
    monkeypatch.setattr(torch.jit, "optimize_for_inference", optimise)
    example: Any = (SimpleNamespace(device=torch.device(device)),)
    step: Any = torch.nn.Identity()
    TorchJitEngine(None, StaticOptions()).prepare(step, StepShape(1, 1, 32), example)
    assert len(optimised) == passes


def test_captured(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.engines import cuda_graph_stand_in

    graphs = cuda_graph_stand_in.install(monkeypatch)
    batch = small.batch(CudaGraphEngine(None, StaticOptions()).prepare, PROMPTS_TOGETHER)
    assert len(graphs) == 10, "at two lengths two batches, and one, two or four prompts"
    assert cuda_graph_stand_in.Stream.made == 1, "cuBLAS keeps a workspace for every stream"
    expected = [small.expected(one) for one in PROMPTS]
    assert [generated(batch, small.sequence(one))[0] for one in PROMPTS] == expected, "one after the other"
    assert generated(batch, *(small.sequence(one) for one in PROMPTS)) == expected
    logits_are_those_of_transformers(batch.decoder, small.reference, PROMPTS, expected)
    for together in (2 * PROMPTS[-1:], 4 * PROMPTS[-1:]):
        expected = [small.expected(one) for one in together]
        assert generated(batch, *(small.sequence(one) for one in together)) == expected
    assert all(graph.replays > 0 for graph in graphs)
    assert all(graph.pool is cuda_graph_stand_in.POOL for graph in graphs), "one pool of memory for all"
    assert all(graph.device == torch.device("cpu") for graph in graphs), "captured on the device of its tensors"


def test_what_a_graph_reads_lives_as_long_as_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiled step has tensors of its own; freed, their memory is somebody else's at the next replay."""
    from tests.support.engines import cuda_graph_stand_in

    class Compiled:
        def __init__(self) -> None:
            self.counted = torch.arange(4)

        def __call__(self, ids: Any, starts: Any, last: Any) -> Any:
            return ids + self.counted

    cuda_graph_stand_in.install(monkeypatch)
    step = Compiled()
    there = weakref.ref(step)
    run = captured(step, tuple(torch.ones(4, dtype=torch.long) for _ in range(3)), None, cuda_graph_stand_in.Stream())
    del step
    gc.collect()
    assert there() is not None
    del run
    gc.collect()
    assert there() is None


def test_a_graph_refuses_another_cache_than_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would read and write the one that it was captured with."""
    from tests.support.engines import cuda_graph_stand_in

    cuda_graph_stand_in.install(monkeypatch)
    example = tuple(torch.ones(4, dtype=torch.long) for _ in range(4))
    run = captured(lambda ids, starts, last, keys: ids + keys, example, None, cuda_graph_stand_in.Stream())
    assert run(*example).tolist() == [2, 2, 2, 2]
    with pytest.raises(AssertionError):
        run(*example[:3], torch.ones(4, dtype=torch.long))


@pytest.mark.parametrize("engine", [CudaGraphEngine, CompileCudaGraphEngine])
def test_a_cpu_has_no_cuda_graphs(engine: type[StaticEngine], small: Small) -> None:
    with pytest.raises(EngineUnavailable, match=f"{engine.name} runs on a CUDA device, not on cpu"):
        engine(small.model, engine.Options(device="cpu")).load()


def test_prompts_are_read_by_two_tokens_or_more() -> None:
    """A shape of one token is a decode step, which has no cache beside."""
    with pytest.raises(UserMistake, match="option `chunk` is 2 or more, not 1"):
        check_options("cuda-graph", {"chunk": "1"})


def test_what_inductor_cannot_compile_gets_a_sentence(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*inputs: Any) -> None:
        raise RuntimeError("cc1plus: out of memory\nand a hundred lines more")

    monkeypatch.setattr("torch.compile", lambda *given, **settings: broken)
    prepare = TorchCompileEngine(None, StaticOptions()).prepare
    with pytest.raises(EngineUnavailable, match=r"could not compile a step: cc1plus: out of memory$"):
        small.batch(prepare, ONE_BUCKET)


def test_without_a_compiler_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    reason = missing_compiler()
    assert reason is not None
    assert "Inductor needs a C++ compiler" in reason
    assert TorchCompileEngine.why_not_here() == reason


def test_without_pythons_headers_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert missing_compiler() is None
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    reason = missing_compiler()
    assert reason is not None
    assert f"Inductor needs Python's headers, and there is no {tmp_path}/Python.h; on Debian" in reason


def test_compiled_code_is_kept_by_architecture_and_cuda_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: ((9, 0), (8, 6))[device.index])
    monkeypatch.setattr("torch.__version__", "2.11.0+cu130")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    names = [compilations_folder(torch.device(device)).name for device in ("cuda:0", "cuda:1", "cpu")]
    assert names[:2] == ["torch-2.11.0-cuda13.0-sm90", "torch-2.11.0-cuda13.0-sm86"]
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert compilations_folder(torch.device("cuda:0")).name == "torch-2.11.0-cuda12.8-sm90"
    assert len({*names, "torch-2.11.0-cuda12.8-sm90"}) == 4
