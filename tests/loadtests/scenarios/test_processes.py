"""The same schedule and seed over one and four processes, and over two hosts: the same requests, the same report."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from enginebench.analysis.data.run_data import load_run, with_metrics
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.cli import app
from enginebench.records.files import read_meta, read_requests
from enginebench.records.metrics import BY_NAME
from enginebench.records.request import RequestRecord
from enginebench.records.view import StageView
from enginebench.settings.system import free_port
from loadtests.harness.workload.lengths import Lengths
from loadtests.harness.workload.prompt_source import PromptSource
from loadtests.harness.workload.prompt_words import WORDS
from loadtests.harness.workload.workload import Workload
from tests.support.loadtests.locust_process import MS, ROOT, Locust, start, start_worker
from tests.support.servers.scripted import Script, ScriptedServer

pytestmark = pytest.mark.alone
HOSTS = pytest.mark.xdist_group("two hosts")  # beside the runs of one host, not after them

USERS = 8
PROCESSES = (1, 4)
LOAD: tuple[str, ...] = ("--stages", f"4,{USERS}", "--stage-seconds", "3", "--seed", "7")
LOAD += ("--prompt-tokens", "uniform:30-60", "--output-tokens", "uniform:8-64")
Asked = list[tuple[str, int]]  # prompts and their most tokens, in the order in which they reached the server
Runs = dict[int, tuple[RunSummary, Asked, Locust]]  # by number of processes


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    found = {}
    for processes in PROCESSES:
        folder = tmp_path_factory.mktemp(f"processes-{processes}")
        with ScriptedServer(Script(ttft=0.1, tpot=0.01, tokens=9)) as server:
            locust = start(server, folder, *LOAD, "--json-file", str(folder / "stats"), processes=processes).finish()
            asked = [(body["messages"][0]["content"], body["max_tokens"]) for body in server.bodies]
        found[processes] = summarise(load_run(locust.run)), asked, locust
        assert found[processes][0].requests == len(asked) == len(locust.records)
    return found


def planned(user: int) -> Asked:
    """What the seed has this user ask, one after the other."""
    lengths = Lengths("uniform", 30, 60), Lengths("uniform", 8, 64)
    workload = Workload(
        model="scripted-model", endpoint="chat", streamed=True, prompt_tokens=lengths[0], output_tokens=lengths[1],
        seed=7, prompt_set="", source=PromptSource("words", 8, 8, tuple((word, 1) for word in WORDS)),
    )  # fmt: skip
    asks = workload.requests_of(user)
    bodies = [json.loads(asks.next({}).body) for _ in range(200)]
    return [(body["messages"][0]["content"], body["max_tokens"]) for body in bodies]


@pytest.mark.parametrize("processes", PROCESSES)
def test_the_same_users_ask_the_same_in_the_same_order(runs: Runs, processes: int) -> None:
    """How far each gets is up to the clock; what it asks is not."""
    _, asked, _ = runs[processes]
    place = {one: (user, index) for user in range(USERS) for index, one in enumerate(planned(user))}
    by_user: dict[int, list[int]] = {}
    for one in asked:
        user, index = place[one]
        by_user.setdefault(user, []).append(index)
    assert sorted(by_user) == list(range(USERS))
    for indices in by_user.values():
        assert indices == list(range(len(indices)))


# Nine tokens: 100 ms, eight gaps of 10 ms, and what asyncio and a crowded machine add to each sleep.
@pytest.mark.parametrize("processes", PROCESSES)
def test_the_report_is_the_same(runs: Runs, processes: int) -> None:
    alone, (run, *_) = runs[1][0], runs[processes]
    assert run.workers == processes
    assert not {finding.kind for finding in run.findings} & {"records_missing", "load_missing"}
    assert not [finding for finding in run.findings if "arrival rate ×" in finding.evidence]
    told = [(stage.label, stage.value("users_running"), stage.failed, stage.complete) for stage in run.stages]
    assert told == [("4 users", 4, 0, True), ("8 users", 8, 0, True)]
    assert [(stage.count("unserved_users"), stage.count("unanswered")) for stage in run.stages] == [(0, 0), (0, 0)]
    for stage, other in zip(run.stages, alone.stages, strict=True):
        assert stage.outcomes == {"ok": stage.requests}
        assert stage.value("output_tokens") == other.value("output_tokens")
        assert stage.value("prompt_tokens") == pytest.approx(other.value("prompt_tokens"), rel=0.05)
        assert value(stage, "ttft") == pytest.approx(value(other, "ttft"), abs=0.02)
        assert value(stage, "tpot") == pytest.approx(value(other, "tpot"), abs=0.003)
        # Room for a process that is held up for a second of the window; counted twice would be beyond it.
        assert stage.value("throughput") == pytest.approx(other.value("throughput"), rel=0.6)
        assert stage.requests == pytest.approx(other.requests, rel=0.6)
        assert stage.value("concurrency") == pytest.approx(other.value("concurrency"), rel=0.1)


def test_several_processes_make_one_load_in_one_folder(runs: Runs) -> None:
    locust, processes = runs[4][2], 4
    # The report may have added derived files to the folder.
    assert {path.name for path in locust.run.iterdir()} >= {"meta.json", "telemetry.jsonl"} | {
        f"{kind}-{worker}.jsonl" for kind in ("requests", "telemetry") for worker in range(processes)
    }
    records = locust.records
    assert len({record.request_id for record in records}) == len(records)
    for stage in locust.meta.stages:
        for worker in range(processes):
            window = [record for record in locust.window(stage) if record.worker == str(worker)]
            assert len(window) >= 2
            assert max(record.t_end for record in window) <= (stage.end or 0), "held until every worker was answered"
            assert {record.user for record in window} == set(range(worker, int(stage.load.value), processes))


def test_locusts_master_shows_the_rows_of_all(runs: Runs) -> None:
    """An answer whose tokens were all read at once has no TPOT."""
    locust = runs[4][2]
    (path,) = locust.runs.parent.glob("stats*")
    timed = sum(BY_NAME["tpot"].read(record) is not None for record in locust.records)
    assert {row["method"]: row["num_requests"] for row in json.loads(path.read_text())} == {
        "POST": len(locust.records),
        "TTFT": len(locust.records),
        "TPOT": timed,
    }


def value(stage: StageView, name: str) -> float:
    median = stage.value(name, "p50")
    assert median is not None
    return median


# A Locust file that makes its process believe it runs on another machine: another name, clock and disk.
ANOTHER_HOST = """
import os, pathlib, socket, time
ahead, real = int(os.environ["CLOCK_AHEAD"]), time.monotonic_ns
time.monotonic_ns = lambda: real() + ahead
socket.gethostname = lambda: f"host-{ahead}"
from loadtests.harness.run import host
host.clock_id = lambda: f"clock-{ahead}"
from loadtests.harness.run.run_plan import RunPlan
RunPlan.folder_here = lambda plan, runs: pathlib.Path(os.environ["DISK"], plan.meta.run_id)
from loadtests.concurrent import User
"""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """The master's folder of a run, and those of two workers whose clocks are an hour and a year ahead."""
    folder = tmp_path_factory.mktemp("hosts")
    (folder / "another_host.py").write_text(ANOTHER_HOST)
    port = str(free_port())
    with ScriptedServer(Script(ttft=0.1, tpot=0.01, tokens=9)) as server:
        master = start(
            server, folder, *LOAD, "--master", "--expect-workers", "2", "--master-bind-host", "127.0.0.1",
            "--master-bind-port", port,
        )  # fmt: skip
        workers = [start_host(folder, name, hours, port) for name, hours in (("near", 1), ("far", 9000))]
        try:
            master.finish()
            assert [worker.wait(20) for worker in workers] == [0, 0]
        finally:
            master.process.kill()
            for worker in workers:
                worker.kill()
        asked = len(server.bodies)
    parts = [next((folder / name).iterdir()) for name in ("near", "far")]
    assert sum(len(list(read_requests(part))) for part in parts) == asked
    return master.run, parts


def start_host(folder: Path, name: str, hours: int, port: str) -> subprocess.Popen[bytes]:
    environment = {"CLOCK_AHEAD": str(hours * 3600 * 1000 * MS), "DISK": str(folder / name), "PYTHONPATH": str(ROOT)}
    return start_worker(folder / "another_host.py", port, environment)


@pytest.fixture(scope="module")
def collected(hosts: tuple[Path, list[Path]]) -> tuple[Result, Path]:
    """What a report said of a folder to which one worker's records never came, and the same folder with them."""
    run, parts = hosts
    assert read_meta(run).hosts == 2
    (run / "requests-1.jsonl").unlink()
    (run / "telemetry-1.jsonl").unlink()
    early = CliRunner().invoke(app, ["report", str(run)])
    for part in parts:
        for file in part.glob("*-1.jsonl"):
            shutil.copy(file, run)
    return early, run


@HOSTS
def test_the_records_of_other_hosts_come_to_the_master(hosts: tuple[Path, list[Path]]) -> None:
    run, parts = hosts
    for part in parts:
        files = sorted(part.glob("*-?.jsonl"))
        assert len(files) == 2
        for file in files:
            assert (run / file.name).read_bytes() == file.read_bytes()


@HOSTS
def test_what_a_worker_that_died_left_behind_is_missed(collected: tuple[Result, Path]) -> None:
    early, run = collected
    assert "records of 1 of the 2 worker processes" in " ".join(early.stdout.split())
    assert {path.name for path in run.glob("*-?.jsonl")} == {
        f"{kind}-{worker}.jsonl" for kind in ("requests", "telemetry") for worker in (0, 1)
    }


@HOSTS
def test_clocks_of_two_hosts_are_never_mixed(collected: tuple[Result, Path]) -> None:
    """Every duration is one clock's, and each host counts from its own start of the run."""
    _, run = collected
    records = list(read_requests(run))
    assert {record.worker for record in records} == {"0", "1"}
    for record in records:
        assert record.t_send is not None
        assert record.t_first is not None
        assert 0 <= record.t_send - record.t_sched < 3000 * MS
        assert 90 * MS < record.t_first - record.t_send < 3000 * MS
        assert record.t_first < (record.t_last or 0) <= record.t_end < 10_000 * MS
    starts = [min(one.t_sched for one in records if one.worker == worker) for worker in ("0", "1")]
    assert abs(starts[0] - starts[1]) < 2000 * MS, "an hour and a year apart on the clocks, but not on the time line"
    summary = summarise(load_run(run))
    told = [(stage.label, stage.value("users_running"), stage.failed) for stage in summary.stages]
    assert told == [("4 users", 4, 0), ("8 users", 8, 0)]
    kinds = {finding.kind for finding in summary.findings}
    assert "timing_error" in kinds
    assert not kinds & {"records_missing", "load_missing"}
    assert not [finding for finding in summary.findings if "arrival rate ×" in finding.evidence]
    assert value(summary.stages[1], "ttft") == pytest.approx(0.1, abs=0.03)


def shift(record: RequestRecord, late: int) -> RequestRecord:
    stamps = ("t_sched", "t_send", "t_headers", "t_first", "t_first_out", "t_last", "t_end", "read_first")
    moved: dict[str, Any] = {name: getattr(record, name) + late for name in stamps}
    return msgspec.structs.replace(record, **moved)


@HOSTS
def test_a_host_whose_start_is_seconds_off_has_the_same_durations(
    tmp_path: Path, collected: tuple[Result, Path]
) -> None:
    """Even then no metric of a request changes, because each comes from one record."""
    _, run = collected
    shifted = tmp_path / "shifted"
    shifted.mkdir()
    (shifted / "meta.json").write_bytes((run / "meta.json").read_bytes())
    with (shifted / "requests-0.jsonl").open("w") as file:
        for record in read_requests(run):
            file.write(shift(record, 1500 * MS if record.worker == "1" else 0).to_line())
    columns = ["ttft", "ttft_user", "tpot", "ntpot", "e2e", "send_lag", "client_lag"]
    tables = [with_metrics(load_run(folder).requests).select(columns).sort(columns) for folder in (run, shifted)]
    assert tables[0].equals(tables[1])
