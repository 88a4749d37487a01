"""llm-d's Benchmark Report: what is written is valid and has the report's numbers; reports of others are runs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.frame import frame_of
from enginebench.analysis.summary.run_summary import RunSummary, read_summary, summarise
from enginebench.cli import app
from enginebench.records.load import Rate
from enginebench.records.view import Missing
from tests.support.analysis import other_tools
from tests.support.analysis.synthetic import Engine, meta_of, record, simulate, stages_of, write_run
from tests.support.present import present

SLO = "ttft_p90=0.1,e2e_p95=0.4"
AGGREGATE, LOAD = "results.request_performance.aggregate", "scenario.load.standardized"
ENGINE = "scenario.stack.standardized"
REQUIRED = {
    "version",
    "run.uid",
    *(f"scenario.stack.metadata.{name}" for name in ("label", "cfg_id")),
    *(f"{ENGINE}.{name}" for name in ("kind", "tool", "tool_version", "role", "replicas", "model.name")),
    *(f"{ENGINE}.accelerator.{name}" for name in ("model", "count")),
    *(f"{LOAD}.{name}" for name in ("tool", "tool_version", "source")),
    *(f"{LOAD}.input_seq_len.{name}" for name in ("distribution", "value")),
    f"{AGGREGATE}.requests.total",
}
OPTIONAL = {
    *(f"run.{name}" for name in ("eid", "description", "time.start", "time.end", "time.duration")),
    *(f"{LOAD}.output_seq_len.{name}" for name in ("distribution", "value")),
    *(f"{LOAD}.{name}" for name in ("parallelism", "stage", "rate_qps", "concurrency")),
    *(f"{AGGREGATE}.requests.{name}" for name in ("failures", "incomplete")),
    "scenario.load.metadata.description",
    "results.observability.components.component_label",
}
COUNTS = {"total", "failures", "incomplete", "replicas", "count", "parallelism", "stage", "concurrency"}
STATISTICS = {"units", "mean", "stddev", "min", "p50", "p90", "p95", "p99", "max"}
UNITS = {
    **dict.fromkeys(("requests.input_length", "requests.output_length"), "count"),
    **dict.fromkeys(("latency.time_to_first_token", "latency.request_latency"), "s"),
    **dict.fromkeys(("latency.time_per_output_token", "latency.inter_token_latency"), "s/token"),
    "latency.normalized_time_per_output_token": "s/token",
    "throughput.output_token_rate": "tokens/s",
    "throughput.request_rate": "queries/s",
    **dict.fromkeys(("aggregate.kv_cache_usage", "aggregate.gpu_utilization"), "fraction"),
    **dict.fromkeys(("aggregate.running_requests", "aggregate.waiting_requests"), "count"),
    "aggregate.gpu_memory_usage": "bytes",
    "aggregate.power_consumption": "Watts",
}
"""What we read in llm-d-benchmark's schema_v0_2_1.py of the fields that are written; docs/reports.md says how files
were validated against the schema itself."""


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a report by their path, without the parts that the schema leaves open."""
    if path.endswith(("native.config", "observability.metadata")):
        return
    if isinstance(value, list):
        for part in value:
            yield from leaves(part, path)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}" if path else name)
    else:
        yield path, value


def command(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def reports_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("benchmark_report_v0.2.1,_stage_*.yaml"))


def imported(runs: Path, *files: Path) -> list[RunSummary]:
    result = command("import", *files, "--runs", runs)
    assert result.exit_code == 0, result.output
    return [read_summary(folder) for folder in sorted(runs.iterdir())]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of three scenarios with their reports: users with failures, arrivals on schedule, nothing but failures."""
    folder = tmp_path_factory.mktemp("runs")
    engine = Engine("fake", slots=6, prefill=0.02, tpot=0.004, tokens=13, failures=0.05, noise=0.4)
    rate = stages_of((Rate(10.0),), 20.0)
    written = {
        "users": simulate(folder / "users", engine, (4, 12), 9.0, workload={"slo": SLO}),
        "rate": write_run(folder / "rate", meta_of(rate), [record(k, k * 100_000_000) for k in range(200)], []),
        "failures": write_run(
            folder / "failures",
            meta_of(stages_of((2,), 20.0)),
            [
                record(k, k * 100_000_000, outcome="timeout", t_first=None, t_last=None, output_tokens=None)
                for k in range(200)
            ],
            [],
        ),
    }
    for run in written.values():
        result = command("report", run, "--format", "br")
        assert result.exit_code in {0, 1, 2}, result.output
        assert all(str(path.name) in result.output.replace("\n", "") for path in reports_in(run))
    return written


@pytest.mark.parametrize(("scenario", "stages"), [("users", 2), ("rate", 1), ("failures", 1)])
def test_a_report_of_each_stage_has_the_fields_of_the_format(runs: dict[str, Path], scenario: str, stages: int) -> None:
    files = reports_in(runs[scenario])
    assert len(files) == stages
    for file in files:
        values = dict(leaves(yaml.safe_load(file.read_text())))
        assert values["version"] == "0.2.1"
        assert values.keys() >= REQUIRED
        for path, value in values.items():
            parent, _, name = path.rpartition(".")
            field = ".".join(parent.split(".")[-2:])
            if field in UNITS:
                assert name in STATISTICS, path
                assert values[f"{parent}.units"] == UNITS[field], path
                assert f"{parent}.mean" in values, path
            else:
                assert path in REQUIRED | OPTIONAL, path
                assert name not in COUNTS or isinstance(value, int), path


def test_the_fields_have_the_numbers_of_the_frame(runs: dict[str, Path]) -> None:
    summary = summarise(load_run(runs["users"]))
    stage = summary.stages[1]
    report = yaml.safe_load(reports_in(runs["users"])[1].read_text())
    aggregate = report["results"]["request_performance"]["aggregate"]
    requests, ttft = aggregate["requests"], aggregate["latency"]["time_to_first_token"]
    assert (requests["total"], requests["failures"]) == (stage.requests, stage.failed)
    assert stage.failed
    answered = present(stage.metrics["ttft"].answered)
    assert [ttft[p] for p in ("p50", "p90", "p95", "p99")] == [answered[p] for p in ("p50", "p90", "p95", "p99")]
    assert (ttft["mean"], ttft["max"], ttft["units"]) == (
        stage.metrics["ttft"].mean,
        stage.metrics["ttft"].largest,
        "s",
    )
    assert aggregate["throughput"]["output_token_rate"] == {"units": "tokens/s", "mean": stage.value("throughput")}
    assert report["scenario"]["load"]["standardized"]["concurrency"] == 12
    metadata = report["results"]["observability"]["metadata"]
    (p90,) = [row for row in metadata["rows"] if (row["metric"], row["statistic"]) == ("ttft", "p90")]
    estimate = stage.estimate("ttft", "p90")
    assert (p90.get("value"), p90.get("low"), p90["n"]) == (estimate.finite.value, estimate.finite.low, estimate.n)
    (verdict,) = metadata["verdicts"]
    slo = present(frame_of([summary]).verdict("fake", "12 users"))
    assert (verdict["status"], verdict["confirmed"], verdict["share"]) == (slo.status.value, slo.confirmed, slo.share)
    assert [warning["kind"] for warning in metadata["warnings"]] == [
        finding.kind for finding in summary.findings if finding.stage in {None, stage.key}
    ]


def test_nothing_observed_is_left_out_and_not_zero(runs: dict[str, Path]) -> None:
    report = yaml.safe_load(reports_in(runs["failures"])[0].read_text())
    aggregate = report["results"]["request_performance"]["aggregate"]
    assert aggregate["latency"] == {}
    assert aggregate["requests"]["failures"] == aggregate["requests"]["total"] > 0
    assert "output_length" not in aggregate["requests"]


def test_the_fields_alone_come_back(runs: dict[str, Path], tmp_path: Path) -> None:
    """Without what only enginebench reads, as if another tool had copied the fields that the schema names."""
    file = tmp_path / "stage.json"
    report = yaml.safe_load(reports_in(runs["rate"])[0].read_text())
    del report["results"]["observability"], report["scenario"]["load"]["native"]["config"]
    file.write_text(json.dumps(report))
    (summary,) = imported(tmp_path / "runs", file)
    (stage,), (before,) = summary.stages, summarise(load_run(runs["rate"])).stages
    assert (stage.label, stage.ok, stage.failed, stage.seconds) == (before.label, before.ok, 0, before.seconds)
    for name in ("ttft", "tpot", "ntpot", "e2e"):
        assert stage.metrics[name].mean == before.metrics[name].mean
        for p in ("p50", "p90", "p95", "p99"):
            assert stage.value(name, p) == before.value(name, p)
    for name in ("throughput", "achieved_rate", "prompt_tokens", "output_tokens", "failure_share"):
        assert stage.value(name) == before.value(name)
    assert stage.value("ttft_user", "p50") is None
    assert stage.value("offered_rate") is None


def test_reports_of_another_tool(tmp_path: Path) -> None:
    (summary,) = imported(tmp_path / "runs", other_tools.benchmark_report(tmp_path / "stage.yaml"))
    (stage,) = summary.stages
    assert (summary.label, summary.model, summary.scenario) == ("tiny", "acme/tiny", "inference-perf")
    assert summary.engine == {"name": "vllm", "version": "0.20", "device": "H100"}
    assert (stage.label, stage.is_open, stage.seconds) == ("5 req/s", True, 20.0)
    assert (stage.value("ttft", "p95"), stage.value("tpot", "p99")) == pytest.approx((0.26, 0.03))
    assert (stage.value("icl", "p50"), stage.value("e2e", "p90")) == pytest.approx((0.015, 1.08))
    assert (stage.value("throughput"), stage.value("user_throughput")) == pytest.approx((150.0, 50.0))
    assert (stage.gauges["gpu_utilisation"].mean, stage.gauges["gpu_utilisation"].peak) == (0.5, 0.9)
    assert stage.estimate("ttft", "p95").low is None
    (finding,) = summary.findings
    assert finding.evidence == (
        "the run was made by inference-perf and imported from stage.yaml; it has no single requests, distributions, "
        "confidence intervals, when a request was due, kernel receive timestamps, client lag, the server's queue and "
        "prefill times, telemetry of the server, GPU and load generator and NTPOT"
    )
    shown = " ".join(command("report", "--runs", tmp_path / "runs").stdout.split())
    assert "At 5 req/s TTFT p50 is 200 ms and each user gets 50.0 tokens/s; tiny serves 150 tokens/s in all." in shown


def test_percentiles_of_the_answered_are_not_those_of_all(tmp_path: Path) -> None:
    """Of 100 requests three failed: the slowest attempted ones have waited for ever."""
    file = other_tools.benchmark_report(tmp_path / "stage.yaml", requests={"failures": 3})
    (summary,) = imported(tmp_path / "runs", file)
    (stage,) = summary.stages
    assert (stage.ok, stage.failed, stage.value("failure_share")) == (97, 3, 0.03)
    assert stage.metrics["ttft"].answered == pytest.approx({"p50": 0.2, "p90": 0.24, "p95": 0.26, "p99": 0.3})
    missing = {p: stage.estimate("ttft", p).missing for p in ("p50", "p95", "p99")}
    assert missing == {"p50": Missing.NOT_OBSERVED, "p95": Missing.NOT_OBSERVED, "p99": Missing.FAILED}


@pytest.mark.parametrize(
    ("tool", "tpot", "ntpot", "icl"),
    [("inference-perf", 0.02, None, 0.015), ("aiperf", 0.015, None, None), ("guidellm", 0.015, 0.02, None)],
)
def test_a_field_is_what_its_tool_means_by_it(
    tmp_path: Path, tool: str, tpot: float, ntpot: float | None, icl: float | None
) -> None:
    latency = {"time_per_output_token": None} if tool == "aiperf" else {}
    file = other_tools.benchmark_report(tmp_path / "stage.yaml", tool=tool, latency=latency)
    (summary,) = imported(tmp_path / "runs", file)
    values = [summary.stages[0].value(name, "p50") for name in ("tpot", "ntpot", "icl")]
    assert values == [None if value is None else pytest.approx(value) for value in (tpot, ntpot, icl)]


@pytest.mark.parametrize(
    ("load", "label"),
    [
        ({"rate_qps": None, "concurrency": 8}, "8 users"),
        ({"rate_qps": 10.0, "concurrency": float("inf")}, "10 req/s"),
        ({"rate_qps": float("inf"), "concurrency": 16}, "16 users"),
        ({"rate_qps": float("inf")}, "100 users"),
    ],
)
def test_the_load_of_a_report(tmp_path: Path, load: dict[str, Any], label: str) -> None:
    (summary,) = imported(tmp_path / "runs", other_tools.benchmark_report(tmp_path / "stage.yaml", load=load))
    assert summary.stages[0].label == label


def test_reports_of_one_experiment_are_stages_and_repeats(tmp_path: Path) -> None:
    """Three files of the first repeat in any order, and one of the second."""
    names = [("c", 2), ("a", 0), ("b", 1), ("again", 0)]
    files = [other_tools.benchmark_report(tmp_path / f"{name}.yaml", stage=stage) for name, stage in names]
    summaries = sorted(imported(tmp_path / "runs", *files), key=lambda summary: summary.repeat)
    assert [[stage.label for stage in summary.stages] for summary in summaries] == [
        ["5 req/s", "10 req/s", "15 req/s"],
        ["5 req/s"],
    ]
    assert [(stage.start, stage.end) for stage in summaries[0].stages] == [(0.0, 20.0), (60.0, 80.0), (120.0, 140.0)]
    imported(tmp_path / "runs", *files)
    assert len(list((tmp_path / "runs").iterdir())) == 2


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": "0.1"}, "is a Benchmark Report 0.1; 0.2 and 0.2.1 are read."),
        ({"load": {"rate_qps": None}}, "has neither rate_qps nor concurrency: its load is not known."),
        ({"requests": {"failures": 101}}, "counts 100 requests, and more of them as failed or incomplete."),
        (
            {"latency": {"request_latency": {"units": "GB", "mean": 1.0}}},
            "has its request_latency in `GB`, which is no unit of it.",
        ),
    ],
)
def test_reports_that_are_refused(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    file = other_tools.benchmark_report(tmp_path / "stage.yaml", **changes)
    result = command("import", file, "--runs", tmp_path / "runs")
    assert (result.exit_code, result.stderr) == (2, f"{file} {complaint}\n")


def test_aliases_of_yaml_are_refused(tmp_path: Path) -> None:
    """A few lines of them would stand for more than any memory holds."""
    file = tmp_path / "stage.yaml"
    file.write_text("run: &a [1]\nresults: *a\n")
    result = command("import", file, "--runs", tmp_path / "runs")
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{file} is not YAML (it has aliases); known are ")


def test_statistics_cannot_be_judged_by_another_slo(tmp_path: Path) -> None:
    (summary,) = imported(tmp_path / "runs", other_tools.benchmark_report(tmp_path / "stage.yaml"))
    result = command("report", summary.folder, "--slo", "ttft_p95=1s")
    refusal = "was imported as statistics, without requests to judge: report it without --slo."
    assert result.exit_code == 2
    assert result.stderr.endswith(f"{refusal}\n")
    result = command("plan", summary.folder, "--peak", "80", "--slo", "ttft_p95=1s")
    assert (result.exit_code, refusal in result.stderr) == (2, True)
