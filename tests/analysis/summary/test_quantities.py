"""The numbers of a steady window, by hand on small runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.load import Rate
from enginebench.records.stage import SECOND
from enginebench.records.telemetry import TelemetrySample
from enginebench.records.view import EMPTY, Estimate, Missing
from tests.support.analysis.one_stage import MS, stage_of
from tests.support.analysis.synthetic import FAILED, Engine, in_order, record, simulate, stages_of


def test_latencies_belong_to_what_was_scheduled_inside(tmp_path: Path) -> None:
    """The window is [2 s, 9 s): its first instant counts, its last does not, however long the answer took."""
    instants = [2 * SECOND - 1, 2 * SECOND, 9 * SECOND - 1, 9 * SECOND]
    stage = stage_of(tmp_path, [record(k, t) for k, t in enumerate(instants)])
    assert (stage.start, stage.end) == (2.0, 9.0)
    assert (stage.requests, stage.ok, stage.metrics["ttft"].n) == (2, 2, 2)
    assert stage.value("offered_rate") == pytest.approx(2 / 7)


UNCOUNTED: dict[str, Any] = {"output_tokens": None, "first_chunk_tokens": None, "token_source": None}
WHOLE: dict[str, Any] = {"streamed": False, "t_first": None, "t_first_out": None, "icl": (), "chunks": 0}


@pytest.mark.parametrize(
    ("changes", "inside"),
    [
        pytest.param({"first_chunk_tokens": 1}, 6.0, id="nine later tokens are spread over three chunks, two inside"),
        pytest.param({"first_chunk_tokens": 4}, 4.0, id="the first chunk took its own with it"),
        pytest.param({"first_chunk_tokens": None}, 5.0, id="an unknown first chunk has as many as the mean one"),
        pytest.param(WHOLE, 10.0, id="a whole answer brings all at its end"),
        pytest.param({"outcome": "disconnected"}, 6.0, id="a failed request's tokens had been delivered"),
    ],
)
def test_where_tokens_fall(tmp_path: Path, changes: dict[str, Any], inside: float) -> None:
    """Four chunks at 1.8, 1.9, 2.1 and 2.3 s, ten tokens; the window begins at 2 s."""
    stamps = {"t_first": 1800 * MS, "t_last": 2300 * MS, "t_end": 2300 * MS}
    values: dict[str, Any] = stamps | {"icl": (100 * MS, 200 * MS, 200 * MS), "chunks": 4, "output_tokens": 10}
    throughput = stage_of(tmp_path, [record(0, SECOND, **values | changes)]).value("throughput")
    assert throughput is not None
    assert 7 * throughput == pytest.approx(inside)


@pytest.mark.parametrize(
    ("changes", "chunks"),
    [
        pytest.param({}, 3 * 140, id="streamed answers"),
        pytest.param(WHOLE, 0, id="whole answers, which have no chunks"),
        pytest.param({"outcome": "disconnected"}, 3 * 140, id="of requests that all failed on the way"),
    ],
)
def test_unknown_token_counts_are_not_0_tokens(tmp_path: Path, changes: dict[str, Any], chunks: int) -> None:
    """Nothing that divides by them has a value, and a finding says why."""
    stage = stage_of(
        tmp_path, [record(k, 2 * SECOND + k * 50 * MS, **UNCOUNTED | changes) for k in range(140)], model="unheard-of"
    )
    assert stage.estimate("throughput") == Estimate(None, missing=Missing.UNCOUNTED)
    assert {"output_tokens", "tokens_per_chunk", "energy_per_token"} & set(stage.quantities) == set()
    assert stage.value("user_throughput") == (None if stage.ok else 0), "a failure takes +Inf for a token"
    assert (stage.metrics["ntpot"].mean, stage.metrics["tpot"].mean) == (None, None)
    assert stage.count("uncounted_chunks") == pytest.approx(chunks, abs=12)  # of the last answers some came later
    assert [f.severity for f in stage.findings if f.kind == "token_counts"] == ["warn"]


def test_where_nothing_came_the_throughput_is_0(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, [record(k, 3 * SECOND + k, **FAILED) for k in range(30)])
    assert stage.value("throughput") == 0
    assert "token_counts" not in {finding.kind for finding in stage.findings}


def test_a_metric_that_nothing_has_is_empty(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, [record(0, 3 * SECOND, **WHOLE)])
    assert (stage.metrics["ttft"], stage.metrics["stall"], stage.metrics["icl"].n) == (EMPTY, EMPTY, 0)
    assert stage.estimate("ttft", "p99").missing is Missing.NOT_OBSERVED


def test_littles_law_is_not_asked_of_a_short_window(tmp_path: Path) -> None:
    """A stay of 3 s is not short against a window of 7 s."""
    assert "littles_law" not in stage_of(tmp_path, [record(0, 3 * SECOND, t_end=6 * SECOND)]).quantities


def samples(**server: list[float]) -> list[TelemetrySample]:
    """One a second from 1 s on."""
    length = len(next(iter(server.values())))
    return in_order(
        [
            TelemetrySample(
                t=(k + 1) * SECOND,
                client_cpu=0.1 * k,
                loop_lag=0.001 * k,
                server={name: values[k] for name, values in server.items()},
            )
            for k in range(length)
        ]
    )


def test_telemetry_is_averaged_over_the_window(tmp_path: Path) -> None:
    """Samples at 2 … 8 s are inside; labels add up; joules come from the counter, else from ∫ power dt."""
    stamps = {"t_first": 4 * SECOND, "t_last": 5 * SECOND, "t_end": 5 * SECOND}
    one = record(0, 3 * SECOND, icl=(SECOND,), chunks=2, output_tokens=100, **stamps)
    values = [float(k) for k in range(1, 11)]
    names = {
        'enginebench_requests_running{engine="a"}': values,
        'enginebench_gpu_utilization_ratio{gpu="0"}': [0.5] * 10,
        'enginebench_gpu_utilization_ratio{gpu="1"}': [0.7] * 10,
        'enginebench_gpu_power_watts{gpu="0"}': [100.0] * 10,
        'enginebench_gpu_power_watts{gpu="1"}': [50.0] * 10,
        'enginebench_generation_tokens_total{engine="a"}': [10 * value for value in values],
    }
    stage = stage_of(tmp_path, [one], samples=samples(**names))
    running = stage.gauges["requests_running"]
    assert (running.mean, running.peak) == (5.0, 8.0)
    assert stage.gauges["gpu_utilisation"].mean == pytest.approx(0.6)
    assert stage.value("energy_per_token") == pytest.approx(150.0 * 6 / 100)  # from 2 s to 8 s
    assert (stage.count("server_tokens"), stage.count("client_tokens")) == (60, 100)
    assert stage.gauges["client_cpu"].peak == pytest.approx(0.7)
    assert stage.gauges["loop_lag"].mean == pytest.approx(0.004)
    assert "kv_cache_usage" not in stage.gauges  # absent, not zero


def test_a_gauge_has_the_means_of_the_first_and_the_last_tenth(tmp_path: Path) -> None:
    """A hundred seconds, steady from 20 s to 90 s: samples of 20 … 26 s, and of 83 … 89 s."""
    values = [float(k) for k in range(1, 101)]
    stage = stage_of(
        tmp_path,
        [record(k, k * SECOND) for k in range(100)],
        stages=stages_of((1,), 100.0),
        samples=samples(process_resident_memory_bytes=values),
    )
    memory = stage.gauges["process_memory_bytes"]
    assert (memory.first, memory.last, memory.mean, memory.peak) == (23.0, 86.0, 54.5, 89.0)


@pytest.mark.parametrize(
    ("name", "quantity", "given", "expected"),
    [
        ('vllm:num_requests_waiting{m="x"}', "requests_waiting", 3.0, 3.0),
        ("tgi_queue_size", "requests_waiting", 3.0, 3.0),
        ('vllm:gpu_cache_usage_perc{m="x"}', "kv_cache_usage", 0.5, 0.5),
        ("ray_vllm_kv_cache_usage_perc", "kv_cache_usage", 0.5, 0.5),
        ("sglang_num_queue_reqs", "requests_waiting", 3.0, 3.0),
        ('nv_trt_llm_request_metrics{request_type="waiting"}', "requests_waiting", 3.0, 3.0),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"}', "gpu_utilisation", 50.0, 0.5),
        ('DCGM_FI_DEV_FB_USED{gpu="0"}', "gpu_memory_bytes", 2.0, 2.0 * 2**20),
        ('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0"}', "gpu_tensor_activity", 0.3, 0.3),
        ('enginebench_gpu_memory_used_bytes{gpu="0"}', "gpu_memory_bytes", 70e9, 70e9),
        ('enginebench_engine_device_memory_peak_bytes{engine="e"}', "engine_device_memory_bytes", 3e9, 3e9),
    ],
)
def test_other_servers_names_are_known(tmp_path: Path, name: str, quantity: str, given: float, expected: float) -> None:
    stage = stage_of(tmp_path, [record(0, 3 * SECOND)], samples=samples(**{name: [given] * 10}))
    assert stage.gauges[quantity].mean == pytest.approx(expected)


DRAFTS = [100.0 * k for k in range(10)]
HALF, DOUBLE = [50.0 * k for k in range(10)], [200.0 * k for k in range(10)]


def counters(pattern: str, **values: list[float]) -> dict[str, list[float]]:
    return {pattern.format(name): series for name, series in values.items()}


@pytest.mark.parametrize(
    ("series", "length", "rate"),
    [
        pytest.param(
            counters("vllm:spec_decode_num_{}_total", drafts=DRAFTS, draft_tokens=DOUBLE, accepted_tokens=HALF),
            1.5, 0.25, id="vLLM",
        ),
        pytest.param(
            {"sglang:spec_accept_length": [0.0] * 5 + [3.0] * 5, "sglang:spec_accept_rate": [0.0] * 5 + [0.5] * 5},
            3.0, 0.5, id="SGLang, which was idle at first",
        ),
        pytest.param({"sglang:spec_accept_length": [0.0] * 10}, None, None, id="SGLang without speculation"),
        pytest.param(
            counters("trtllm_spec_decode_num_{}_total", draft_tokens=DOUBLE, accepted_tokens=HALF)
            | {"trtllm_spec_decode_acceptance_length": [2.0] * 10},
            2.0, 0.25, id="TensorRT-LLM",
        ),
        pytest.param({"vllm:spec_decode_num_drafts_total": [7.0] * 10}, None, None, id="nothing drafted"),
    ],
)  # fmt: skip
def test_the_acceptance_of_drafts_is_what_servers_count(
    tmp_path: Path, series: dict[str, list[float]], length: float | None, rate: float | None
) -> None:
    stage = stage_of(tmp_path, [record(0, 3 * SECOND)], samples=samples(**series))
    assert (stage.value("acceptance_length"), stage.value("acceptance_rate")) == (length, rate)


def test_two_stages_with_one_label_do_not_fall_together(tmp_path: Path) -> None:
    summary = summarise(load_run(simulate(tmp_path / "run", Engine(), (2, 4, 2), 10.0)))
    assert [stage.label for stage in summary.stages] == ["2 users", "4 users", "2 users #2"]
    assert [stage.index for stage in summary.stages] == [0, 1, 2]


def test_a_rate_is_a_load_of_its_own(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, [record(0, 3 * SECOND)], stages=stages_of((Rate(8.0),), 10.0))
    assert (stage.label, stage.load, stage.load_unit) == ("8 req/s", 8.0, "req/s")
    assert stage.is_open
    assert not {"users_running", "dispersion"} & set(stage.quantities), "of users only"


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_that_wrote_apart_give_the_same_numbers(tmp_path: Path, workers: int) -> None:
    one = simulate(tmp_path / "one", Engine(), (4,), 20.0)
    many = tmp_path / "many"
    many.mkdir()
    (many / "meta.json").write_bytes((one / "meta.json").read_bytes())
    lines = (one / "requests-0.jsonl").read_text().splitlines(keepends=True)
    for worker in range(workers):
        (many / f"requests-{worker}.jsonl").write_text("".join(lines[worker::workers]))
    (many / "telemetry.jsonl").write_bytes((one / "telemetry.jsonl").read_bytes())
    (alone,), (apart,) = (summarise(load_run(folder)).stages for folder in (one, many))
    gaps = [stage.metrics["icl"] for stage in (alone, apart)]
    assert gaps[0].deviation == pytest.approx(gaps[1].deviation, rel=1e-12), "sums in another order round otherwise"
    rounded = replace(gaps[1], deviation=gaps[0].deviation)
    assert alone == replace(apart, metrics={**apart.metrics, "icl": rounded})
