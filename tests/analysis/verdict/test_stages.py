"""The numbers of a steady window, by hand on small runs."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path
from typing import Any

import pytest

from analysis.run.load import NotARun, load_run
from analysis.verdict.stages import StageSummary
from analysis.verdict.statistics import DEPENDS_ON_CUT_OFF
from analysis.verdict.summary import RunSummary, as_document, summarise
from records.load import Rate, Users
from records.request import RequestRecord
from records.slo import parse_objectives
from records.stage import SECOND, Extent, Stage, StagePlan
from records.telemetry import TelemetrySample
from tests.support.analysis.synthetic import (
    FAILED,
    NOTHING_CAME,
    Engine,
    in_order,
    meta_of,
    plan_of,
    record,
    sent_line,
    simulate,
    stages_of,
    write_run,
)

MS = 1_000_000
STAGES = stages_of((1,), 10.0)  # steady from 2 s to 9 s


def summary_of(tmp_path: Path, records: list[RequestRecord], **changes: Any) -> RunSummary:
    objectives = parse_objectives(changes.pop("slo", ()))
    samples = changes.pop("samples", None)
    stages = changes.pop("stages", STAGES)
    folder = write_run(tmp_path / "run", meta_of(stages, **changes), records, samples)
    return summarise(load_run(folder), objectives)


def stage_of(tmp_path: Path, records: list[RequestRecord], **changes: Any) -> StageSummary:
    return summary_of(tmp_path, records, **changes).stages[0]


def test_latencies_belong_to_what_was_scheduled_inside(tmp_path: Path) -> None:
    """The window is [2 s, 9 s): its first instant counts, its last does not, however long the answer took."""
    instants = [2 * SECOND - 1, 2 * SECOND, 9 * SECOND - 1, 9 * SECOND]
    stage = stage_of(tmp_path, [record(k, t) for k, t in enumerate(instants)])
    assert (stage.start, stage.end) == (2.0, 9.0)
    assert (stage.requests, stage.ok, stage.latencies["ttft"].n) == (2, 2, 2)
    assert stage.offered_rate == pytest.approx(2 / 7)


def test_throughput_counts_the_tokens_that_arrived_inside(tmp_path: Path) -> None:
    """A token at 1.99 s, one at 2.01 s, one at 8.99 s, one at 9.01 s; the requests themselves lie elsewhere."""
    early = record(
        0,
        SECOND,
        t_first=1990 * MS,
        t_last=2010 * MS,
        t_end=2010 * MS,
        icl=(20 * MS,),
        chunks=2,
        output_tokens=2,
    )
    late = record(
        1,
        8 * SECOND,
        t_first=8990 * MS,
        t_last=9010 * MS,
        t_end=9010 * MS,
        icl=(20 * MS,),
        chunks=2,
        output_tokens=2,
    )
    stage = stage_of(tmp_path, [early, late])
    assert stage.throughput.value == pytest.approx(2 / 7)
    assert stage.achieved_rate == pytest.approx(1 / 7)  # only the early one ended inside


@pytest.mark.parametrize(
    ("changes", "inside"),
    [
        pytest.param({"first_chunk_tokens": 1}, 6.0, id="nine later tokens are spread over three chunks, two inside"),
        pytest.param({"first_chunk_tokens": 4}, 4.0, id="the first chunk took its own with it"),
        pytest.param({"first_chunk_tokens": None}, 5.0, id="an unknown first chunk has as many as the mean one"),
        pytest.param(
            {"streamed": False, "t_first": None, "icl": (), "chunks": 0},
            10.0,
            id="a whole answer brings all at its end",
        ),
        pytest.param({"outcome": "disconnected"}, 6.0, id="a failed request's tokens had been delivered"),
        pytest.param({"output_tokens": None}, 0.0, id="uncounted tokens are not guessed"),
    ],
)
def test_where_tokens_fall(tmp_path: Path, changes: dict[str, Any], inside: float) -> None:
    """Four chunks at 1.8, 1.9, 2.1 and 2.3 s, ten tokens; the window begins at 2 s."""
    values: dict[str, Any] = {
        "t_first": 1800 * MS,
        "t_last": 2300 * MS,
        "t_end": 2300 * MS,
        "icl": (100 * MS, 200 * MS, 200 * MS),
        "chunks": 4,
        "output_tokens": 10,
    }
    summary = summary_of(tmp_path, [record(0, SECOND, **values | changes)])
    stage = summary.stages[0]
    assert (stage.throughput.value or 0) * 7 == pytest.approx(inside)
    assert stage.answers.uncounted_chunks == (2 if "output_tokens" in changes else 0)


def test_outcomes_are_told_apart(tmp_path: Path) -> None:
    """Six ok, three failed, one cut off: the share of failures is three of nine."""
    records = [record(k, 3 * SECOND + k) for k in range(6)]
    records += [record(6 + k, 4 * SECOND + k, **FAILED) for k in range(2)]
    records += [record(8, 5 * SECOND, **FAILED | {"outcome": "timeout", "detail": None, "status": None})]
    records += [record(9, 6 * SECOND, outcome="cut_off", **NOTHING_CAME)]
    stage = stage_of(tmp_path, records)
    assert (stage.requests, stage.ok, stage.failed, stage.cut_off) == (10, 6, 3, 1)
    assert stage.outcomes == {"cut_off": 1, "ok": 6, "rejected": 2, "timeout": 1}
    assert stage.failure_share.value == pytest.approx(3 / 9)
    assert list(stage.failure_details.items()) == [("rejected: queue full", 2), ("timeout", 1)]
    assert stage.latencies["ttft"].n == 10
    assert stage.latencies["ttft"].failed == 3
    assert stage.latencies["delivery"].n == 0
    assert stage.latencies["send_lag"].n == 10


def test_concurrency_is_the_time_average(tmp_path: Path) -> None:
    """One request from 1 s to 4 s, one from 3 s to 10 s: 2 s + 6 s of the window's 7 s."""
    records = [record(0, SECOND, t_end=4 * SECOND), record(1, 3 * SECOND, t_end=10 * SECOND)]
    assert stage_of(tmp_path, records).concurrency.average == pytest.approx(8 / 7)


def test_littles_law_holds_in_a_steady_queue(tmp_path: Path) -> None:
    summary = summarise(load_run(simulate(tmp_path / "run", Engine(slots=4), (4,), 30.0)))
    concurrency = summary.stages[0].concurrency
    assert concurrency.average == pytest.approx(4, rel=0.01)
    assert concurrency.little == pytest.approx(concurrency.average, rel=0.05)


def test_littles_law_is_not_asked_of_a_short_window(tmp_path: Path) -> None:
    """A stay of 3 s is not short against a window of 7 s."""
    assert stage_of(tmp_path, [record(0, 3 * SECOND, t_end=6 * SECOND)]).concurrency.little is None


def test_icl_is_pooled_over_chunks(tmp_path: Path) -> None:
    """Gaps of 10 ms three times and of 5 s once, in two answers: longer than 32 bits of nanoseconds hold."""
    records = [
        record(0, 3 * SECOND, icl=(10 * MS, 10 * MS, 10 * MS), chunks=4, output_tokens=4),
        record(1, 3 * SECOND, icl=(5 * SECOND,), chunks=2, output_tokens=2),
        record(2, 3 * SECOND, icl=(), chunks=1, output_tokens=1),
    ]
    icl = stage_of(tmp_path, records).latencies["icl"]
    assert (icl.n, icl.p50.value, icl.largest) == (4, 0.01, 5.0)
    assert icl.mean == pytest.approx(5.03 / 4)
    assert icl.p50.low is None


def test_ttft_is_taken_apart_by_means(tmp_path: Path) -> None:
    records = [
        record(0, 3 * SECOND, server_queue=0.02, server_prefill=0.05),
        record(1, 4 * SECOND, server_queue=0.04, server_prefill=0.05),
        record(2, 5 * SECOND),
    ]
    parts = stage_of(tmp_path, records).ttft_parts
    assert parts is not None
    assert [parts.queue, parts.prefill, parts.delivery] == pytest.approx([0.03, 0.05, 0.02])
    assert parts.n == 2


def test_goodput_and_attainment_count_failures_as_bad(tmp_path: Path) -> None:
    """TTFT (user) of 100 ms 80 times, of 300 ms 18 times, two failures: 80 of a hundred are good."""
    records = []
    for k, place in enumerate(random.Random(1).sample(range(100), 100)):
        t = 3 * SECOND + place * 10 * MS
        slow = {"t_send": t + 200 * MS, "t_first": t + 300 * MS, "t_last": t + SECOND}
        records.append(record(k, t, **(slow if k < 18 else FAILED if k < 20 else {})))
    slo = ["ttft_p50=0.2", "ttft_p80=0.2", "tpot_p99=1", "ttft_p95=0.2"]
    attainment = stage_of(tmp_path, records, slo=slo).attainment
    assert attainment is not None
    assert attainment.share.value == pytest.approx(0.8)
    assert attainment.goodput.value == pytest.approx(80 / 7)
    answers = [(verdict.objective.name, verdict.answer) for verdict in attainment.verdicts]
    assert answers == [
        ("ttft_p50", "met"),
        ("ttft_p80", "not enough evidence"),
        ("tpot_p99", "not enough evidence"),
        ("ttft_p95", "missed"),
    ]
    assert [verdict.share.value for verdict in attainment.verdicts] == pytest.approx([0.8, 0.8, 0.98, 0.8])
    assert attainment.answer == "missed"


def test_twenty_requests_cannot_meet_a_p99(tmp_path: Path) -> None:
    attainment = stage_of(tmp_path, [record(k, 3 * SECOND + k * MS) for k in range(20)], slo=["ttft_p99=10"]).attainment
    assert attainment is not None
    assert attainment.answer == "not enough evidence"


@pytest.mark.parametrize(
    ("cut", "answer"),
    [
        pytest.param({"t_end": 8 * SECOND}, "missed", id="half of them had waited for longer than the limit"),
        pytest.param({"t_end": 3 * SECOND + 100 * MS}, "not enough evidence", id="half of them were cut off before it"),
        pytest.param({"t_first": 3 * SECOND + 50 * MS, "t_end": 8 * SECOND}, "met", id="their first token had come"),
    ],
)
def test_a_request_that_was_cut_off_is_judged_by_what_is_known_of_it(
    tmp_path: Path, cut: dict[str, Any], answer: str
) -> None:
    records = []
    for k, place in enumerate(random.Random(1).sample(range(200), 200)):
        changes = {"outcome": "cut_off"} | NOTHING_CAME | cut if k < 100 else {}
        records.append(record(k, 3 * SECOND + place, **changes))
    attainment = stage_of(tmp_path, records, slo=["ttft_p90=0.2"]).attainment
    assert attainment is not None
    assert attainment.answer == answer


def test_correlated_latencies_are_less_evidence_than_independent_ones(tmp_path: Path) -> None:
    """300 requests, all within the limit: enough for a p95 if they are independent, not if a quarter of the window
    is as slow as its neighbours."""
    independent = [random.Random(k).uniform(50, 150) for k in range(300)]
    for order, answer in ((independent, "met"), (sorted(independent), "not enough evidence")):
        records = []
        for k, ttft in enumerate(order):
            t = 2 * SECOND + k * 25 * MS
            records.append(record(k, t, t_send=t, t_first=t + round(ttft) * MS, t_last=t + SECOND))
        attainment = stage_of(tmp_path, records, slo=["ttft_p95=0.2"]).attainment
        assert attainment is not None
        assert attainment.verdicts[0].answer == answer


def test_failed_requests_are_infinitely_long(tmp_path: Path) -> None:
    """Six of ten requests refused: the median of all is failed, that of the answered ones stands beside it."""
    records = [record(k, 3 * SECOND + k, **(FAILED if k % 10 < 6 else {})) for k in range(1000)]
    stage = stage_of(tmp_path, records)
    ttft = stage.latencies["ttft"]
    assert (ttft.p50.value, ttft.p50.why) == (math.inf, "failed")
    assert ttft.answered == {"p50": 0.1, "p90": 0.1, "p95": 0.1, "p99": 0.1}
    assert (ttft.n, ttft.failed) == (1000, 600)
    assert ttft.mean == pytest.approx(0.1)
    assert stage.overloaded
    assert stage.failure_rate == pytest.approx(600 / 7)
    document = as_document(summary_of(tmp_path, records))
    assert document["stages"][0]["latencies"]["ttft"]["p50"]["value"] is None
    assert document["stages"][0]["latencies"]["ttft"]["p50"]["why"] == "failed"


def test_attainment_is_withheld_where_many_requests_failed(tmp_path: Path) -> None:
    records = [record(k, 3 * SECOND + k, **(FAILED if k % 5 == 0 else {})) for k in range(100)]
    attainment = stage_of(tmp_path, records, slo=["ttft_p50=1"]).attainment
    assert attainment is not None
    assert (attainment.share.value, attainment.share.why) == (None, "20 of 100 failed")


def test_what_is_known_of_a_censored_request_counts(tmp_path: Path) -> None:
    """Ten of a hundred were cut off 50 ms after they were sent: p50 is known, p95 is not; their TTFO came at 20 ms."""
    records = [record(k, 3 * SECOND + k * MS) for k in range(90)]
    for k in range(10):
        t = 4 * SECOND + k * MS
        cut = NOTHING_CAME | {"t_end": t + 50 * MS, "t_first_out": t + 20 * MS}
        records.append(record(90 + k, t, outcome="cut_off", **cut))
    latencies = stage_of(tmp_path, records).latencies
    assert latencies["ttft"].p50.value == pytest.approx(0.1)
    assert (latencies["ttft"].p95.value, latencies["ttft"].p95.why) == (None, DEPENDS_ON_CUT_OFF)
    assert latencies["ttfo"].p90.value == pytest.approx(0.1)
    assert latencies["ttfo"].least == pytest.approx(0.02)
    assert latencies["e2e"].p95.value is None


def test_an_objective_that_was_not_measured_is_refused(tmp_path: Path) -> None:
    whole = record(0, 3 * SECOND, streamed=False, t_first=None, t_first_out=None, icl=(), chunks=0)
    with pytest.raises(ValueError, match="no request has a ttft"):
        stage_of(tmp_path, [whole], slo=["ttft_p99=1"])


@pytest.mark.parametrize("text", ["ttft=1", "ttft_p99", "foo_p99=1", "ttft_p0=1", "ttft_p100=1", "ttft_p99=-1"])
def test_an_objective_that_is_none_gets_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="an objective is METRIC_pN=SECONDS"):
        parse_objectives([text])


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
    one = record(
        0,
        3 * SECOND,
        t_first=4 * SECOND,
        t_last=5 * SECOND,
        icl=(SECOND,),
        chunks=2,
        output_tokens=100,
        t_end=5 * SECOND,
    )
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
    assert (stage.telemetry["requests_running"].mean, stage.telemetry["requests_running"].peak) == (5.0, 8.0)
    assert stage.telemetry["gpu_utilisation"].mean == pytest.approx(0.6)
    assert stage.energy_per_token == pytest.approx(150.0 * 6 / 100)  # from 2 s to 8 s
    assert (stage.answers.server_count, stage.answers.client_count) == (60.0, 100.0)
    assert stage.client_cpu is not None
    assert stage.client_cpu.peak == pytest.approx(0.7)
    assert stage.loop_lag is not None
    assert stage.loop_lag.mean == pytest.approx(0.004)
    assert "kv_cache_usage" not in stage.telemetry  # absent, not zero


@pytest.mark.parametrize(
    ("name", "quantity", "given", "expected"),
    [
        pytest.param('vllm:num_requests_waiting{m="x"}', "requests_waiting", 3.0, 3.0, id="vLLM"),
        pytest.param("tgi_queue_size", "requests_waiting", 3.0, 3.0, id="TGI"),
        pytest.param("tgi_batch_current_size", "requests_running", 3.0, 3.0, id="TGI's batch"),
        pytest.param("llamacpp:requests_deferred", "requests_waiting", 3.0, 3.0, id="llama.cpp"),
        pytest.param("llamacpp:kv_cache_usage_ratio", "kv_cache_usage", 0.5, 0.5, id="llama.cpp's cache"),
        pytest.param('DCGM_FI_DEV_GPU_UTIL{gpu="0"}', "gpu_utilisation", 50.0, 0.5, id="DCGM in per cent"),
        pytest.param('DCGM_FI_DEV_FB_USED{gpu="0"}', "gpu_memory_bytes", 2.0, 2.0 * 2**20, id="DCGM in MiB"),
        pytest.param(
            'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0"}', "gpu_tensor_activity", 0.3, 0.3, id="DCGM's profiling"
        ),
    ],
)
def test_other_servers_names_are_known(tmp_path: Path, name: str, quantity: str, given: float, expected: float) -> None:
    stage = stage_of(tmp_path, [record(0, 3 * SECOND)], samples=samples(**{name: [given] * 10}))
    assert stage.telemetry[quantity].mean == pytest.approx(expected)


@pytest.mark.parametrize("name", ["tgi_request_generated_tokens_sum", "llamacpp:tokens_predicted_total"])
def test_other_servers_counters_are_known(tmp_path: Path, name: str) -> None:
    values = [10.0 * k for k in range(10)]
    assert stage_of(tmp_path, [record(0, 3 * SECOND)], samples=samples(**{name: values})).answers.server_count == 60.0


def test_a_killed_run_is_measured_as_far_as_it_got(tmp_path: Path) -> None:
    """Three stages of 10 s; the last record ends at 15 s, in the middle of the second window."""
    records = [record(k, k * SECOND // 4) for k in range(60)]
    first, second, third = stages_of((1, 2, 4), 10.0)
    second = dataclasses.replace(second, steady_end=None, end=None)
    meta = dataclasses.replace(meta_of((first, second)), plan=(first.plan, second.plan, third.plan))
    summary = summarise(load_run(write_run(tmp_path / "run", meta, records)))
    assert [(stage.label, stage.complete) for stage in summary.stages] == [("1 user", True), ("2 users", False)]
    assert summary.stages[1].end == pytest.approx(14.89)
    assert summary.stages[1].throughput.value == pytest.approx(12, rel=0.05)
    (finding,) = (f for f in summary.findings if f.kind == "stopped_early")
    assert "nothing was measured at 4 users and the stage at 2 users was cut short" in finding.evidence


def test_the_window_is_the_recorded_one(tmp_path: Path) -> None:
    """A warm-up that was prolonged to 5 s, a window of ten requests that took 3 s."""
    plan = StagePlan(Users(1), Extent(2.0), Extent(10, "requests"))
    stage = stage_of(
        tmp_path,
        [record(k, k * SECOND // 2) for k in range(20)],
        stages=(Stage(0, plan, 0, 5 * SECOND, 8 * SECOND, 9 * SECOND),),
    )
    assert (stage.start, stage.end, stage.requests, stage.complete) == (5.0, 8.0, 6, True)


def test_a_window_without_a_known_length_is_measured_to_the_last_instant(tmp_path: Path) -> None:
    """Locust without a shape plans a day; a killed run leaves that plan behind."""
    records = [record(k, k * SECOND // 10) for k in range(100)]
    day = Stage(0, plan_of(1, 0.0, 24 * 3600.0), 0, 0)
    stage = summarise(load_run(write_run(tmp_path / "run", meta_of((day,)), records))).stages[0]
    assert stage.end == pytest.approx(10.04)
    assert stage.throughput.value == pytest.approx(30, rel=0.02)


def test_a_killed_process_ends_the_window_where_it_left_its_last_trace(tmp_path: Path) -> None:
    """The window is 2 s to 9 s. The process sent its last request at 6 s; its sample at 7 s is the last trace."""
    done = [record(k, k * SECOND) for k in range(6)]
    folder = write_run(tmp_path / "run", meta_of(STAGES), done, [TelemetrySample(t=7 * SECOND)])
    with (folder / "requests-0.jsonl").open("a") as file:
        file.write(sent_line(record(9, 6 * SECOND)))
    summary = summarise(load_run(folder))
    stage = summary.stages[0]
    assert (stage.end, stage.complete, stage.cut_off, stage.requests) == (7.0, False, 1, 5)
    lost = [finding for finding in summary.findings if finding.kind == "process_lost"]
    assert lost[0].evidence.startswith("the load generator left its last trace 7.00 s after the start")


def test_two_stages_with_one_label_do_not_fall_together(tmp_path: Path) -> None:
    summary = summarise(load_run(simulate(tmp_path / "run", Engine(), (2, 4, 2), 10.0)))
    assert [stage.label for stage in summary.stages] == ["2 users", "4 users", "2 users #2"]
    assert [stage.index for stage in summary.stages] == [0, 1, 2]


def test_a_rate_is_a_load_of_its_own(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, [record(0, 3 * SECOND)], stages=stages_of((Rate(8.0),), 10.0))
    assert (stage.label, stage.load, stage.load_unit, stage.users_there) == ("8 req/s", 8.0, "req/s", None)


def test_a_run_that_was_stopped_in_its_warm_up_gets_a_sentence(tmp_path: Path) -> None:
    begun = dataclasses.replace(stages_of((1,), 100.0)[0], steady_start=None, steady_end=None, end=None)
    folder = write_run(tmp_path / "run", meta_of((begun,)), [record(0, SECOND)])
    with pytest.raises(NotARun, match="stopped before its first steady window"):
        summarise(load_run(folder))


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
    assert summarise(load_run(one)).stages == summarise(load_run(many)).stages


def test_classes_are_summarised_and_judged_by_their_own_objectives(tmp_path: Path) -> None:
    """Every other request is slow: 100 ms against a limit of 0.2 s, 900 ms against one of 0.5 s."""
    slow = {"t_first": 900 * MS, "t_first_out": 900 * MS, "t_last": 940 * MS, "t_end": 941 * MS, "read_first": 900 * MS}
    records = []
    for k in range(700):
        at = 2 * SECOND + k * 10 * MS
        late = {name: at + value for name, value in slow.items()} if k % 2 else {}
        records.append(record(k, at, request_class="batch" if k % 2 else "chat", user=k % 20, **late))
    workload = {"class_objectives": {"chat": "ttft_p95=0.2,e2e_p95=1", "batch": "ttft_p95=0.5"}}
    stage = stage_of(tmp_path, records, workload=workload)
    batch, chat = stage.classes
    assert [(one.name, one.requests, one.failed) for one in stage.classes] == [("batch", 350, 0), ("chat", 350, 0)]
    assert chat.latencies["ttft"].p95.value == pytest.approx(0.1)
    assert batch.latencies["ttft"].p95.value == pytest.approx(0.9)
    assert chat.attainment is not None
    assert batch.attainment is not None
    assert (chat.attainment.answer, batch.attainment.answer) == ("met", "missed")
    assert [verdict.share.value for verdict in chat.attainment.verdicts] == [1.0, 1.0]


def test_requests_without_a_class_have_no_classes(tmp_path: Path) -> None:
    assert stage_of(tmp_path, [record(0, 3 * SECOND)]).classes == ()
