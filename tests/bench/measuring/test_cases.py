"""Which cases an engine can take."""

from dataclasses import replace

import pytest

from bench.measuring.cases import LeftOut, cases_of
from bench.settings import BenchSettings, read_sizes
from engines.contract.base import EngineInfo

INFO = EngineInfo("x", "1", "python", "m", "float32", "cpu", "continuous", max_concurrency=256, context_length=2048)


def test_all_kinds_in_ascending_size() -> None:
    cases, left_out = cases_of(BenchSettings(), INFO)
    names = [case.name for case in cases]
    assert names[:6] == [f"prefill {tokens}" for tokens in (32, 128, 512, 1024)] + ["generate 10", "generate 50"]
    assert names[-7:] == [f"batch {requests}" for requests in (1, 2, 4, 8, 16, 32, 64)]
    assert {one.case for one in left_out} == {f"prefill {2**power}" for power in range(11, 16)}
    assert left_out[0].why == "the context holds 2048 tokens"


def test_a_gpu_gets_batches_of_up_to_1024() -> None:
    on_gpu = replace(INFO, device="cuda:0", max_concurrency=4096)
    assert max(case.requests for case in cases_of(BenchSettings(), on_gpu)[0]) == 1024


def test_no_more_requests_than_the_engine_runs_together() -> None:
    cases, left_out = cases_of(BenchSettings(prefill=(), generate=(), batch=(1, 8)), replace(INFO, max_concurrency=1))
    assert [case.name for case in cases] == ["batch 1"]
    assert left_out == [LeftOut("batch 8", "the engine runs 1 at a time with these options")]


def test_sizes_are_read_in_order_and_refused_in_a_sentence() -> None:
    assert read_sizes("512, 32,32") == (32, 512)
    with pytest.raises(ValueError, match="whole numbers above 0"):
        read_sizes("32,zero")
