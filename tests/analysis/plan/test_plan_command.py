"""`enginebench plan`: usage errors and exit codes."""

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from enginebench.records.files import read_meta, write_meta
from tests.support.analysis.synthetic import Engine, simulate
from validation.plan.batching_server import Asked, BatchingServer, users, write_run


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    server = BatchingServer(jitter=0.02)
    return write_run(tmp_path_factory.mktemp("plan") / "closed", server, users(4, 8, 20), Asked(), window=15.0)


def plan(*arguments: str | Path, command: str = "plan") -> tuple[int, str]:
    result = CliRunner().invoke(app, [command, *map(str, arguments)], env={"ENGINEBENCH_PEAK_SECONDS": "10"})
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--peak", "40/min"), "--peak is a number of users such as 3000"),
        ((), "a plan needs a peak and an objective"),
        (("--peak", "9users"), "a plan needs a peak and an objective"),
        (("--peak", "9", "--slo", "ttft_p99=1", "--output", "plan.pdf"), "plan.pdf has no known suffix"),
        (("--peak", "9", "--slo", "ttft_p99=1", "--price", "vllm=2"), "there is no run of `vllm`"),
    ],
)
def test_usage_errors_are_a_sentence_and_exit_with_two(closed: Path, arguments: tuple[str, ...], sentence: str) -> None:
    code, output = plan(closed, *arguments)
    assert code == 2
    assert sentence in output
    assert "Traceback" not in output


@pytest.mark.parametrize(
    ("slo", "code", "answer"),
    [
        ("ttft_p95=0.4", 0, "Plan 3 replicas for 24 users"),
        ("ttft_p95=0.001", 1, "No number of replicas for 24 users is known: every measured load misses the SLO."),
    ],
)
def test_the_exit_code_says_whether_there_is_a_plan(closed: Path, slo: str, code: int, answer: str) -> None:
    done, output = plan(closed, "--peak", "24users", "--slo", slo)
    assert done == code
    assert answer in output


def test_runs_of_different_workloads_are_not_planned(tmp_path: Path) -> None:
    for name, tokens in (("a", "8"), ("b", "64")):
        simulate(tmp_path / name, Engine(name), (2, 4), 10.0, workload={"output_tokens": tokens})
    code, output = plan(tmp_path, "--peak", "24users", "--slo", "ttft_p95=1")
    assert code == 2
    assert "The runs had different workloads, so their numbers are not compared." in output
    assert "replicas of" not in output.partition("Warning")[0]


@pytest.mark.parametrize("command", ["plan", "report"])
def test_runs_of_one_engine_with_other_settings_are_not_pooled(tmp_path: Path, command: str) -> None:
    for slots in (2, 8):
        run = simulate(tmp_path / f"{slots}", Engine("vllm", slots=slots), (1, 2, 4), 10.0, run_id=f"{slots}")
        settings = {"name": "vllm", "options": {"max_num_seqs": slots}}
        write_meta(run, dataclasses.replace(read_meta(run), engine=settings))
    _, output = plan(tmp_path, "--peak", "24users", "--slo", "ttft_p95=1", command=command)
    assert "max_num_seqs=2" in output
    assert "max_num_seqs=8" in output


def test_answers_without_usage_are_counted_with_the_tokenizer_that_is_named(tmp_path: Path) -> None:
    run = simulate(tmp_path / "run", Engine(), (2,), 5.0)
    for path in run.glob("requests*.jsonl"):
        uncounted = {"output_tokens": None, "token_source": None, "text": "a b c"}
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        changed = [line if line["event"] == "sent" else line | uncounted for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in changed))
    code, output = plan(run, "--peak", "4users", "--slo", "ttft_p99=1", "--tokenizer", tmp_path / "nowhere")
    assert code == 2
    assert "there is no tokenizer.json at" in output
