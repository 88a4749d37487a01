"""`enginebench run` that is stopped or killed: no process is left behind, and the records are kept."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil

from enginebench.records.files import read_meta, read_requests
from loadtests.harness.command.server_process import LOCUST
from tests.support.loadtests.run_command import start_run
from tests.support.servers.served import until


def running(runs: Path, stages: str = "3", seconds: str = "300") -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """A run in the middle of its last stage, and all processes under it."""
    words = ("concurrent", "--engine", "fake", "-o", "ttft=0.02", "--stages", stages, "--stage-seconds", seconds)
    process = start_run(*words, "--runs", runs)
    last = len(stages.split(",")) - 1

    def answered() -> int:
        return sum(one.stage == last for folder in runs.iterdir() for one in read_requests(folder))

    until(lambda: answered() >= 5, "five requests of the last stage", 60)
    children = psutil.Process(process.pid).children(recursive=True)
    assert {LOCUST[-1], "serve"} <= {word for child in children for word in child.cmdline()}
    return process, children


def command_line(process: psutil.Process) -> list[str]:
    """Empty once it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def test_killed_it_leaves_no_process_behind(tmp_path: Path) -> None:
    """By `kill -9`, as by the kernel when memory is short: it cannot stop its processes itself."""
    process, children = running(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    (folder,) = tmp_path.iterdir()
    (stage,) = read_meta(folder).stages
    assert stage.end is not None, "Locust has completed its files"


def test_a_run_whose_locust_was_killed_is_reported_and_leaves_with_2(tmp_path: Path) -> None:
    process, children = running(tmp_path, "3,4", "4")
    (locust,) = [child for child in children if LOCUST[-1] in child.cmdline()]
    locust.kill()
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "fake: Locust was killed by SIGKILL; the records until then are kept." in said
    (folder,) = tmp_path.iterdir()
    assert (folder / "report.html").is_file()


def test_ctrl_c_while_the_report_is_made_leaves_a_sentence(tmp_path: Path) -> None:
    """A terminal sends it to all processes of the foreground."""
    words = ("concurrent", "--engine", "fake", "--stages", "2", "--stage-seconds", "3", "--runs", tmp_path)
    process = start_run(*words, group=True)
    started: list[psutil.Process] = []
    while not any("report" in command_line(one) for one in started):
        assert process.poll() is None
        time.sleep(0.05)
        started = psutil.Process(process.pid).children()
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    (folder,) = tmp_path.iterdir()
    where = f"stopped; what was recorded is in {tmp_path}."
    assert said.splitlines()[-1] == f"{where} To report on the finished runs: enginebench report {folder}"
    assert "Traceback" not in said
    assert psutil.wait_procs(started, timeout=30)[1] == []


def test_ctrl_c_in_a_search_prints_the_bracket_so_far(tmp_path: Path) -> None:
    process = start_run(
        "capacity", "--engine", "fake", "-o", "ttft=0.02", "--output-tokens", "2", "--by", "rate",
        "--slo", "ttft_p95=0.5", "--search-range", "20-40", "--search-seconds", "300", "--runs", tmp_path,
    )  # fmt: skip

    def probes() -> int:
        begun = [read_meta(path.parent) for path in tmp_path.glob("*/meta.json")]
        return sum(len(meta.search.probes) for meta in begun if meta.search is not None)

    until(lambda: probes() >= 1, "a probe", 120)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "fake: Capacity at ttft_p95=0.5" in said
    assert said.splitlines()[-1] == f"stopped; what was recorded is in {tmp_path}"
    (folder,) = tmp_path.iterdir()
    search = read_meta(folder).search
    assert search is not None
    assert search.state == "undecided"
    assert f"fake: {search.sentence}" in said
