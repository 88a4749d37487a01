"""Results of other tools as runs: their numbers come out again, and what they lack is said and never guessed."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.cli import app
from enginebench.records.files import read_meta, read_requests
from enginebench.records.load import Rate, Users
from enginebench.records.metrics import BY_NAME
from enginebench.records.view import StageView
from tests.support.analysis import other_tools

OLDER = "is no file of guidellm 0.4 to 0.8, which are the versions that are read: measure again with one of them."
V_0_1 = '{"benchmarks": [{"benchmarks": [{"mode": "synchronous", "results": []}], "args": {}}]}'
V_0_3 = """{"benchmarks": [{"args": {"strategy": {"type_": "concurrent", "streams": 4}}, "start_time": 1.0,
"requests": {"successful": [{"request_id": "a", "start_time": 1.0, "first_token_time": 1.1, "end_time": 2.0}]}}]}"""


def imported(output: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["import", *arguments, "--runs", str(output)])


def run_of(output: Path, *arguments: str) -> tuple[RunSummary, StageView]:
    """The only run that was imported, and its only stage."""
    result = imported(output, *arguments)
    assert result.exit_code == 0, result.output
    (folder,) = output.iterdir()
    summary = summarise(load_run(folder))
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
    assert stage.value("ttft", "p50") == pytest.approx(0.2)
    assert stage.value("tpot", "p50") == pytest.approx(0.1)
    assert stage.metrics["e2e"].answered is not None
    assert stage.metrics["e2e"].answered["p95"] == pytest.approx(1.1)
    assert stage.value("throughput") == pytest.approx(400 / 11.1, rel=0.01)
    assert stage.value("prompt_tokens") == 100
    assert "inter-chunk latencies" in said(summary)
    assert stage.value("icl", "p50") is None


def test_guidellms_sweep_sends_all_at_once(tmp_path: Path) -> None:
    """Its strategy `throughput` names no load: the requests of 1.11 s, one every 0.25 s, are up to five at a time."""
    file = other_tools.guidellm(tmp_path / "benchmarks.json")
    document = json.loads(file.read_text())
    document["benchmarks"][0]["config"]["strategy"] = {"type_": "throughput", "max_concurrency": None}
    file.write_text(json.dumps(document))
    _, stage = run_of(tmp_path / "runs", str(file))
    assert stage.label == "5 users"


def test_aiperf(tmp_path: Path) -> None:
    """40 answers, a request that failed and two that the end of the run cancelled; the warm-up is left out."""
    file = other_tools.aiperf(tmp_path / "profile_export.jsonl", failed=1, cancelled=2)
    summary, stage = run_of(tmp_path / "runs", str(file), "--label", "vllm")
    assert (summary.scenario, summary.label, stage.label) == ("aiperf", "vllm", "1 user")
    assert (stage.ok, stage.failed, stage.cut_off) == (40, 1, 2)
    for metric, value in (("ttft", 0.2), ("ttft_user", 0.205), ("tpot", 0.1), ("e2e", 1.1), ("send_lag", 0.005)):
        assert stage.value(metric, "p50") == pytest.approx(value)
    assert stage.value("icl", "p50") == pytest.approx(0.1)
    assert stage.value("output_tokens") == 10, "the server counts, not the tokenizer"
    assert stage.failures == {"http_error: queue full": 1}
    assert "load setting (users: the most requests in flight)" in said(summary)


def test_a_file_of_aiperf_without_a_measurement_is_refused(tmp_path: Path) -> None:
    file = other_tools.aiperf(tmp_path / "profile_export.jsonl")
    file.write_text(file.read_text().splitlines()[0])
    result = imported(tmp_path / "runs", str(file))
    assert (result.exit_code, result.stderr) == (
        2,
        f"{file} has no requests of the phase `profiling`: measure again without stopping it.\n",
    )


def test_a_sample_of_the_requests_is_told(tmp_path: Path) -> None:
    file = other_tools.guidellm(tmp_path / "benchmarks.json", kept=10)
    summary, _ = run_of(tmp_path / "runs", str(file))
    assert "30 of 40 requests of benchmark 1" in said(summary)


def test_vllm_with_its_requests(tmp_path: Path) -> None:
    summary, stage = run_of(tmp_path / "runs", str(other_tools.vllm_bench(tmp_path / "vllm.json")))
    assert (stage.label, stage.ok, stage.failed) == ("4 users", 40, 0)
    assert stage.value("ttft", "p99") == pytest.approx(0.1)
    assert stage.value("tpot", "p50") == pytest.approx(0.05)
    assert stage.value("e2e", "p50") == pytest.approx(0.3)
    assert stage.value("icl", "p50") == pytest.approx(0.05)
    assert stage.value("throughput") == pytest.approx(200 / 3.0, rel=0.01)
    assert "when a request was due" in said(summary)
    assert stage.metrics["client_lag"].n == 0


def test_results_that_vllm_has_appended_are_a_run_each(tmp_path: Path) -> None:
    """Of three rates, begun in the same second; importing the file again replaces them."""
    file = tmp_path / "vllm.json"
    results = [json.loads(other_tools.vllm_bench(file, max_concurrency=users).read_text()) for users in (1, 4, 8)]
    file.write_text("\n".join(map(json.dumps, results)))
    for _ in range(2):
        result = imported(tmp_path / "runs", str(file))
        assert result.exit_code == 0, result.output
        metas = [read_meta(folder) for folder in (tmp_path / "runs").iterdir()]
        assert {meta.repeat: meta.plan[0].load for meta in metas} == {0: Users(1), 1: Users(4), 2: Users(8)}
        assert len(metas) == 3
    file.write_text("\n".join(map(json.dumps, [results[0], results[1] | {"start_times": []}])))
    assert f"{file}, result 2, has no requests" in imported(tmp_path / "runs", str(file)).stderr.replace("\n", "")


@pytest.mark.parametrize(
    ("changed", "ok", "failed", "ttft", "e2e"),
    [
        pytest.param({"ttfts": [0.0] * 40, "itls": [[]] * 40}, 40, 0, None, 0.3, id="answers that were not streamed"),
        pytest.param({"ttfts": [0.0] * 40}, 40, 0, None, 0.3, id="first tokens that were not seen"),
        pytest.param({"ttfts": [0] * 40, "itls": [[]] * 40, "output_lens": [0] * 40}, 40, 0, None, 0.3, id="no tokens"),
        pytest.param(
            {"ttfts": [0.0] * 5 + [0.1] * 35, "output_lens": [0] * 5 + [5] * 35, "completed": 35}, 35, 5, 0.1, 0.3,
            id="failures without a message",
        ),
        pytest.param(
            {"ttfts": [0.0] * 40, "output_lens": [0] * 40, "errors": ["refused"] * 40, "completed": 0}, 0, 40, None,
            None, id="nothing but failures",
        ),
    ],
)  # fmt: skip
def test_vllm_says_which_requests_were_completed(
    tmp_path: Path, changed: dict[str, Any], ok: int, failed: int, ttft: float | None, e2e: float | None
) -> None:
    file = other_tools.vllm_bench(tmp_path / "vllm.json", **changed)
    summary, stage = run_of(tmp_path / "runs", str(file))
    assert (stage.ok, stage.failed) == (ok, failed)
    records = list(read_requests(summary.folder))
    answered = [record for record in records if record.outcome == "ok"]
    assert [record.t_first is not None for record in answered] == [ttft is not None] * ok
    assert {BY_NAME["e2e"].read(record) for record in answered} == ({e2e} if e2e is not None else set())
    assert (f"TTFT of {ok} answers" in said(summary)) == (ok > 0 and ttft is None)


LISTS = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "errors")
RAMP = {"max_concurrency": None, "ramp_up_strategy": "linear", "ramp_up_start_rps": 1, "ramp_up_end_rps": 9}
NO_TIMES = "has answers without TTFT and latency: measure again with a streaming backend."


@pytest.mark.parametrize(
    ("changed", "complaints"),
    [
        ({"completed": 30}, ["has 40 answers, and says that 30 were completed."]),
        ({"ttfts": [0.0] * 40, "latencies": None}, [NO_TIMES]),
        (dict.fromkeys(LISTS), ["has no requests", "with --save-detailed"]),
        (RAMP, ["has no single number of users or rate"]),
    ],
)
def test_results_of_vllm_that_are_no_run_are_refused(
    tmp_path: Path, changed: dict[str, Any], complaints: list[str]
) -> None:
    file = other_tools.vllm_bench(tmp_path / "vllm.json", **changed)
    result = imported(tmp_path / "runs", str(file))
    assert result.exit_code == 2
    assert f"{file} {complaints[0]}" in " ".join(result.stderr.split())
    assert all(complaint in result.stderr for complaint in complaints[1:])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("burstiness", "arrivals"),
    [pytest.param(1.0, "poisson", id="shape 1"), pytest.param(0.25, "gamma:cv=2", id="shape 1/4")],
)
def test_vllms_burstiness_is_the_shape_of_its_gaps(tmp_path: Path, burstiness: float, arrivals: str) -> None:
    file = other_tools.vllm_bench(tmp_path / "vllm.json", request_rate=8.0, burstiness=burstiness)
    summary, _ = run_of(tmp_path / "runs", str(file))
    assert read_meta(summary.folder).plan[0].load == Rate(8.0, arrivals)


def test_imported_runs_are_compared(tmp_path: Path) -> None:
    """Three runs each of two labels: the second has half the TTFT."""
    for label, factor, shares in (("old", 1.0, (0.0, 0.01, 0.02)), ("new", 0.5, (0.02, 0.0, 0.03))):
        files = []
        for k in range(3):
            ttfts = [factor * (1 + shares[k]) * 0.1] * other_tools.REQUESTS
            files.append(str(other_tools.vllm_bench(tmp_path / f"{label}-{k}.json", ttfts=ttfts)))
        assert imported(tmp_path / "runs", *files, "--label", label).exit_code == 0
    result = CliRunner().invoke(app, ["compare", str(tmp_path / "runs"), "--baseline", "old", "--json"])
    assert result.exit_code == 0, result.output
    rows = {(row["engine"], row["metric"], row["statistic"]): row for row in json.loads(result.stdout)["rows"]}
    assert rows["new", "ttft", "p50 ratio to old"]["value"] == pytest.approx(0.5, rel=0.01)
    assert rows["new", "ttft", "p50 ratio to old: significant"]["value"] == 1


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.json", "{}", "has an unknown format; known are guidellm's benchmarks.json"),
        ("a.json", "[]", "has an unknown format"),
        ("a.json", '{"benchmarks": [{"config": {}, "requests": {}, "start_time": 1}]}', "cannot be read (KeyError("),
        ("a.json", '{"a": 1}\n{"a": 2}', "a.json, result 1, has an unknown format"),
        ("a.json", '{"a": 1}\n{"a": ', "is not JSON (Expecting value: line 2 column 6"),
        *(("a.json", text, OLDER) for text in ('{"benchmarks": []}', V_0_1, V_0_3)),
    ],
)
def test_other_files_are_refused_in_a_sentence(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / name).write_text(text)
    result = imported(tmp_path / "runs", str(tmp_path / name))
    assert result.exit_code == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.output


def test_importing_again_replaces_the_run(tmp_path: Path) -> None:
    files = [str(other_tools.vllm_bench(tmp_path / f"{name}.json")) for name in ("one", "two")]
    for _ in range(2):
        for file in files:
            assert imported(tmp_path / "runs", file, "--label", "gateway").exit_code == 0
    names = sorted(folder.name.rpartition("-")[0] for folder in (tmp_path / "runs").iterdir())
    assert names == ["20261001-120000-gateway-one", "20261001-120000-gateway-two"]


def test_repeats_in_files_of_the_same_name_all_stay(tmp_path: Path) -> None:
    """Begun in the same second, nothing but their contents tells them apart."""
    files = []
    for name, model in (("one", "acme/tiny"), ("two", "acme/small")):
        (tmp_path / name).mkdir()
        files.append(str(other_tools.vllm_bench(tmp_path / name / "result.json", model_id=model)))
    assert imported(tmp_path / "runs", *files, "--label", "gateway").exit_code == 0
    models = {read_meta(folder).model for folder in (tmp_path / "runs").iterdir()}
    assert models == {"acme/tiny", "acme/small"}


def test_the_first_token_after_the_reasoning_is_that_of_guidellm(tmp_path: Path) -> None:
    file = other_tools.guidellm(tmp_path / "benchmarks.json")
    document = json.loads(file.read_text())
    timings = document["benchmarks"][0]["requests"]["successful"][0]["info"]["timings"]
    timings["first_output_token_iteration"] = timings["request_start"] + 0.5
    file.write_text(json.dumps(document))
    summary, _ = run_of(tmp_path / "runs", str(file))
    one, other, *_ = read_requests(summary.folder)
    ttfo = BY_NAME["ttfo"].read
    assert (ttfo(one), ttfo(other)) == pytest.approx((0.5, 0.2), abs=1e-5)


def test_no_color_is_obeyed(tmp_path: Path) -> None:
    words = ["import", "nosuch.json", "--runs", str(tmp_path)]
    wanted = "nosuch.json: No such file or directory."
    colours: dict[str, str | None] = {"yes": None, "no": "1"}
    told = {
        colour: CliRunner().invoke(app, words, env={"FORCE_COLOR": "1", "NO_COLOR": value}, color=True).stderr
        for colour, value in colours.items()
    }
    assert told["no"] == f"{wanted}\n"
    assert told["yes"] == f"\x1b[31m{wanted}\x1b[0m\n"
