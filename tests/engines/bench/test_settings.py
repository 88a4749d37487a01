"""Which variants a command line asks for, and which cases an engine can take."""

from dataclasses import replace

import pytest

from enginebench.settings.schema import read_sizes
from engines.bench.settings import BenchSettings, cases_of, variants_of
from engines.contract.base import EngineInfo


def labels(
    *engines: str, models: tuple[str, ...] = (), options: tuple[str, ...] = (), sweeps: tuple[str, ...] = ()
) -> list[str]:
    return [one.label for one in variants_of(engines, models, options, sweeps)]


def test_engines_alone_are_called_by_their_names() -> None:
    assert labels("candle", "burn", options=("dtype=float32",)) == ["candle", "burn"]


def test_a_sweep_makes_a_variant_of_each_value() -> None:
    found = variants_of(["candle"], [], ["concurrency=8"], ["dtype=float32,q8_0"])
    assert [one.label for one in found] == ["candle dtype=float32", "candle dtype=q8_0"]
    assert [dict(one.options) for one in found] == [
        {"concurrency": "8", "dtype": "float32"},
        {"concurrency": "8", "dtype": "q8_0"},
    ]


def test_a_sweep_of_one_engine_leaves_the_others_alone() -> None:
    assert labels("candle", "burn", sweeps=("candle.dtype=float32,q8_0",)) == [
        *("candle dtype=float32", "candle dtype=q8_0", "burn")
    ]


def test_several_sweeps_are_all_combinations_and_several_models_are_named() -> None:
    found = labels("fake", models=("a", "b"), sweeps=("ttft=1,2", "tpot=3,4"))
    assert len(found) == 8
    assert found[0] == "fake ttft=1 tpot=3 a"
    assert len(set(found)) == 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({"engines": ["fake", "fake"]}, "name each engine once", id="twice"),
        pytest.param({"engines": ["fake"], "sweeps": ["ttft"]}, "name=value", id="no value"),
        pytest.param({"engines": ["fake"], "options": ["burn.dtype=f"]}, "not among the engines: fake", id="another's"),
    ],
)
def test_mistakes_get_a_sentence(given: dict[str, list[str]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        variants_of(given["engines"], [], given.get("options", []), given.get("sweeps", []))


INFO = EngineInfo("x", "1", "python", "m", "float32", "cpu", "continuous", max_concurrency=256, context_length=2048)


def test_all_kinds_in_ascending_size() -> None:
    cases, left_out = cases_of(BenchSettings(), INFO)
    names = [case.name for case in cases]
    prefills = [f"prefill {tokens}" for tokens in (32, 128, 512, 1024, 2048)]
    assert names[:7] == [*prefills, "generate 10", "generate 50"]
    assert names[-7:] == [f"batch {requests}" for requests in (1, 2, 4, 8, 16, 32, 64)]
    assert left_out == {f"prefill {2**power}": "the context holds 2048 tokens" for power in range(12, 16)}


def test_a_prefill_reaches_the_end_of_the_context() -> None:
    """32,768 tokens of Qwen2.5, with the answer's one token."""
    cases, left_out = cases_of(BenchSettings(generate=(), batch=(1,)), replace(INFO, context_length=32_768))
    longest = next(case for case in cases if case.name == "prefill 32768")
    assert longest.tokens == 32_768
    assert left_out == {}
    assert all(case.prompt_tokens == case.size for case in cases if case.kind == "prefill" and case.size < 32_768)


def test_a_gpu_gets_batches_of_up_to_1024() -> None:
    on_gpu = replace(INFO, device="cuda:0", max_concurrency=4096)
    assert max(case.requests for case in cases_of(BenchSettings(), on_gpu)[0]) == 1024


def test_no_more_requests_than_the_engine_runs_together() -> None:
    cases, left_out = cases_of(BenchSettings(prefill=(), generate=(), batch=(1, 8)), replace(INFO, max_concurrency=1))
    assert [case.name for case in cases] == ["batch 1"]
    assert left_out == {"batch 8": "the engine runs 1 at a time with these options"}


def test_sizes_are_read_in_order_and_refused_in_a_sentence() -> None:
    assert read_sizes("512, 32,32") == (32, 512)
    with pytest.raises(ValueError, match="whole numbers from 1"):
        read_sizes("32,zero")
