"""Histograms, and what one request adds to them."""

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from engines.contract.base import EngineInfo, EngineStats
from engines.process.stream import ReceivedChunk
from servers.prometheus_metrics import Histogram, Metrics, Snapshot, registry_of
from servers.request_times import RequestTimes

NOTHING_YET = Snapshot(0, 0, False, 0, 0, None)
INFO = EngineInfo("x", "1.2", "python", "a-model", "bfloat16", "cpu", "continuous", 8, 2048)


def scraped(metrics: Metrics) -> dict[tuple[str, str], float]:
    """Our samples by name and `le` or outcome."""
    text = generate_latest(registry_of([metrics])).decode()
    return {
        (sample.name.removeprefix("enginebench_"), sample.labels.get("le", sample.labels.get("outcome", ""))): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("enginebench_")
    }


def metrics(state: Snapshot = NOTHING_YET) -> Metrics:
    return Metrics("x", lambda: state)


def chunk(text: str, read_at: float, tokens: int = 1) -> ReceivedChunk:
    return ReceivedChunk(1, text, tokens, read_at=read_at)


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram("some_seconds", "help", (0.1, 1.0))
    for value in (0.05, 0.1, 0.100001, 1.0, 7.0):
        histogram.observe(value)
    samples = {
        sample.labels.get("le", sample.name.rpartition("_")[2]): sample.value
        for sample in histogram.family("x").samples
    }
    assert samples == {"0.1": 2, "1.0": 4, "+Inf": 5, "count": 5, "sum": pytest.approx(8.250001)}


def test_the_course_of_one_request() -> None:
    recorded = metrics()
    times = RequestTimes(recorded, received=100.0, prompt_tokens=11)
    times.admit(100.5)
    times.receive([chunk(" a", 102.0), chunk(" b", 102.0, tokens=2)])  # three tokens together, 1.5 s after admission
    times.receive([chunk(" c", 102.2), chunk(" d", 103.0), chunk(" e", 103.0)])  # of two reads, handed over together
    ending = times.complete("stop", 103.5)
    assert (ending.queue, ending.prefill, ending.decode) == (0.5, 1.5, 1.0)
    assert (ending.prompt_tokens, ending.completion_tokens) == (11, 6)
    seen = scraped(recorded)
    assert seen["prompt_tokens_total", ""] == 11
    assert seen["generation_tokens_total", ""] == 6
    assert seen["request_queue_time_seconds_sum", ""] == 0.5
    assert seen["request_prefill_time_seconds_sum", ""] == 1.5
    assert seen["request_decode_time_seconds_sum", ""] == 1.0
    assert seen["time_to_first_token_seconds_sum", ""] == 2.0
    assert seen["e2e_request_latency_seconds_sum", ""] == 3.0
    # Three tokens after the three that came first, in one second.
    assert seen["time_per_output_token_seconds_sum", ""] == pytest.approx(1 / 3)
    # Five chunks have four gaps between them: 0, 0.2, 0.8 and 0.
    assert seen["inter_chunk_latency_seconds_count", ""] == 4
    assert seen["inter_chunk_latency_seconds_bucket", "0.0001"] == 2
    assert seen["inter_chunk_latency_seconds_sum", ""] == pytest.approx(1.0)


def test_a_chunk_that_only_ends_the_answer_takes_no_time() -> None:
    """As another server's last event, which may come long after the last token."""
    recorded = metrics()
    times = RequestTimes(recorded, 0.0, 1)
    times.receive([chunk("a", 1.0)])
    times.receive([chunk("b", 1.5), chunk("", 4.0, tokens=0)])
    times.receive([chunk("", 5.0, tokens=0)])
    ending = times.complete("stop", 6.0)
    assert (ending.decode, ending.completion_tokens) == (0.5, 2)
    assert scraped(recorded)["inter_chunk_latency_seconds_count", ""] == 1


def test_forced_tokens_are_of_the_prompt() -> None:
    recorded = metrics()
    times = RequestTimes(recorded, 0.0, 1, forced=3)
    times.admit(0.0)
    for at in (1.0, 2.0):
        times.receive([chunk("ab", at, tokens=2)])
    times.receive([chunk("c", 3.0)])
    ending = times.complete("stop", 4.0)
    assert (ending.prompt_tokens, ending.completion_tokens) == (4, 2)
    seen = scraped(recorded)
    assert (seen["prompt_tokens_total", ""], seen["generation_tokens_total", ""]) == (4, 2)


def test_one_token_has_no_time_per_token_and_an_answer_without_one_no_first() -> None:
    one, none = metrics(), metrics()
    times = RequestTimes(one, 0.0, 1)
    times.receive([chunk("a", 1.0)])
    times.complete("stop", 2.0)
    assert scraped(one)["time_per_output_token_seconds_count", ""] == 0
    times = RequestTimes(none, 0.0, 1)
    times.admit(1.0)
    ending = times.complete("stop", 3.0)
    assert (ending.prefill, ending.decode, ending.completion_tokens) == (2.0, 0.0, 0)
    assert scraped(none)["time_to_first_token_seconds_count", ""] == 0
    assert scraped(none)["e2e_request_latency_seconds_sum", ""] == 3.0


def test_what_is_unknown_is_absent_and_not_zero() -> None:
    before = {name for name, _ in scraped(metrics())}
    assert before & {"engine_memory_bytes", "kv_cache_usage_ratio", "engine_max_concurrency", "build_info"} == set()
    loaded = metrics(Snapshot(3, 4, True, 2, 5, INFO))
    loaded.engine_stats = EngineStats(
        memory_bytes=1000,
        memory_peak_bytes=1500,
        cpu_seconds=2.5,
        device_memory_bytes=2000,
        device_memory_peak_bytes=2500,
        kv_cache_usage=0.25,
    )
    seen = scraped(loaded)
    assert seen["engine_memory_bytes", ""] == 1000
    assert seen["engine_memory_peak_bytes", ""] == 1500
    assert seen["engine_cpu_seconds_total", ""] == 2.5
    assert seen["engine_device_memory_bytes", ""] == 2000
    assert seen["engine_device_memory_peak_bytes", ""] == 2500
    assert seen["kv_cache_usage_ratio", ""] == 0.25
    assert seen["engine_max_concurrency", ""] == 8
    assert seen["requests_running", ""] == 3
    assert seen["requests_waiting", ""] == 4
    assert seen["engine_ready", ""] == 1
    assert seen["engine_restarts_total", ""] == 2
    assert seen["engine_replicas", ""] == 5
    assert seen["build_info", ""] == 1


def test_every_outcome_is_there_from_the_start() -> None:
    seen = scraped(metrics())
    outcomes = {outcome for name, outcome in seen if name == "requests_total"}
    assert outcomes == {"ok", "cancelled", "rejected", "bad_request", "timeout", "engine_error", "unavailable"}
    assert sum(value for (name, _), value in seen.items() if name == "requests_total") == 0
