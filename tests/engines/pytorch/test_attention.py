"""Attention kernels: those that a CPU has compute what eager attention does, the others are refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.contract.base import GenerateRequest, Model
from engines.contract.errors import EngineUnavailable
from engines.pytorch.attention import ATTENTIONS, SWITCHES, choose, repeating_heads, tried_out
from engines.static.ways_to_run import TorchJitEngine
from engines.transformers import TransformersEngine, TransformersOptions, _cache_of
from engines.transformers_batching import BatchingOptions, TransformersBatchingEngine
from tests.support.engines.tiny_models import write_tiny
from tests.support.engines.torch_when_used import torch

pytestmark = pytest.mark.xdist_group("torch")
PROMPT = tuple(range(3, 40))
ON_CPU = [name for name, known in ATTENTIONS.items() if "cpu" in known.devices]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny(tmp_path_factory.mktemp("tiny"), "llama")[0]


def switched_on() -> dict[str, bool]:
    return {switch: getattr(torch.backends.cuda, f"{switch}_sdp_enabled")() for switch in SWITCHES}


@pytest.fixture(autouse=True)
def all_kernels() -> Iterator[None]:
    """They are the process's."""
    yield
    for switch in SWITCHES:
        getattr(torch.backends.cuda, f"enable_{switch}_sdp")(True)


def logits(model: Model, attention: Any, device: str = "cpu", dtype: Any = "float32") -> "torch.Tensor":
    """After a prompt, and after one more token with its cache."""
    engine = TransformersEngine(model, TransformersOptions(dtype=dtype, device=device, attention=attention))
    assert engine.load().options["attention"] == attention

    def computed() -> torch.Tensor:
        with torch.inference_mode():
            first = engine._net(torch.tensor([PROMPT], device=engine._device), use_cache=True)
            return torch.cat([*first.logits, engine._forward([7], _cache_of(first))[0][None]])

    return engine._threads.submit(computed).result()


@pytest.mark.gpu
@pytest.mark.parametrize("attention", ["math", "efficient", "flash", "cudnn", "flex"])
def test_on_a_gpu_a_kernel_computes_what_eager_attention_does(attention: str, model: Model) -> None:
    """In 16 bits, which each of them takes; what is refused there is skipped with the reason."""
    try:
        found = logits(model, attention, "cuda", "bfloat16").float()
    except EngineUnavailable as reason:
        pytest.skip(str(reason))
    expected = logits(model, "eager", "cuda", "bfloat16").float()
    assert float((found - expected).abs().max()) < 0.03 * float(expected.abs().max())


@pytest.mark.parametrize(
    "attention",
    [
        *("sdpa", "math", "flash"),
        # Inductor compiles it for each shape, on a CPU for minutes: by `make test-installed`.
        pytest.param("flex", marks=pytest.mark.own_environment),
    ],
)
def test_every_kernel_of_a_cpu_computes_what_eager_does(attention: str, model: Model) -> None:
    eager = logits(model, "eager")
    assert logits(model, attention) == pytest.approx(eager, abs=1e-4 * float(eager.abs().max()))


def test_heads_that_share_keys_are_repeated(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the kernel of a GPU that takes no groups; what it computes is the same."""
    eager = logits(model, "eager")
    asked: list[dict[str, Any]] = []
    real = torch.nn.functional.scaled_dot_product_attention

    def watched(query: Any, key: Any, *rest: Any, **settings: Any) -> Any:
        asked.append(settings | {"heads": key.shape[1] / query.shape[1]})
        return real(query, key, *rest, **settings)

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", watched)
    monkeypatch.setattr("engines.transformers.choose", lambda attention, device: repeating_heads())
    assert logits(model, "sdpa") == pytest.approx(eager, abs=1e-4 * float(eager.abs().max()))
    assert asked
    assert not any(one.get("enable_gqa") or one["heads"] != 1 for one in asked)


def test_one_kernel_alone_is_switched_on() -> None:
    for attention, switch in (("math", "math"), ("efficient", "mem_efficient"), ("flash", "flash"), ("cudnn", "cudnn")):
        assert choose(attention, torch.device("cuda")) == "sdpa"
        assert [name for name, on in switched_on().items() if on] == [switch]


@pytest.mark.parametrize("attention", sorted(ATTENTIONS.keys() - set(ON_CPU)))
def test_a_kernel_of_gpus_is_refused_on_a_cpu(attention: str, model: Model) -> None:
    expected = f"attention={attention} runs on cuda, not on cpu; there are eager, sdpa, math, flash, flex"
    with pytest.raises(EngineUnavailable, match=expected):
        TransformersEngine(model, TransformersOptions(device="cpu", attention=attention)).load()  # type: ignore[arg-type]
    assert all(switched_on().values())


def test_a_kernel_that_is_compiled_needs_a_compiler(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(EngineUnavailable, match=r"attention=flex is compiled: Inductor needs a C\+\+ compiler"):
        TransformersEngine(model, TransformersOptions(device="cpu", attention="flex")).load()


def test_what_a_kernel_does_not_take_is_refused_while_loading() -> None:
    with (
        pytest.raises(EngineUnavailable, match="attention=cudnn cannot compute this model in float32 here: No avail"),
        tried_out("cudnn", "float32"),
    ):
        raise RuntimeError("No available kernel. Aborting execution.")


def test_a_state_space_model_has_none(tmp_path: Path) -> None:
    mamba, _ = write_tiny(tmp_path, "mamba")
    engine = TransformersEngine(mamba, TransformersOptions(device="cpu"))
    assert engine.load().options["attention"] == "none"
    with pytest.raises(EngineUnavailable, match="a state-space model has no attention"):
        TransformersEngine(mamba, TransformersOptions(device="cpu", attention="math")).load()


async def text(engine: Any) -> list[str]:
    request = GenerateRequest("", PROMPT, 8, ignore_eos=True)
    chunks = [chunk async for chunk in engine.generate(request)]
    engine.close()
    return [chunk.text for chunk in chunks]


@pytest.mark.parametrize("attention", ["math", "flash"])
def test_the_static_decoder_has_a_kernel_too(attention: Any, model: Model) -> None:
    def answer(attention: Any) -> list[str]:
        options = TorchJitEngine.Options(
            dtype="float32", device="cpu", batches=(1,), lengths=(64,), attention=attention
        )
        engine = TorchJitEngine(model, options)
        assert engine.load().options["attention"] == attention
        return asyncio.run(text(engine))

    assert answer(attention) == answer("auto")


def test_continuous_batching_keeps_the_one_that_was_asked_for(model: Model) -> None:
    names = {"auto_switch_to_flash", "page_size"}
    asked = TransformersBatchingEngine(model, BatchingOptions(attention="eager")).batching("cuda", names)
    assert asked["auto_switch_to_flash"] is False
    left = TransformersBatchingEngine(model, BatchingOptions()).batching("cuda", names)
    assert left["auto_switch_to_flash"] is True
