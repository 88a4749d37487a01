"""Results of other tools as runs: their numbers come out again, and what they lack is said and never guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from analysis.cli import app
from analysis.run.load import load_run
from analysis.verdict.stages.stage import StageSummary
from analysis.verdict.summary import RunSummary, read_summary, summarise
from records.files import read_meta, read_requests
from records.load import Rate, Users
from tests.support.analysis import other_tools


def imported(output: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["import", *arguments, "--output", str(output)])


def run_of(output: Path, *arguments: str) -> tuple[RunSummary, StageSummary]:
    """The only run that was imported, and its only stage."""
    result = imported(output, *arguments)
    assert result.exit_code == 0, result.output
    (folder,) = output.iterdir()
    summary = summarise(load_run(folder)) if (folder / "meta.json").exists() else read_summary(folder)
    (stage,) = summary.stages
    return summary, stage


def said(summary: RunSummary) -> str:
    (finding,) = [finding for finding in summary.findings if finding.kind == "imported"]
    assert finding.severity == "note"
    return finding.evidence


def test_guidellm(tmp_path: Path) -> None:
    """40 requests every 0.25 s of 100 + 10 tokens, four streams; three more failed."""
    file = other_tools.guidellm(tmp_path / "benchmarks.json", failed=3)
    summary, stage = run_of(tmp_path / "runs", str(file))
    assert (summary.scenario, summary.label, summary.model) == ("guidellm", "tiny", "acme/tiny")
    assert (stage.label, stage.ok, stage.failed) == ("4 users", 40, 3)
    assert stage.latencies["ttft"].p50.value == pytest.approx(0.2)
    assert stage.latencies["tpot"].p50.value == pytest.approx(0.1)
    assert stage.latencies["e2e"].answered is not None
    assert stage.latencies["e2e"].answered["p95"] == pytest.approx(1.1)
    assert stage.throughput.value == pytest.approx(400 / 11.1, rel=0.01)
    assert stage.answers.prompt_tokens == 100
    assert "inter-chunk latencies" in said(summary)
    assert stage.latencies["icl"].p50.value is None


def test_a_sample_of_the_requests_is_told(tmp_path: Path) -> None:
    file = other_tools.guidellm(tmp_path / "benchmarks.json", kept=10)
    summary, _ = run_of(tmp_path / "runs", str(file))
    assert "30 of 40 requests of benchmark 1" in said(summary)


def test_vllm_with_its_requests(tmp_path: Path) -> None:
    summary, stage = run_of(tmp_path / "runs", str(other_tools.vllm_bench(tmp_path / "vllm.json")))
    assert (stage.label, stage.ok, stage.failed) == ("4 users", 40, 0)
    assert stage.latencies["ttft"].p99.value == pytest.approx(0.1)
    assert stage.latencies["tpot"].p50.value == pytest.approx(0.05)
    assert stage.latencies["e2e"].p50.value == pytest.approx(0.3)
    assert stage.latencies["icl"].p50.value == pytest.approx(0.05)
    assert stage.throughput.value == pytest.approx(200 / 3.0, rel=0.01)
    assert "when a request was due" in said(summary)
    assert stage.latencies["client_lag"].n == 0


def test_vllm_without_its_requests_keeps_its_aggregates(tmp_path: Path) -> None:
    summary, stage = run_of(tmp_path / "runs", str(other_tools.vllm_bench(tmp_path / "vllm.json", detailed=False)))
    assert "single requests (run `vllm bench serve` with --save-detailed)" in said(summary)
    assert (stage.label, stage.requests) == ("4 users", 40)
    assert stage.throughput.value == pytest.approx(200 / 3.3)
    ttft = stage.latencies["ttft"]
    assert ttft.p50.value == pytest.approx(0.1)
    assert ttft.p95.value is None, "the file has p99 alone"
    assert ttft.p99.value == pytest.approx(0.1)
    assert (ttft.p50.low, ttft.p50.why) == (None, "imported aggregates")
    assert stage.latencies["e2e"].p50.value is None


def test_aiperf(tmp_path: Path) -> None:
    """Its .jsonl has the requests; model and concurrency stand in the .json beside it."""
    summary, stage = run_of(tmp_path / "runs", str(other_tools.aiperf(tmp_path)))
    assert (summary.model, stage.label, stage.ok, stage.outcomes) == (
        "acme/tiny",
        "2 users",
        19,
        {"ok": 19, "rejected": 1},
    )
    assert stage.latencies["ttft"].p50.value == pytest.approx(0.05)
    assert stage.latencies["tpot"].p50.value == pytest.approx(0.02)
    records = list(read_requests(summary.folder))
    assert records[0].prompt_id == "c0/0"
    assert records[0].t_headers == 30_000_000


def test_aiperf_aggregates(tmp_path: Path) -> None:
    other_tools.aiperf(tmp_path)
    summary, stage = run_of(tmp_path / "runs", str(tmp_path / "profile_export_aiperf.json"))
    assert stage.latencies["ttft"].p95.value == pytest.approx(0.052)
    assert stage.throughput.value == pytest.approx(57.5)
    assert "single requests (import profile_export.jsonl)" in said(summary)


def test_locust(tmp_path: Path) -> None:
    summary, stage = run_of(tmp_path / "runs", str(other_tools.locust(tmp_path)), "--label", "gateway")
    assert (summary.label, stage.label, stage.ok, stage.failed) == ("gateway", "5 users", 48, 2)
    e2e = stage.latencies["e2e"]
    assert e2e.p50.value == pytest.approx(0.12)
    assert e2e.p95.value == pytest.approx(0.3)
    assert e2e.p99.value == pytest.approx(0.4)
    assert stage.achieved_rate == pytest.approx(4.8)
    assert (stage.throughput.value, stage.latencies["ttft"].p50.value) == (None, None)
    assert "TTFT, TPOT or tokens" in said(summary)
    assert "latencies of the answered requests alone: those that failed are among them" in said(summary)
    assert (e2e.n, e2e.answered) == (50, None), "Locust's percentiles are of all requests, failed ones too"


def test_k6_points(tmp_path: Path) -> None:
    summary, stage = run_of(tmp_path / "runs", str(other_tools.k6(tmp_path / "k6.json")))
    assert (stage.label, stage.ok, stage.outcomes) == ("3 users", 11, {"ok": 11, "rejected": 1})
    assert stage.latencies["e2e"].p50.value == pytest.approx(0.1)
    assert stage.latencies["ttft"].p50.value is None
    one = next(read_requests(summary.folder))
    assert (one.t_send, one.t_headers, one.t_last) == (0, 41_000_000, 100_000_000)
    assert summary.started_at == "2026-10-09T09:59:59.923457+00:00"


def test_k6_summary(tmp_path: Path) -> None:
    summary, stage = run_of(tmp_path / "runs", str(other_tools.k6_summary(tmp_path / "summary.json")))
    assert (stage.requests, stage.failed) == (120, 6)
    assert stage.end == pytest.approx(10)
    assert stage.latencies["e2e"].p95.value == pytest.approx(0.15)
    assert stage.latencies["e2e"].p99.value is None
    assert "--out json=FILE" in said(summary)
    assert "latencies of the answered requests alone" in said(summary)


def test_k6_summary_has_the_answered_requests_alone(tmp_path: Path) -> None:
    """http_req_duration has the failed ones too, which are often quick."""
    file = other_tools.k6_summary(tmp_path / "summary.json")
    document = json.loads(file.read_text())
    answered = {"avg": 110.0, "min": 90.0, "med": 99.0, "max": 300.0, "p(90)": 125.0, "p(95)": 160.0, "p(99)": 290.0}
    document["metrics"]["http_req_duration{expected_response:true}"] = answered
    file.write_text(json.dumps(document))
    summary, stage = run_of(tmp_path / "runs", str(file))
    e2e = stage.latencies["e2e"]
    assert e2e.answered == pytest.approx({"p50": 0.099, "p90": 0.125, "p95": 0.16, "p99": 0.29})
    assert e2e.n == 114
    assert e2e.mean == pytest.approx(0.11)
    assert "latencies of the answered requests alone" not in said(summary)


@pytest.mark.parametrize(
    ("burstiness", "arrivals"),
    [pytest.param(1.0, "poisson", id="shape 1"), pytest.param(0.25, "gamma:cv=2", id="shape 1/4")],
)
def test_vllms_burstiness_is_the_shape_of_its_gaps(tmp_path: Path, burstiness: float, arrivals: str) -> None:
    file = other_tools.vllm_bench(tmp_path / "vllm.json")
    document = json.loads(file.read_text()) | {"request_rate": 8.0, "burstiness": burstiness}
    file.write_text(json.dumps(document))
    summary, _ = run_of(tmp_path / "runs", str(file))
    assert read_meta(summary.folder).plan[0].load == Rate(8.0, arrivals)


def test_a_ramp_of_vllm_is_not_taken_for_users(tmp_path: Path) -> None:
    file = other_tools.vllm_bench(tmp_path / "vllm.json")
    ramp = {"max_concurrency": None, "ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 9}
    file.write_text(json.dumps(json.loads(file.read_text()) | ramp))
    result = imported(tmp_path / "runs", str(file))
    assert (result.exit_code, "does not state its load" in result.stderr) == (2, True)


def test_imported_runs_are_compared(tmp_path: Path) -> None:
    """Three runs each of two labels, of aggregates alone."""
    for label, factor in (("old", 1.0), ("new", 0.5)):
        files = []
        for k in range(3):
            file = other_tools.vllm_bench(tmp_path / f"{label}-{k}.json", detailed=False)
            document = json.loads(file.read_text())
            for name in ("median_ttft_ms", "median_tpot_ms"):
                document[name] *= factor * (1 + 0.01 * k)
            file.write_text(json.dumps(document))
            files.append(str(file))
        assert imported(tmp_path / "runs", *files, "--label", label).exit_code == 0
    result = CliRunner().invoke(app, ["compare", str(tmp_path / "runs"), "--baseline", "old", "--json"])
    assert result.exit_code == 0, result.output
    (stage,) = json.loads(result.stdout)["stages"]
    found = {one["measure"]: one for one in stage["contrasts"]}
    assert found["ttft p50"]["ratio"]["value"] == pytest.approx(2)
    assert found["ttft p50"]["verdict"] == "better"
    assert "e2e p50" not in found


def test_a_report_needs_requests(tmp_path: Path) -> None:
    run_of(tmp_path / "runs", str(other_tools.locust(tmp_path)))
    (folder,) = (tmp_path / "runs").iterdir()
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert result.exit_code == 2
    assert "has a summary and no requests: compare it with `enginebench compare`" in " ".join(result.stderr.split())


def test_an_imported_run_is_reported_on(tmp_path: Path) -> None:
    run_of(tmp_path / "runs", str(other_tools.vllm_bench(tmp_path / "vllm.json")))
    (folder,) = (tmp_path / "runs").iterdir()
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert result.exit_code == 0, result.output
    assert "imported from vllm.json" in " ".join(result.stdout.split())
    assert (folder / "report.html").stat().st_size > 10_000


def test_a_load_that_the_file_does_not_say_is_asked_for(tmp_path: Path) -> None:
    file = other_tools.locust(tmp_path)
    (tmp_path / "load_stats_history.csv").unlink()
    result = imported(tmp_path / "runs", str(file))
    assert result.exit_code == 2
    assert "does not state its load: add --users N or --rate REQUESTS_PER_SECOND." in result.stderr
    _, stage = run_of(tmp_path / "runs", str(file), "--rate", "5")
    assert (stage.label, stage.is_open) == ("5 req/s", True)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.json", "{}", "has an unknown format; known are guidellm's benchmarks.json"),
        ("a.json", "{", "is not JSON"),
        ("a.csv", "a,b\n", "is not Locust's PREFIX_stats.csv"),
        ("a.json", '{"benchmarks": [{"requests": {}}]}', "cannot be read (KeyError('start_time'))"),
    ],
)
def test_other_files_are_refused_in_a_sentence(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / name).write_text(text)
    result = imported(tmp_path / "runs", str(tmp_path / name))
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.output


def test_importing_again_replaces_the_run(tmp_path: Path) -> None:
    files = [str(other_tools.k6_summary(tmp_path / f"{name}.json")) for name in ("one", "two")]
    for _ in range(2):
        for file in files:
            assert imported(tmp_path / "runs", file, "--label", "gateway").exit_code == 0
    names = sorted(folder.name.rpartition("-")[0] for folder in (tmp_path / "runs").iterdir())
    assert names == ["undated-gateway-one", "undated-gateway-two"]


def test_repeats_in_files_of_the_same_name_all_stay(tmp_path: Path) -> None:
    """k6's summaries have no date: nothing but their contents tells them apart."""
    files = []
    for name, median in (("one", 98.0), ("two", 99.0)):
        (tmp_path / name).mkdir()
        file = other_tools.k6_summary(tmp_path / name / "summary.json")
        file.write_text(file.read_text().replace("98.0", str(median)))
        files.append(str(file))
    assert imported(tmp_path / "runs", *files, "--label", "gateway").exit_code == 0
    medians = [
        read_summary(folder).stages[0].latencies["e2e"].p50.value for folder in sorted((tmp_path / "runs").iterdir())
    ]
    assert sorted(value or 0.0 for value in medians) == pytest.approx([0.098, 0.099])


def test_json_lines_end_at_line_feeds_alone(tmp_path: Path) -> None:
    """An unescaped U+2028 or U+0085 in an error's message is allowed in JSON."""
    file = other_tools.aiperf(tmp_path)
    file.write_text(file.read_text().replace('"full"', '"full\u2028up\u0085"'), encoding="utf-8")
    _, stage = run_of(tmp_path / "runs", str(file))
    assert (stage.ok, stage.failed) == (19, 1)


@pytest.mark.parametrize("source", [other_tools.aiperf, other_tools.locust])
def test_a_file_in_another_encoding_is_refused_in_one_sentence(tmp_path: Path, source: Callable[[Path], Path]) -> None:
    file = source(tmp_path)
    file.write_bytes(file.read_bytes() + b"\xe9")
    result = imported(tmp_path / "runs", str(file))
    assert (result.exit_code, result.stderr) == (2, f"{file} is not text in UTF-8: convert it first.\n")


def test_the_first_token_after_the_reasoning_is_that_of_aiperf(tmp_path: Path) -> None:
    file = other_tools.aiperf(tmp_path)
    text = file.read_text()
    file.write_text(
        text.replace(
            '"request_latency"', '"time_to_first_output_token": {"value": 70.0, "unit": "ms"}, "request_latency"'
        )
    )
    summary, _ = run_of(tmp_path / "runs", str(file))
    one = next(read_requests(summary.folder))
    assert (one.t_first, one.t_first_out) == (50_000_000, 70_000_000)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = imported(tmp_path / "runs", str(tmp_path / "none.json"))
    assert result.exit_code == 2
    assert "No such file" in result.stderr


def test_the_run_says_where_it_is_from(tmp_path: Path) -> None:
    summary, _ = run_of(tmp_path / "runs", str(other_tools.vllm_bench(tmp_path / "vllm.json")))
    meta = read_meta(summary.folder)
    assert meta.imported is not None
    assert (meta.imported.tool, meta.imported.file) == ("vllm bench serve", "vllm.json")
    assert meta.plan[0].load == Users(4)


def test_no_color_is_obeyed(tmp_path: Path) -> None:
    words = ["import", "nosuch.json", "--output", str(tmp_path)]
    wanted = "nosuch.json: No such file or directory."
    colours: dict[str, str | None] = {"yes": None, "no": "1"}
    told = {
        colour: CliRunner().invoke(app, words, env={"FORCE_COLOR": "1", "NO_COLOR": value}, color=True).stderr
        for colour, value in colours.items()
    }
    assert told["no"] == f"{wanted}\n"
    assert told["yes"] == f"\x1b[31m{wanted}\x1b[0m\n"
