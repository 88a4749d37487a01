"""`enginebench quick` against real servers whose law is known."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import psutil
import pytest

from enginebench.analysis.summary.loading import summaries_of
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.files import read_meta
from enginebench.records.load import Load, Rate, Users
from enginebench.studies.quick import command
from enginebench.studies.quick.discovery import FoundServer
from loadtests.harness.command.server_process import LOCUST
from tests.support.loadtests.run_command import ENVIRONMENT, run_here
from tests.support.present import present
from tests.support.servers.served import RunningServer, served

# Four requests at a time, of 32 tokens on average, so of 1.2 s: of N users each waits (N - 4)/4 · 1.2 s for a place.
PLACES, TPOT, TOKENS, LIMIT = 4, 0.0375, 32, 0.6
CROSSING = PLACES * (1 + LIMIT / (TPOT * TOKENS))
LAW = (f"tpot={TPOT}", f"concurrency={PLACES}")
SLO = ("--slo", f"ttft_p95={LIMIT}")
QUICK = [sys.executable, "-m", "enginebench", "quick"]


@dataclass(frozen=True)
class Told:
    code: int
    stdout: str
    stderr: str
    run: Path

    @cached_property
    def summary(self) -> RunSummary:
        (summary,) = summaries_of([str(self.run)], self.run.parent)
        return summary


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with served(*LAW) as running:
        yield running


@pytest.fixture(scope="module")
def told(server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Longer than a minute: on a busy machine starting takes long."""
    runs = tmp_path_factory.mktemp("runs")
    done = run_here("quick", server.url, *SLO, "--budget", "60", "--runs", runs)
    (run,) = runs.iterdir()
    return Told(done.exit_code, done.stdout, done.stderr, run)


def test_users_grow_until_the_objective_is_missed_and_the_bracket_holds_the_crossing(told: Told) -> None:
    assert told.code == 0, told.stderr
    stages = read_meta(told.run).stages
    assert [stage.plan.load.value for stage in stages[:3]] == [1, 2, 4]
    assert not any(stage.plan.brief for stage in stages[-1:]), "the last ones are longer"
    text = " ".join(told.stdout.split())
    found = re.search(r"(\d+) users meet TTFT p95 ≤ 600 ms \(.*?\); (\d+) do not \(", text)
    assert found is not None, told.stdout
    held, missed = int(found[1]), int(found[2])
    assert PLACES <= held <= CROSSING <= missed <= 2 * PLACES
    late = "the load generator was up to" in text or "requests were sent" in text  # then no bottleneck is named
    assert late or "the server's queue dominates TTFT." in text


def test_the_answer_stands_before_the_numbers_and_the_next_command_and_the_page_after_them(told: Told) -> None:
    order = ["Tested ", "SLO ", "users meet TTFT", "Loads\n", "Next ", "enginebench run", "Report: "]
    places = [told.stdout.index(text) for text in order]
    assert places == sorted(places)
    assert (told.run / "report.html").is_file()
    assert f"Testing {read_meta(told.run).url}." in told.stderr
    assert "Traceback" not in told.stderr


def test_speed_and_throughput_follow_the_law(told: Told) -> None:
    alone, busy = (present(told.summary.at(label)) for label in ("1 user", "8 users"))
    assert alone.value("tpot", "p50") == pytest.approx(TPOT, rel=0.1)
    assert busy.value("throughput", "value") == pytest.approx(PLACES / TPOT, rel=0.15)


def test_the_next_command_asks_the_same_and_works_when_it_is_pasted(told: Told, tmp_path: Path) -> None:
    (command,) = (line for line in told.stdout.splitlines() if line.strip().startswith("enginebench run capacity"))
    words = shlex.split(command)
    assert words[:7] == ["enginebench", "run", "capacity", "--url", told.summary.url, "--by", "users"]
    assert f"ttft_p95={1000 * LIMIT:g}ms" in words
    assert "--output-tokens=uniform:24-40" in words
    done = run_here(*words[1:], "--search-seconds", "3", "--runs", tmp_path)
    (folder,) = tmp_path.glob("*-*")
    meta = read_meta(folder)
    assert meta.search is not None, done.stderr
    assert meta.search.objectives == (f"ttft_p95={LIMIT}",)
    assert meta.workload["prompt_tokens"] == told.summary.workload["prompt_tokens"]


def test_without_a_server_the_scripted_engine_is_served_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("enginebench.studies.quick.discovery.find_server", lambda: None)
    done = run_here("quick", "--budget", "20", "--runs", tmp_path, environment={"COLUMNS": "80"})
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("No server at this machine's ports 8000, 30000, 8080, 11434, 1234, so")
    served = "--engine fake -o ttft=0.04 -o tpot=0.01 -o concurrency=8"
    assert f"enginebench run capacity {served} --by users" in done.stdout
    (run,) = tmp_path.iterdir()
    assert read_meta(run).label == "scripted engine"


def test_the_server_that_is_found_is_named(
    server: RunningServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = FoundServer(server.url, "vLLM's port", ("first", "second"))
    monkeypatch.setattr("enginebench.studies.quick.discovery.find_server", lambda: found)
    done = run_here("quick", "--model", "none such", "--runs", tmp_path)
    assert done.exit_code == 2
    assert f"Testing {server.url} (vLLM's port), model none such." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("text", "peak"), [("80", Users(80)), ("80users", Users(80)), ("10/s", Rate(10.0))])
def test_a_peak_is_read_as_a_plan_reads_it(
    text: str, peak: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Load | None] = []
    monkeypatch.setattr(command, "_measured", lambda *_: True)
    monkeypatch.setattr(command, "_tell", lambda folder, contender, peak: asked.append(peak))
    done = run_here("quick", "http://127.0.0.1:9", "--peak", text, "--runs", tmp_path)
    assert (done.exit_code, asked) == (0, [peak]), done.output


def test_what_is_no_peak_is_refused_before_the_test(tmp_path: Path) -> None:
    done = run_here("quick", "http://127.0.0.1:9", "--peak", "many", "--runs", tmp_path)
    assert done.exit_code == 2
    said = "--peak is a number of users such as 3000 or a rate such as 40/s, not `many`."
    assert said in " ".join(done.stderr.split())


def test_ctrl_c_gives_the_verdict_so_far_and_leaves_no_process_behind(server: RunningServer, tmp_path: Path) -> None:
    process = started(server.url, tmp_path)
    until(process, lambda: any(sum(stage.end is not None for stage in stages) > 1 for stages in stages_of(tmp_path)))
    children = psutil.Process(process.pid).children(recursive=True)
    assert any(LOCUST[-1] in child.cmdline() for child in children)
    stdout, stderr = interrupted(process)
    assert process.returncode == 2
    assert "stopped: this is the result so far" in stderr
    assert "Loads" in stdout
    assert "Report: " in stdout
    assert "Traceback" not in stderr
    assert psutil.wait_procs(children, timeout=30)[1] == []


def test_ctrl_c_before_anything_was_measured_is_a_sentence(server: RunningServer, tmp_path: Path) -> None:
    process = started(server.url, tmp_path)
    until(process, lambda: bool(psutil.Process(process.pid).children()))  # the scenario is being checked
    stdout, stderr = interrupted(process)
    assert process.returncode == 2
    assert stdout == ""
    assert "Traceback" not in stderr
    assert stderr.splitlines()[-1].startswith("stopped")


def started(url: str, runs: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*QUICK, url, *SLO, "--budget", "90", "--runs", str(runs)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        start_new_session=True,
    )


def stages_of(runs: Path) -> list[tuple]:  # type: ignore[type-arg]
    return [read_meta(meta.parent).stages for meta in runs.glob("*/meta.json")]


def until(process: subprocess.Popen[str], condition: object, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    """As a terminal does it: all processes of the foreground get it."""
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=90)
