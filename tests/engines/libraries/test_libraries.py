"""SGLang and TensorRT-LLM without a GPU: what is asked of them, and what is made of their answers, with stand-ins.

The stand-ins have the signatures of the pinned versions' published source, as far as they are used.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from enginebench.settings.schema import from_text
from engines.contract.base import Chunk, Engine, GenerateRequest, Model
from engines.contract.errors import BadRequest, EngineError
from engines.libraries.sglang import SglangEngine, SglangOptions
from engines.libraries.tensorrt_llm import TensorRtLlmEngine, TensorRtLlmOptions
from tests.support.engines.nvml_stand_in import Gpu, install

PIECES = ((" one", 1), (" two", 1), (" three four", 2), (" five", 1))


@pytest.fixture
def model(tmp_path: Path) -> Model:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 4096}')
    return Model("m", tmp_path)


@dataclass
class Asked:
    """What a stand-in was asked."""

    arguments: dict[str, Any] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    sampling: Any = None
    aborted: list[Any] = field(default_factory=list)
    closed: bool = False
    end: str = "length"


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def sglang(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    class StandIn:
        def __init__(self, **arguments: Any) -> None:
            asked.arguments = arguments
            self.tokenizer_manager = SimpleNamespace(abort_request=self._abort)
            self._running: set[str] = set()

        async def async_generate(
            self, *, input_ids: list[int], sampling_params: dict[str, Any], stream: bool, rid: str
        ) -> AsyncIterator[dict[str, Any]]:
            assert stream
            asked.ids, asked.sampling = input_ids, sampling_params
            if sampling_params["max_new_tokens"] > 1000:
                raise ValueError("too many tokens")
            self._running.add(rid)
            return self._steps(rid)

        async def _steps(self, rid: str) -> AsyncIterator[dict[str, Any]]:
            for number, (text, tokens) in enumerate(PIECES, start=1):
                reason = {"type": asked.end, "message": "out of memory"} if number == len(PIECES) else None
                if reason is not None:
                    self._running.discard(rid)
                yield {"text": text, "output_ids": [7] * tokens, "meta_info": {"finish_reason": reason}}

        def _abort(self, rid: str = "", abort_all: bool = False) -> None:
            if rid in self._running:
                asked.aborted.append(rid)

        def shutdown(self) -> None:
            asked.closed = True

    module = ModuleType("sglang")
    module.Engine = StandIn  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sglang", module)
    for read in ("engines.libraries.library.version", "engines.contract.base.version_of"):
        monkeypatch.setattr(read, lambda name: "0.5.23")


@pytest.fixture
def tensorrt_llm(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    class Result:
        """`tensorrt_llm.executor.result.GenerationResult`: texts and tokens grow, and the last growth is the diff."""

        finished = False

        async def __aiter__(self) -> AsyncIterator[Any]:
            for number, (text, tokens) in enumerate(PIECES, start=1):
                self.finished = number == len(PIECES)
                reason = asked.end if self.finished else None
                output = SimpleNamespace(text_diff=text, token_ids_diff=[7] * tokens, finish_reason=reason)
                yield SimpleNamespace(outputs=[output])

        def abort(self) -> None:
            asked.aborted.append(self)

    class StandIn:
        def __init__(self, **arguments: Any) -> None:
            asked.arguments = arguments

        def generate_async(self, inputs: list[int], sampling_params: Any, streaming: bool) -> Result:
            assert streaming
            asked.ids, asked.sampling = inputs, vars(sampling_params)
            if sampling_params.max_tokens > 1000:
                raise ValueError("too many tokens")
            return Result()

        def shutdown(self) -> None:
            asked.closed = True

    module, llmapi = ModuleType("tensorrt_llm"), ModuleType("tensorrt_llm.llmapi")
    module.LLM, module.SamplingParams = StandIn, SimpleNamespace  # type: ignore[attr-defined]
    for name in ("CudaGraphConfig", "KvCacheConfig", "NGramDecodingConfig", "DraftTargetDecodingConfig"):
        setattr(llmapi, name, type(name, (SimpleNamespace,), {}))
    monkeypatch.setitem(sys.modules, "tensorrt_llm", module)
    monkeypatch.setitem(sys.modules, "tensorrt_llm.llmapi", llmapi)
    for read in ("engines.libraries.library.version", "engines.contract.base.version_of"):
        monkeypatch.setattr(read, lambda name: "1.2.1")


ENGINES = {"sglang": (SglangEngine, SglangOptions), "tensorrt_llm": (TensorRtLlmEngine, TensorRtLlmOptions)}


@pytest.fixture(params=list(ENGINES))
def name(request: pytest.FixtureRequest) -> str:
    request.getfixturevalue(request.param)
    return str(request.param)


def question(**settings: Any) -> GenerateRequest:
    return GenerateRequest("p", (1, 2, 3), **({"max_tokens": 5} | settings))


async def loaded(name: str, model: Model, **options: str) -> Engine:
    kind, declared = ENGINES[name]
    engine: Engine = kind(model, from_text(declared, options))
    info: Any = engine.load()
    assert (await info).context_length == 4096
    return engine


def answer(name: str, model: Model, request: GenerateRequest, leave_after: int | None = None) -> list[Chunk]:
    async def main() -> list[Chunk]:
        engine = await loaded(name, model)
        chunks: list[Chunk] = []
        steps: Any = engine.generate(request)
        async for chunk in steps:
            chunks.append(chunk)
            if len(chunks) == leave_after:
                break
        await steps.aclose()
        engine.close()
        return chunks

    return asyncio.run(main())


def test_tokens_go_in_and_each_step_comes_out(name: str, model: Model, asked: Asked) -> None:
    chunks = answer(name, model, question())
    assert asked.ids == [1, 2, 3]
    assert [(chunk.text, chunk.tokens) for chunk in chunks] == list(PIECES)
    assert [chunk.finish_reason for chunk in chunks] == [None, None, None, "length"]
    assert (asked.aborted, asked.closed) == ([], True)


def test_a_stop_string_ends_the_answer_exactly_there_and_stops_the_work(name: str, model: Model, asked: Asked) -> None:
    chunks = answer(name, model, question(stop=("three",)))
    assert "".join(chunk.text for chunk in chunks) == " one two "
    assert (chunks[-1].finish_reason, sum(chunk.tokens for chunk in chunks)) == ("stop", 4)
    assert len(asked.aborted) == 1


def test_a_stop_string_with_least_tokens_is_refused(name: str, model: Model) -> None:
    with pytest.raises(BadRequest, match="before min_tokens"):
        answer(name, model, question(stop=("three",), min_tokens=2))


def test_leaving_early_stops_the_work(name: str, model: Model, asked: Asked) -> None:
    assert len(answer(name, model, question(), leave_after=2)) == 2
    assert len(asked.aborted) == 1


def test_a_request_that_the_library_refuses_is_the_clients_mistake(name: str, model: Model) -> None:
    with pytest.raises(BadRequest, match="too many tokens"):
        answer(name, model, question(max_tokens=2000))


def test_an_answer_that_the_library_gave_up_is_an_error(name: str, model: Model, asked: Asked) -> None:
    asked.end = "abort" if name == "sglang" else "timeout"
    with pytest.raises(EngineError, match=r"aborted this request: out of memory|ended this answer with `timeout`"):
        answer(name, model, question())


def test_greedy_is_greedy_and_a_seed_is_not_promised(name: str, model: Model, asked: Asked) -> None:
    answer(name, model, question(min_tokens=2, ignore_eos=True))
    greedy = asked.sampling
    assert greedy["ignore_eos"] is True
    if name == "sglang":
        assert (greedy["temperature"], greedy["min_new_tokens"]) == (0.0, 2)
    else:
        assert (greedy["top_k"], greedy["min_tokens"]) == (1, 2)
    answer(name, model, question(temperature=0.7, top_p=0.9, seed=3))
    assert (asked.sampling["temperature"], asked.sampling["top_p"]) == (0.7, 0.9)
    assert not {"sampling_seed", "seed"} & asked.sampling.keys()
    assert "seed" not in ENGINES[name][0].features
    assert "top_k" not in asked.sampling


def test_by_default_nothing_is_remembered_or_guessed(name: str, model: Model, asked: Asked) -> None:
    asyncio.run(loaded(name, model))
    given = asked.arguments
    if name == "sglang":
        assert given["disable_radix_cache"] is True
        assert given["incremental_streaming_output"] is True
        assert "speculative_algorithm" not in given
        assert given["cuda_graph_max_bs_decode"] == 256, "a graph up to the largest batch"
    else:
        assert given["kv_cache_config"].enable_block_reuse is False
        assert given["max_seq_len"] == 4096
        assert "speculative_config" not in given
        graphs = given["cuda_graph_config"]
        assert (graphs.max_batch_size, graphs.enable_padding) == (256, True), "a graph for every size of batch"


@pytest.mark.parametrize(
    ("config", "capability", "dtype"),
    [
        ({"torch_dtype": "float16"}, (9, 0), "bfloat16"),
        ({"torch_dtype": "bfloat16"}, (7, 5), "float16"),
        ({"torch_dtype": "float16", "quantization_config": {"quant_method": "awq"}}, (9, 0), "auto"),
    ],
)
def test_the_number_format_is_that_of_all_engines(
    name: str,
    model: Model,
    asked: Asked,
    config: dict[str, Any],
    capability: tuple[int, int],
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(monkeypatch, [Gpu(capability)])
    (model.folder / "config.json").write_text(json.dumps({"max_position_embeddings": 4096} | config))
    asyncio.run(loaded(name, model))
    assert asked.arguments["dtype"] == dtype


@pytest.mark.parametrize("draft", [None, "/models/small"])
def test_options_reach_the_library(name: str, model: Model, asked: Asked, draft: str | None) -> None:
    more = {} if draft is None else {"draft_model": draft}
    if name == "sglang":
        more |= {"decode_context_parallel": "2", "prefill_context_parallel": "2"}
    asyncio.run(loaded(name, model, tensor_parallel="2", speculative_tokens="4", eager="yes", concurrency="8", **more))
    given = asked.arguments
    if name == "sglang":
        assert (given["tp_size"], given["max_running_requests"], given["disable_cuda_graph"]) == (2, 8, True)
        assert "cuda_graph_max_bs_decode" not in given
        assert (given["dcp_size"], given["attn_cp_size"], given["enable_prefill_cp"]) == (2, 2, True)
        assert given["speculative_algorithm"] == ("NGRAM" if draft is None else "STANDALONE")
        assert given.get("speculative_draft_model_path") == draft
    else:
        assert (given["tensor_parallel_size"], given["max_batch_size"], given["cuda_graph_config"]) == (2, 8, None)
        guesses = given["speculative_config"]
        assert (guesses.max_draft_len, getattr(guesses, "speculative_model_dir", None)) == (4, draft)
