"""The numbers of a report, computed again from `requests*.jsonl` by code that shares nothing with the analysis.

Of synthetic records with every outcome. A real run is in tests/loadtests/scenarios/test_ruler.py."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from enginebench import app
from tests.support.analysis import recompute
from tests.support.analysis.recompute import NS, Line
from tests.support.analysis.synthetic import FAILED, NOTHING_CAME, Engine, record, simulate


def report(*arguments: str | Path) -> None:
    done = CliRunner().invoke(app, ["report", *map(str, arguments), "--allow-invalid"])
    assert done.exit_code in {0, 1}, done.output


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
        {"first_chunk_tokens": None, "output_tokens": 7},
        {"stamps": "user"},
        {"output_tokens": 40, "unseen_tokens": 37, "reasoning_tokens": 37},
        {"chunks": 1, "icl": (), "output_tokens": 1},
        {"output_tokens": None, "token_source": None, "text": "nobody counts these"},
    ]
    with (folder / "requests-1.jsonl").open("w") as file:
        for index in range(3 * len(odd)):
            t = 2 * NS + index * 400_000_000
            changes = odd[index % len(odd)]
            one = msgspec.structs.replace(record(10_000 + index, t, t_send=t + 50_000, worker="1"), **changes)
            file.write(one.to_line())
        file.write(one.to_line()[:200])
    return folder


@pytest.fixture(scope="module")
def checked(synthetic: Path) -> tuple[dict[str, Any], list[Line], list[dict[str, Any]], Path]:
    """`summary.json`, the lines it was made of, the stages as planned, and the folder."""
    report(synthetic, "--slo", "ttft_p90=0.05", "--slo", "e2e_p50=0.08")
    summary = json.loads((synthetic / "summary.json").read_text())
    plan = json.loads((synthetic / "meta.json").read_text())["stages"]
    assert len(summary["stages"]) == len(plan) == 2
    return summary, recompute.lines_of(synthetic), plan, synthetic


Checked = tuple[dict[str, Any], list[Line], list[dict[str, Any]], Path]


def windows(checked: Checked) -> list[tuple[dict[str, Any], int, int, list[Line]]]:
    """Each stage of the summary, its window, and the requests that were due in it."""
    summary, lines, plan, _ = checked
    return [
        (stage, planned["steady_start"], planned["steady_end"], inside(lines, "t_sched", planned))
        for stage, planned in zip(summary["stages"], plan, strict=True)
    ]


def inside(lines: list[Line], stamp: str, planned: dict[str, Any]) -> list[Line]:
    return [
        line
        for line in lines
        if line[stamp] is not None and planned["steady_start"] <= line[stamp] < planned["steady_end"]
    ]


def well(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["outcome"] == "ok"]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def test_counts(checked: Checked) -> None:
    for stage, start, end, due in windows(checked):
        assert (stage["start"], stage["end"]) == (start / NS, end / NS)
        cut = [line for line in due if line["outcome"] == "cut_off"]
        failed = len(due) - len(cut) - len(well(due))
        counted = (stage["requests"], stage["ok"], stage["failed"], stage["cut_off"])
        assert counted == (len(due), len(well(due)), failed, len(cut))
        outcomes = [line["outcome"] for line in due]
        assert stage["outcomes"] == {outcome: outcomes.count(outcome) for outcome in set(outcomes)}
        share = stage["failure_share"]
        assert share["value"] == pytest.approx(failed / (len(due) - len(cut)))
        assert share["low"] is None or share["low"] <= share["value"] <= share["high"]
        assert stage["reconnected"] == sum(line["t_connect"] is not None for line in due)


@pytest.mark.parametrize("metric", list(recompute.METRICS))
def test_latencies(checked: Checked, metric: str) -> None:
    of = recompute.METRICS[metric]
    for stage, _, _, due in windows(checked):
        reported = stage["latencies"][metric]
        if metric.endswith("lag"):
            values = [(value, False) for value in map(of, due) if value is not None]
        else:
            values = recompute.attempted(due, metric)
        known = [value for value in map(of, due if metric.endswith("lag") else well(due)) if value is not None]
        assert reported["n"] == len(values)
        assert reported["mean"] == pytest.approx(mean(known))
        assert reported["deviation"] == pytest.approx(statistics.stdev(known))
        assert (reported["least"], reported["largest"]) == pytest.approx((min(known), max(known)))
        for percent in (50, 90, 95, 99):
            estimate, expected = reported[f"p{percent}"], recompute.percentile_of(values, percent)
            if expected is None or math.isinf(expected):
                assert estimate["value"] is None
                assert estimate["why"] == ("depends on cut-off requests" if expected is None else "failed")
                continue
            assert estimate["value"] == pytest.approx(expected)
            if estimate["low"] is not None:
                assert estimate["low"] <= estimate["value"] <= (estimate["high"] or math.inf)
        if reported["answered"]:
            assert reported["answered"]["p95"] == pytest.approx(recompute.nearest_rank(known, 95))


def test_chunk_gaps(checked: Checked) -> None:
    for stage, _, _, due in windows(checked):
        gaps = [gap / NS for line in well(due) for gap in line["icl"]]
        reported = stage["latencies"]["icl"]
        assert (reported["n"], reported["mean"]) == (len(gaps), pytest.approx(mean(gaps)))
        for percent in (50, 90, 95, 99):
            assert reported[f"p{percent}"]["value"] == pytest.approx(recompute.nearest_rank(gaps, percent))


def test_throughput(checked: Checked) -> None:
    _, lines, plan, _ = checked
    for (stage, start, end, due), planned in zip(windows(checked), plan, strict=True):
        length = (end - start) / NS
        edges = [start + (end - start) * k // 80 for k in range(81)]
        parts = [recompute.tokens_between(lines, a, b) / ((b - a) / NS) for a, b in pairwise(edges)]
        assert stage["series"]["throughput"] == pytest.approx(parts)
        assert stage["throughput"]["value"] == pytest.approx(recompute.tokens_between(lines, start, end) / length)
        low, high = stage["throughput"]["low"], stage["throughput"]["high"]
        if low is not None:  # users in lock step have no interval
            assert low <= stage["throughput"]["value"] <= high
        assert stage["offered_rate"] == pytest.approx(len(due) / length)
        assert stage["achieved_rate"] == pytest.approx(len(well(inside(lines, "t_end", planned))) / length)
        median = recompute.percentile_of(recompute.attempted(due, "tpot"), 50)
        assert median is not None
        assert stage["user_throughput"] == pytest.approx(1 / median)


def test_concurrency(checked: Checked) -> None:
    _, lines, plan, _ = checked
    for (stage, start, end, _), planned in zip(windows(checked), plan, strict=True):
        assert stage["concurrency"]["average"] == pytest.approx(recompute.in_flight(lines, start, end))
        arrived = inside(lines, "t_send", planned)
        stay = mean([(line["t_end"] - line["t_send"]) / NS for line in arrived])
        assert (end - start) / NS >= 5 * stay
        assert stage["concurrency"]["little"] == pytest.approx(len(arrived) / ((end - start) / NS) * stay)


def test_answers(checked: Checked) -> None:
    for stage, _, _, due in windows(checked):
        counts = [line["output_tokens"] for line in well(due)]
        known = [count for count in counts if count is not None]
        streamed = [line for line in well(due) if line["chunks"] and line["output_tokens"] is not None]
        answers = stage["answers"]
        assert answers["output_tokens"] == pytest.approx(mean(known))
        assert answers["prompt_tokens"] == pytest.approx(mean([line["prompt_tokens"] for line in well(due)]))
        chunks = sum(line["chunks"] for line in streamed)
        seen = sum(line["output_tokens"] - line["unseen_tokens"] for line in streamed)
        assert answers["per_chunk"] == pytest.approx(seen / chunks)
        assert answers["uncounted"] == len(counts) - len(known)


def test_ttft_parts(checked: Checked) -> None:
    for stage, _, _, due in windows(checked):
        told = [line for line in well(due) if line["server_queue"] is not None and recompute.ttft(line) is not None]
        assert told
        queue, prefill = (mean([line[name] for line in told]) for name in ("server_queue", "server_prefill"))
        whole = mean([recompute.ttft(line) or 0.0 for line in told])
        parts = [stage["ttft_parts"][name] for name in ("queue", "prefill", "delivery")]
        assert parts == pytest.approx([queue, prefill, whole - queue - prefill], abs=1e-9)


def test_attainment(checked: Checked) -> None:
    """A request that was cut off is good or bad where that is known, and else left out."""

    def good(line: Line, metric: str, limit: float) -> bool | None:
        if line["outcome"] == "cut_off":
            least, stopped = recompute.bound(line, metric)
            return False if least > limit else None if stopped else True
        value = recompute.METRICS[metric](line)
        return line["outcome"] == "ok" and value is not None and value <= limit

    for stage, start, end, due in windows(checked):
        quick = [good(line, "ttft_user", 0.05) for line in due]
        short = [good(line, "e2e_user", 0.08) for line in due]
        attainment = stage["attainment"]
        shares = [mean([float(one) for one in each if one is not None]) for each in (quick, short)]
        assert [v["share"]["value"] for v in attainment["verdicts"]] == pytest.approx(shares)
        for verdict, q in zip(attainment["verdicts"], (0.9, 0.5), strict=True):
            share = verdict["share"]
            low, high = (0.0, 1.0) if share["low"] is None else (share["low"], share["high"])
            expected = "met" if low >= q else "missed" if high < q else "not enough evidence"
            assert verdict["answer"] in {expected, "not enough evidence"}
        both = sum(bool(a and b) for a, b in zip(quick, short, strict=True))
        assert attainment["goodput"]["value"] == pytest.approx(both / ((end - start) / NS))


def test_flow(checked: Checked) -> None:
    summary, lines, _, _ = checked
    step = summary["flow"]["step"]
    for k in range(0, len(summary["flow"]["in_flight"]), 7):
        a, b = round(k * step * NS), round((k + 1) * step * NS)
        assert summary["flow"]["in_flight"][k] == pytest.approx(recompute.in_flight(lines, a, b))
        assert summary["flow"]["throughput"][k] == pytest.approx(recompute.tokens_between(lines, a, b) / step)


class Results(HTMLParser):
    """The rows of the page's table of results: (value in the page's source, text that is shown) per cell."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[tuple[float, str]]] = []
        self._inside = False
        self._value: float | None = None

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "table":
            self._inside = given.get("class") == "results"
        elif self._inside and tag == "tr":
            self.rows.append([])
        elif self._inside and tag == "data":
            self._value = float(given["value"] or "nan")

    def handle_data(self, data: str) -> None:
        if self._value is not None:
            self.rows[-1].append((self._value, data.strip()))
            self._value = None


def test_the_page_shows_the_numbers_of_the_summary(checked: Checked) -> None:
    summary, _, _, folder = checked
    page, text = Results(), (folder / "report.html").read_text()
    page.feed(text)
    headline = "ttft_user" if "ms, user" in text else "ttft"
    rows = [row for row in page.rows if row]
    assert len(rows) == 2
    for stage, row in zip(summary["stages"], rows, strict=True):
        ttft, tpot = stage["latencies"][headline], stage["latencies"]["tpot"]
        values = [ttft["p50"]["value"], ttft["p95"]["value"], ttft["p99"]["value"], tpot["p50"]["value"]]
        durations = [value for value in values if value is not None]
        assert [value for value, _ in row] == [
            stage["requests"],
            stage["failed"],
            *durations,
            stage["throughput"]["value"],
        ]
        for value, text in row[2:-1]:  # both stages take milliseconds here
            assert float(text) == pytest.approx(1000 * value, rel=0.005)
        assert float(row[-1][1].replace(",", "")) == pytest.approx(row[-1][0], rel=0.005)
