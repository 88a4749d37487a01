"""`enginebench referee` on load generators whose errors are known."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner

from enginebench.cli import app
from enginebench.studies.referee.observation import observe, reported_results
from enginebench.studies.referee.tool import fill, tool_name
from tests.support.analysis import other_tools
from tests.support.analysis.synthetic import Engine, simulate
from tests.support.loadtests import naive_client
from tests.support.loadtests.locust_process import ROOT
from tests.support.loadtests.run_command import ENVIRONMENT
from tests.support.present import present

REFEREE = [sys.executable, "-m", "enginebench", "referee", "--ttft", "100ms", "--itl", "100ms"]
NAIVE = [sys.executable, str(ROOT / "tests/support/loadtests/naive_client.py")]


@dataclass(frozen=True)
class Told:
    code: int
    stdout: str
    stderr: str

    def value(self, metric: str, statistic: str) -> float:
        rows: list[dict[str, Any]] = json.loads(self.stdout)["rows"]
        (row,) = (row for row in rows if (row["metric"], row["statistic"]) == (metric, statistic))
        return float(row["value"])


def referee(*words: str) -> Told:
    done = subprocess.run([*REFEREE, *words], capture_output=True, text=True, env=ENVIRONMENT, timeout=300)
    return Told(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def naive() -> Told:
    """A client that adds 50 ms to TTFT, takes them from the first gap, and reports five of its six requests."""
    return referee("--json", "--", *NAIVE, "{url}", "{folder}/bench.json")


def test_the_errors_of_a_naive_client_are_those_that_it_has(naive: Told) -> None:
    assert naive.code == 0, naive.stderr
    late = naive_client.LATE
    assert naive.value("ttft p50", "true") >= 0.1
    assert naive.value("ttft p50", "error") >= late
    difference = naive.value("ttft p50", "reported") - naive.value("ttft p50", "true")
    assert naive.value("ttft p50", "error") == pytest.approx(difference)
    assert naive.value("tpot p50", "true") >= 0.09
    assert naive.value("tpot p50", "error") < 0, "the first gap of each answer is short by 50 ms"
    assert naive.value("requests answered", "true") == naive_client.REQUESTS
    assert naive.value("requests answered", "error") == -1
    assert naive.value("in flight", "true") == 1
    answer = json.loads(naive.stdout)["answer"]
    told = [answer[name] for name in ("tool", "title", "counted", "answered")]
    assert told == ["naive_client.py", "TTFT p50", 5, 6]
    missing = [row["missing"] for row in json.loads(naive.stdout)["rows"]]
    assert missing.count("few_requests") == 9, "the 99th percentile of six requests is not known"


def test_our_own_load_generator_reports_what_was_there(tmp_path: Path) -> None:
    load = ["run", "concurrent", "{url}", "--stages", "3", "--stage-seconds", "5", "--warm-up", "1"]
    own = [sys.executable, "-m", "enginebench", *load, "--output-tokens", "5", "--runs", "{folder}"]
    told = referee("--json", "--skip", "1", "--runs", str(tmp_path / "kept"), "--", *own)
    assert told.code == 0, told.stderr
    assert told.value("requests answered", "error") == 0
    assert told.value("in flight", "error") == 0
    assert told.value("throughput", "ratio") == pytest.approx(1, rel=0.2)
    for metric in ("ttft p50", "tpot p50"):
        assert abs(told.value(metric, "error")) < told.value(metric, "true") / 2
    labels = {json.loads(path.read_text())["label"] for path in (tmp_path / "kept").glob("*/meta.json")}
    assert labels == {"true", "reported"}


def test_without_results_the_true_numbers_are_shown_and_a_failure_is_said() -> None:
    script = f"{' '.join(NAIVE)} {{url}} /dev/null; echo of the tool; exit 3"
    told = referee("--", "sh", "-c", script)
    assert told.code == 0, told.stderr
    assert "of the tool" in told.stderr
    assert "of the tool" not in told.stdout
    assert "reported  " not in told.stdout
    text = " ".join(told.stdout.split())
    assert "sh (exit code 3) left no results with answered requests: compare what it printed with" in text


MISTAKES: dict[str, tuple[list[str], str]] = {
    "no server named": (["true"], "the command does not name the server: write {url} where its address belongs.\n"),
    "no such command": (
        ["no-such-tool", "{url}"],
        "there is no command `no-such-tool` here: install it, or give its path.\n",
    ),
    "no request": (
        ["--", "sh", "-c", "exit 4 # {url}"],
        "sh ended with exit code 4 and no request was answered: it must stream /v1/chat/completions or "
        "/v1/completions at URL.\n",
    ),
    "no command": ([], "missing argument `COMMAND`. See `root referee --help`.\n"),
}


@pytest.mark.parametrize(("words", "sentence"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(words: list[str], sentence: str) -> None:
    done = CliRunner().invoke(app, ["referee", *words])
    assert (done.exit_code, re.sub(r"http://127\.0\.0\.1:\d+", "URL", done.stderr)) == (2, sentence)


def test_a_signal_ends_the_tool_with_all_its_processes_and_the_server(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! >> {pids}; echo $$ >> {pids}; wait; : {{url}}"
    process = subprocess.Popen(
        [*REFEREE, "--", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    while not (pids.exists() and pids.read_text().count("\n") == 2):
        assert process.poll() is None
        time.sleep(0.05)
    servers = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    os.kill(process.pid, signal.SIGTERM)  # handled as Ctrl-C, which a job in the background ignores
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr.splitlines()[-1]) == (2, "stopped; nothing was compared")
    for pid in (*map(int, pids.read_text().split()), *servers):
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_several_loads_are_refused(tmp_path: Path) -> None:
    def sentence(place: Path) -> str:
        with pytest.raises(Exception, match="loads: compare one at a time") as refused:
            reported_results(place)
        return str(refused.value)

    run = simulate(tmp_path / "runs" / "run", Engine("one"), (1, 2, 4), 2.0, run_id="run")
    assert sentence(run) == "run has 3 loads: compare one at a time."
    assert sentence(run.parent) == "run has 3 loads: compare one at a time."
    (tmp_path / "files").mkdir()
    other_tools.guidellm(tmp_path / "files" / "a.json")
    other_tools.vllm_bench(tmp_path / "files" / "b.json")
    (tmp_path / "files" / "notes.json").write_text("[]")
    assert sentence(tmp_path / "files") == f"{tmp_path / 'files'} has 2 loads: compare one at a time."


def test_results_are_found_in_a_folder_among_other_files(tmp_path: Path) -> None:
    assert reported_results(tmp_path) is None
    (tmp_path / "inputs.json").write_text("{}")
    (tmp_path / "deep").mkdir()
    other_tools.vllm_bench(tmp_path / "deep" / "bench.json")
    loads = present(reported_results(tmp_path))
    assert loads[1] == tmp_path / "deep" / "bench.json"
    later = loads[1].stat().st_mtime + 1
    assert reported_results(tmp_path, later) is None, "of an earlier run"


def test_a_benchmark_report_is_compared_by_its_statistics(tmp_path: Path) -> None:
    other_tools.benchmark_report(tmp_path / "report.yaml")
    load = present(reported_results(tmp_path))
    observation = present(observe(*load, tmp_path / "runs", "reported"))
    assert observation.sent == observation.stage.requests > 0
    assert observation.stage.value("ttft", "p50") is not None
    assert (observation.in_flight, observation.gap_variation) == (None, None), "it has no single requests"


def test_blanks_are_filled_and_other_braces_stay() -> None:
    assert fill('{"url": "{url}/v1", "n": {}}', {"url": "http://h:1"}) == '{"url": "http://h:1/v1", "n": {}}'


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("guidellm run --target {url}", "guidellm"),
        ("/opt/bin/aiperf profile", "aiperf"),
        ("python3.12 -m locust -f file.py", "locust"),
        ("python client.py {url}", "client.py"),
        ("env NAME=a/b locust --host {url}", "locust"),
        ("python", "python"),
    ],
)
def test_the_name_of_a_tool(command: str, name: str) -> None:
    assert tool_name(command.split()) == name
