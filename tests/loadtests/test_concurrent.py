"""The scenario as people run it: real Locust processes, a real server, and what lies on disk afterwards."""

import json
import os
import subprocess
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from loadtests.harness.workload.lengths import Lengths
from loadtests.harness.workload.workload import WordTokens, Workload
from records.request import read_meta, read_requests
from tests.support.locust_process import LOCUST, MS, ROOT, SCENARIO, Locust, free_port, start
from tests.support.scripted import Script, ScriptedServer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("finished")


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture(scope="module")
def finished(server: ScriptedServer, folder: Path) -> Locust:
    """A whole run of two stages of two seconds, 2 and then 5 users."""
    locust = start(
        server, folder, "--steps", "2,5", "--stage-seconds", "2", "--prompt-tokens", "40", "--seed", "7",
        "--api-key", "a-secret", "--json-file", str(folder / "stats"),
    )  # fmt: skip
    output = locust.wait()
    assert locust.process.returncode == 0, output
    return locust


def stats(folder: Path) -> dict[str, dict[str, Any]]:
    """Locust's own table, by request type."""
    (path,) = folder.glob("stats*")
    return {row["method"]: row for row in json.loads(path.read_text())}


def test_every_request_is_recorded_once(finished: Locust, server: ScriptedServer) -> None:
    assert len(finished.records) == len(server.bodies) > 50
    assert {record.outcome for record in finished.records} == {"ok"}
    assert len({record.request_id for record in finished.records}) == len(finished.records)


def test_locusts_own_table_counts_requests_once_and_shows_ttft_and_tpot_beside_them(
    finished: Locust, folder: Path
) -> None:
    rows = stats(folder)
    count = len(finished.records)
    assert {method: row["num_requests"] for method, row in rows.items()} == {
        "POST": count,
        "TTFT": count,
        "TPOT": count,
    }
    seen = [(r.t_send, r.t_first, r.t_last) for r in finished.records if r.t_send and r.t_first and r.t_last]
    expected = {
        "TTFT": [(first - send) / MS for send, first, _ in seen],
        "TPOT": [(last - first) / 3 / MS for _, first, last in seen],  # four tokens, one of them in the first chunk
        "POST": [(last - send) / MS for send, _, last in seen],
    }
    for row, times in expected.items():
        assert rows[row]["min_response_time"] == pytest.approx(min(times)), "in milliseconds, not rounded"
        assert rows[row]["total_response_time"] == pytest.approx(sum(times))


def test_requests_belong_to_the_stage_in_which_they_were_due(finished: Locust) -> None:
    assert [(s.users, s.start, s.end) for s in finished.meta.stages] == [(2, 0, 2000 * MS), (5, 2000 * MS, 4000 * MS)]
    for record in finished.records:
        stage = finished.meta.stages[record.stage]
        assert record.users == stage.users
        assert stage.start <= record.t_sched < stage.end


def test_users_do_not_send_their_first_request_in_one_instant(finished: Locust, server: ScriptedServer) -> None:
    first = [record.t_send for record in finished.records if record.t_send is not None][:2]
    assert len({record.t_send for record in finished.records}) == len(finished.records)
    assert abs(first[1] - first[0]) > MS
    assert all(record.reconnected is False for record in finished.records), "connections were open before"


def test_fifty_users_that_start_together_spread_over_a_second(tmp_path: Path) -> None:
    with ScriptedServer(Script(ttft=1.5, tokens=2)) as server:
        locust = start(server, tmp_path, "--steps", "50", "--stage-seconds", "2")
        output = locust.wait()
    assert locust.process.returncode == 0, output
    due = sorted(record.t_sched for record in locust.records)[:50]
    assert due[-1] - due[0] > 700 * MS
    crowded = max(sum(1 for other in due if one <= other < one + 50 * MS) for one in due)
    assert crowded <= 15, "2.5 of 50 are due in 50 ms on average"
    lags = sorted(one.t_send - one.t_sched for one in locust.records if one.t_send is not None)
    assert 0 <= lags[0] <= lags[len(lags) // 2] < 20 * MS, "and how late each went out is on record"


def test_a_user_asks_again_as_soon_as_it_has_its_answer(finished: Locust) -> None:
    alone = [record for record in finished.records if record.stage == 0 and record.t_sched > 1000 * MS]
    lags = sorted(record.t_send - record.t_sched for record in alone if record.t_send is not None)
    assert lags[0] >= 0
    assert lags[len(lags) // 2] < 20 * MS
    ends = {record.t_end for record in finished.records}
    assert all(record.t_sched in ends for record in alone), "due at the very end of the answer before"


def test_meta_tells_how_to_repeat_the_run_and_no_secrets(finished: Locust, server: ScriptedServer) -> None:
    meta = finished.meta
    assert (meta.scenario, meta.url, meta.model, meta.label) == ("concurrent", server.url, "scripted-model", "scripted")
    assert meta.engine == {"name": "scripted", "features": ["ignore_eos"]}
    assert meta.workload["prompt_tokens"] == "40"
    assert meta.workload["ignore_eos"] is True, "the server says that it can"
    assert meta.host["cores"] == os.cpu_count()
    assert meta.run_id == finished.run.name
    assert "***" in meta.command
    assert all(b"a-secret" not in path.read_bytes() for path in finished.run.iterdir())
    assert {headers["authorization"] for headers in server.headers} == {"Bearer a-secret"}


def test_telemetry_is_sampled_every_second(finished: Locust) -> None:
    *samples, last = [json.loads(line) for line in (finished.run / "telemetry.jsonl").read_text().splitlines()]
    assert (last["users"], last["lost"]) == (0, 0), "it ended in order"
    assert len(samples) >= 3
    assert {sample["users"] for sample in samples} >= {2, 5}
    assert all(sample["server"] == {"enginebench_requests_running": 3.0} for sample in samples)
    assert all(0 < sample["client_cpu"] < 4 for sample in samples)
    assert all(0 <= sample["loop_lag"] < 1 for sample in samples)
    assert all(0.5 < (b["t"] - a["t"]) / 1e9 < 1.5 for a, b in pairwise(samples))


def asked_by_users(users: int, prompt_tokens: int, seed: int) -> list[set[str]]:
    """The prompts that each user of a run against the scripted server may send, in the order of users."""
    workload = Workload(
        "scripted-model", "chat", True, Lengths("fixed", prompt_tokens), 0, Lengths("fixed", 64), 0.0, True, seed,
        WordTokens(15.0, 1.0, True),
    )  # fmt: skip
    return [
        {json.loads(call.body)["messages"][0]["content"] for call in islice(workload.calls(user), 500)}
        for user in range(users)
    ]


@pytest.mark.parametrize("processes", [2, 4])
def test_several_processes_make_the_same_load_in_one_folder(tmp_path: Path, processes: int) -> None:
    with ScriptedServer() as server:
        locust = start(
            server, tmp_path, "--steps", "4,8", "--stage-seconds", "1.5", "--prompt-tokens", "40", "--seed", "7",
            "--processes", str(processes), "--json-file", str(tmp_path / "stats"),
        )  # fmt: skip
        output = locust.wait()
        assert locust.process.returncode == 0, output
        sent = [body["messages"][0]["content"] for body in server.bodies]
    records = locust.records
    assert len(records) == len(sent)
    assert {record.outcome for record in records} == {"ok"}
    names = {path.name for path in locust.run.iterdir()}
    assert names == {"meta.json", "telemetry.jsonl"} | {
        f"{kind}-{worker}.jsonl" for kind in ("requests", "telemetry") for worker in range(processes)
    }
    assert len({record.request_id for record in records}) == len(records)
    # The same users ask the same as they would in one process.
    by_user = asked_by_users(8, 40, seed=7)
    assert set(sent) <= set().union(*by_user)
    assert all(any(prompt in sent for prompt in prompts) for prompts in by_user)
    # All workers stand on one time line.
    assert {record.stage for record in records} == {0, 1}
    assert max(record.t_sched for record in records) < 3000 * MS
    for worker in map(str, range(processes)):
        mine = [record.t_sched for record in records if record.worker == worker]
        assert min(mine) < 1500 * MS
        assert max(mine) > 1500 * MS
    # And Locust's master shows the rows of all.
    rows = stats(tmp_path)
    assert {method: row["num_requests"] for method, row in rows.items()} == dict.fromkeys(
        ("POST", "TTFT", "TPOT"), len(records)
    )


def test_failures_are_recorded_and_a_user_does_not_hammer_a_refusing_server(tmp_path: Path) -> None:
    with ScriptedServer(Script(statuses=[503, 429, 500])) as server:
        locust = start(server, tmp_path, "--steps", "1", "--stage-seconds", "4", "--json-file", str(tmp_path / "stats"))
        locust.wait()
    outcomes = [record.outcome for record in locust.records]
    assert outcomes[:3] == ["rejected", "rejected", "http_error"]
    assert set(outcomes[3:]) == {"ok"}
    assert "scripted 503" in (locust.records[0].detail or "")
    first, second = locust.records[:2]
    assert second.t_sched - first.t_end == 1000 * MS
    assert all(record.t_send is not None and record.t_send >= record.t_sched for record in locust.records)
    row = stats(tmp_path)["POST"]
    assert (row["num_requests"], row["num_failures"]) == (len(outcomes), 3)
    assert locust.process.returncode == 1, "Locust's own sign that requests failed"


def test_a_server_that_dies_under_load_leaves_failures_on_record(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        locust = start(server, tmp_path, "--steps", "2", "--stage-seconds", "3")
        locust.wait_until(lambda: len(server.bodies) >= 10)
    locust.wait()
    outcomes = [record.outcome for record in locust.records]
    assert outcomes[0] == "ok"
    assert set(outcomes) <= {"ok", "disconnected"}
    assert outcomes[-1] == "disconnected"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(["--steps", "many"], "such as 10,20,40", id="steps that are no numbers"),
        pytest.param(["--warm-up", "90%", "--cool-down", "10%"], "no steady part", id="margins that eat the stage"),
        pytest.param(["--host", "http://127.0.0.1:9"], "cannot reach http://127.0.0.1:9", id="no server there"),
        pytest.param(["--host", "http://me:word@localhost"], "--api-key", id="a password in the address"),
    ],
)
def test_a_mistake_gets_a_sentence_and_exit_code_2(tmp_path: Path, options: list[str], sentence: str) -> None:
    with ScriptedServer() as server:
        locust = start(server, tmp_path, "--stage-seconds", "2", *options)
        output = locust.wait()
    assert sentence in output
    assert "Traceback" not in output
    assert locust.process.returncode == 2


PROBE = """
import concurrent.futures

with concurrent.futures.ThreadPoolExecutor() as pool:
    assert pool.submit(sum, (1, 2)).result() == 3
import concurrent
import loadtests.concurrent
from loadtests.concurrent import ConcurrentUser

assert concurrent.__file__ != loadtests.concurrent.__file__
assert ConcurrentUser.__module__ == "loadtests.concurrent"
print("concurrent.futures works")
"""


@pytest.mark.parametrize("folder", ["", "loadtests", "tests"], ids=["the root", "beside the file", "elsewhere"])
def test_the_standard_concurrent_package_is_still_there(tmp_path: Path, folder: str) -> None:
    probe = tmp_path / "probe.py"
    probe.write_text(PROBE)
    scenario = os.path.relpath(SCENARIO, ROOT / folder)
    done = subprocess.run(
        [LOCUST, "-f", f"{scenario},{probe}", "--list"], capture_output=True, text=True, cwd=ROOT / folder
    )
    assert done.returncode == 0, done.stderr
    assert "concurrent.futures works" in done.stdout
    assert "ConcurrentUser" in done.stdout


def test_each_start_from_the_web_page_makes_a_run_of_its_own(tmp_path: Path) -> None:
    with ScriptedServer() as server, httpx.Client(base_url=f"http://127.0.0.1:{(port := free_port())}") as page:
        locust = start(server, tmp_path, "--web-host", "127.0.0.1", "--web-port", str(port), headless=False)
        try:
            locust.wait_until(lambda: answers(page))
            html = page.get("/").text
            assert "stage_seconds" in html
            assert "api_key" not in html
            for steps in ("1", "2"):
                asked = len(server.bodies)
                form = {"host": server.url, "steps": steps, "stage_seconds": "30", "no_stream": "false"}
                assert page.post("/swarm", data=form).json()["success"]
                locust.wait_until(lambda asked=asked: len(server.bodies) >= asked + 5)  # type: ignore[misc]
                page.post("/stop")
            locust.wait_until(lambda: all(read_meta(run).stages[0].end < 30_000 * MS for run in locust.runs.iterdir()))
        finally:
            locust.process.terminate()
            locust.wait()
    runs = sorted(locust.runs.iterdir(), key=lambda folder: read_meta(folder).started_at)
    assert [read_meta(run).stages[0].users for run in runs] == [1, 2]
    assert sum(len(list(read_requests(run))) for run in runs) == len(server.bodies)


def answers(page: httpx.Client) -> bool:
    try:
        return page.get("/").is_success
    except httpx.TransportError:
        return False
