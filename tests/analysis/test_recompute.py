"""The numbers of a report, computed again from `requests*.jsonl` by code that shares nothing with the analysis.

Of synthetic records with every outcome. A real run is in tests/loadtests/scenarios/test_ruler.py."""

import json
import math
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import summarise, write_summary
from enginebench.records.metrics import QUANTITIES, REQUEST_METRICS
from enginebench.records.slo import parse_objectives
from tests.support.analysis import recompute
from tests.support.analysis.recompute import NS, Stage
from tests.support.analysis.synthetic import FAILED, NOTHING_CAME, Engine, record, simulate

LIMITS = {"ttft": 0.05, "e2e": 0.08}


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps with every outcome, whole answers, several tokens a chunk, missing usage and a line cut short."""
    engine = Engine("fake", slots=6, prefill=0.02, tpot=0.004, tokens=13, tokens_per_chunk=3, failures=0.03, noise=0.4)
    folder = simulate(
        tmp_path_factory.mktemp("runs") / "synthetic", engine, (4, 12), 9.0, model="unheard-of"
    )  # it has no tokenizer
    odd: list[dict[str, Any]] = [
        FAILED | {"outcome": "http_error", "status": 500, "detail": "boom"},
        FAILED | {"outcome": "timeout", "status": None, "detail": None},
        FAILED | {"outcome": "disconnected", "status": None, "detail": None, "t_send": None},
        {"outcome": "bad_stream", "detail": "not JSON"},
        {"outcome": "disconnected", "output_tokens": None, "token_source": None, "text": "half an answer"},
        {"outcome": "cut_off", **NOTHING_CAME},
        {"streamed": False, "t_first": None, "t_first_out": None, "icl": (), "chunks": 0, "first_chunk_tokens": None},
        {"first_chunk_tokens": None, "output_tokens": 7, "correct": False},
        {"stamps": "user", "correct": True},
        {"output_tokens": 40, "unseen_tokens": 37, "reasoning_tokens": 37},
        {"chunks": 1, "icl": (), "output_tokens": 1},
        {"output_tokens": None, "token_source": None, "text": "nobody counts these"},
        {"planned_output_tokens": 16, "cached_tokens": 10, "attempt": 1, "merged_first": True},
        {"server_queue": 0.02, "server_prefill": 0.05, "round_trip": 0.001},
        {"round_trip": 0.004},
        {"t_connect": True},  # shortly before it was sent
        {"t_connect": True, "outcome": "timeout"},
    ]
    with (folder / "requests-1.jsonl").open("w") as file:
        for index in range(3 * len(odd)):
            t = 2 * NS + index * 320_000_000
            changes = odd[index % len(odd)]
            changes = changes | {"t_connect": t + 100 * index} if "t_connect" in changes else changes
            one = msgspec.structs.replace(record(10_000 + index, t, t_send=t + 50_000, worker="1"), **changes)
            file.write(one.to_line())
        file.write(one.to_line()[:200])
    powered = [
        sample | {"server": sample["server"] | {
            'enginebench_gpu_power_watts{gpu="0"}': 100.0 + 7 * (k % 5),
            "vllm:spec_decode_num_drafts_total": 10.0 * k,
            "vllm:spec_decode_num_draft_tokens_total": 40.0 * k,
            "vllm:spec_decode_num_accepted_tokens_total": 25.0 * k,
        }}
        for k, sample in enumerate(recompute.samples_of(folder))
    ]  # fmt: skip
    (folder / "telemetry.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in powered))
    return folder


@pytest.fixture(scope="module")
def summary(synthetic: Path) -> dict[str, Any]:
    """`summary.json`."""
    objectives = parse_objectives([f"{name}_p90={limit}" for name, limit in LIMITS.items()])
    written: dict[str, Any] = json.loads(write_summary(summarise(load_run(synthetic), objectives)).read_text())
    return written


@pytest.fixture(scope="module")
def stages(synthetic: Path) -> list[Stage]:
    """What was recorded in the window of each stage."""
    meta = json.loads((synthetic / "meta.json").read_text())
    lines, samples = recompute.lines_of(synthetic), recompute.samples_of(synthetic)
    limits = {f"{name}_user": limit for name, limit in LIMITS.items()}
    return [
        Stage(lines, samples, meta, stage["steady_start"], stage["steady_end"], stage["plan"]["load"]["count"], limits)
        for stage in meta["stages"]
    ]


Pair = tuple[dict[str, Any], Stage]


@pytest.fixture(scope="module")
def pairs(summary: dict[str, Any], stages: list[Stage]) -> list[Pair]:
    """Each stage as it was written, and as it was recorded."""
    assert len(stages) == 2
    return list(zip(summary["stages"], stages, strict=True))


def test_every_declared_number_is_computed_again() -> None:
    assert set(recompute.METRICS) == {metric.name for metric in REQUEST_METRICS}
    assert set(recompute.QUANTITIES) == {quantity.name for quantity in QUANTITIES}
    populations = {metric.name: metric.population for metric in REQUEST_METRICS}
    assert {name for name, population in populations.items() if population == "sent"} == set(recompute.SENT)
    assert {name for name, population in populations.items() if population == "answered"} == set(recompute.ANSWERED)


def test_outcomes(pairs: list[Pair]) -> None:
    for written, stage in pairs:
        assert (written["start"], written["end"]) == (stage.start / NS, stage.end / NS)
        outcomes = [line["outcome"] for line in stage.due]
        assert written["outcomes"] == {outcome: outcomes.count(outcome) for outcome in set(outcomes)}
        assert len(set(outcomes)) == 7
        failed = [": ".join(filter(None, (line["outcome"], line["detail"]))) for line in stage.failed]
        assert written["failures"] == {
            what: failed.count(what) for what in sorted(set(failed)) if what in written["failures"]
        }
        assert len(written["failures"]) == min(5, len(set(failed)))


@pytest.mark.parametrize("metric", [metric.name for metric in REQUEST_METRICS])
def test_metrics(pairs: list[Pair], metric: str) -> None:
    of = recompute.METRICS[metric]
    for written, stage in pairs:
        reported, values = written["metrics"][metric], recompute.counted(stage.due, metric)
        population = stage.due if metric in recompute.SENT else stage.ok
        known = [value for line in population if (value := of(line)) is not None]
        if metric in recompute.ANSWERED or metric in recompute.SENT:
            ended = known
        else:  # the first tokens of cut-off requests, which are known
            ended = [value for value, is_bound in values if not is_bound and math.isfinite(value)]
        assert (reported["n"], reported["failed"]) == (len(values), sum(math.isinf(value) for value, _ in values))
        assert reported["mean"] == pytest.approx(recompute.mean(ended))
        assert reported["deviation"] == pytest.approx(statistics.stdev(ended))
        assert (reported["least"], reported["largest"]) == pytest.approx((min(ended), max(ended)))
        for percent in (50, 90, 95, 99):
            estimate, expected = reported["percentiles"][f"p{percent}"], recompute.percentile_of(values, percent)
            if expected is None or math.isinf(expected):
                assert estimate["value"] is None
                assert estimate["missing"] == ("cut_off" if expected is None else "failed")
                continue
            assert estimate["value"] == pytest.approx(expected)
            if estimate["low"] is not None:
                assert estimate["low"] <= estimate["value"] <= (estimate["high"] or math.inf)
        assert (reported["answered"] is not None) == (reported["failed"] > 0)
        if reported["answered"]:
            assert reported["answered"]["p95"] == pytest.approx(recompute.nearest_rank(ended, 95))
        if metric in written["curves"]:
            curve = written["curves"][metric]
            assert curve[:99] == pytest.approx([recompute.nearest_rank(known, percent) for percent in range(1, 100)])
            assert curve[-1] == pytest.approx(max(known))


def test_chunk_gaps(pairs: list[Pair]) -> None:
    for written, stage in pairs:
        gaps = [gap / NS for line in stage.ok for gap in line["icl"]]
        reported = written["metrics"]["icl"]
        assert (reported["n"], reported["mean"]) == (len(gaps), pytest.approx(recompute.mean(gaps)))
        for percent in (50, 90, 95, 99):
            value = reported["percentiles"][f"p{percent}"]["value"]
            assert value == pytest.approx(recompute.nearest_rank(gaps, percent))


@pytest.mark.parametrize("quantity", [quantity.name for quantity in QUANTITIES])
def test_quantities(pairs: list[Pair], quantity: str) -> None:
    for written, stage in pairs:
        expected, estimate = recompute.QUANTITIES[quantity](stage), written["quantities"].get(quantity)
        assert expected is not None, "the records of this test have everything"
        assert estimate is not None
        assert estimate["value"] == pytest.approx(expected, abs=1e-12)
        if estimate["low"] is not None:  # users in lock step have no interval
            assert estimate["low"] <= estimate["value"] <= estimate["high"]


def test_counts(pairs: list[Pair]) -> None:
    for written, stage in pairs:
        long = [
            line for line in stage.ok if line["streamed"] and (line["output_tokens"] or 0) - line["unseen_tokens"] >= 8
        ]
        planned = [line for line in stage.ok if line["planned_output_tokens"] and line["output_tokens"] is not None]
        expected = {
            "retried": sum(line["attempt"] > 0 for line in stage.due),
            "reconnected": sum(line["t_connect"] is not None for line in stage.due),
            "resent": 0,
            "merged_first": sum(line["merged_first"] for line in stage.ok),
            "usage_refused": sum(line["reported_tokens"] is not None for line in stage.ok),
            "counted_by_tokenizer": 0,
            "uncounted": sum(line["output_tokens"] is None for line in stage.ok),
            "cut_short": sum(line["output_tokens"] < 0.9 * line["planned_output_tokens"] for line in planned),
            "streams": len(long),
            "at_once": sum(line["chunks"] == 1 or (recompute.tpot(line) or 1) < 1e-4 for line in long),
        }
        assert {name: written["counts"][name] for name in expected} == expected


def test_judgements(pairs: list[Pair]) -> None:
    """A request that was cut off is good or bad where that is known, and else left out."""
    for written, stage in pairs:
        for judgement, (metric, limit) in zip(written["judgements"], stage.objectives.items(), strict=True):
            answers = [recompute.good(line, metric, limit) for line in stage.due]
            share = judgement["share"]
            assert share["value"] == pytest.approx(recompute.mean([float(one) for one in answers if one is not None]))
            low, high = (0.0, 1.0) if share["low"] is None else (share["low"], share["high"])
            expected = "met" if low >= 0.9 else "missed" if high < 0.9 else "not confirmed"
            assert judgement["answer"] in {expected, "not confirmed"}


def test_series(pairs: list[Pair]) -> None:
    for written, stage in pairs:
        edges = [stage.start + (stage.end - stage.start) * k // 80 for k in range(81)]
        parts = list(pairwise(edges))
        series = written["series"]
        tokens = [recompute.tokens_between(stage.lines, a, b) / ((b - a) / NS) for a, b in parts]
        assert series["throughput"] == pytest.approx(tokens)
        assert series["in_flight"] == pytest.approx([recompute.in_flight(stage.lines, a, b) for a, b in parts])
        since_due = "ttft_user" if written["is_open"] else "ttft"
        for name in (since_due, "tpot"):
            of = recompute.METRICS[name]
            by_part = [[of(line) for line in stage.ok if a <= line["t_sched"] < b] for a, b in parts]
            means = [recompute.mean([value for value in values if value is not None]) for values in by_part]
            assert series[name] == pytest.approx(means)


def test_gauges(pairs: list[Pair]) -> None:
    for written, stage in pairs:
        watts = [sum(v for k, v in s["server"].items() if "power_watts" in k) for s in stage.sampled]
        gauge = written["gauges"]["gpu_power_watts"]
        assert (gauge["mean"], gauge["peak"]) == (pytest.approx(recompute.mean(watts)), max(watts))
        lag = written["gauges"]["loop_lag"]
        assert lag["mean"] == pytest.approx(recompute.mean([s["loop_lag"] for s in stage.sampled]))


def test_flow(summary: dict[str, Any], stages: list[Stage]) -> None:
    lines, step = stages[0].lines, summary["flow"]["step"]
    for k in range(0, len(summary["flow"]["in_flight"]), 7):
        a, b = round(k * step * NS), round((k + 1) * step * NS)
        assert summary["flow"]["in_flight"][k] == pytest.approx(recompute.in_flight(lines, a, b))
        assert summary["flow"]["throughput"][k] == pytest.approx(recompute.tokens_between(lines, a, b) / step)
