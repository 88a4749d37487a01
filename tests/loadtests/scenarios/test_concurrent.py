"""The scenario as people run it: real Locust processes, a real server, and what lies on disk afterwards."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from enginebench.records.load import Users
from enginebench.settings.schema import settings_of
from loadtests.harness.run.own_limits import PREFERRED_NICENESS
from loadtests.harness.scenario import Scenario
from tests.support.loadtests.locust_process import MS, Locust, start
from tests.support.servers.scripted import Script, ScriptedServer


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
    return start(
        server, folder, "--stages", "2,5", "--stage-seconds", "2", "--prompt-tokens", "40", "--seed", "7",
        "--header", "X-Tenant: a-secret", "--json-file", str(folder / "stats"),
        environment={"OPENAI_API_KEY": "a-secret-key"},
    ).finish()  # fmt: skip


def stats(folder: Path) -> dict[str, dict[str, Any]]:
    """Locust's own table, by request type."""
    (path,) = folder.glob("stats*")
    return {row["method"]: row for row in json.loads(path.read_text())}


def test_every_request_is_recorded_once(finished: Locust, server: ScriptedServer) -> None:
    assert len(finished.records) == len(server.bodies) > 50
    assert {record.outcome for record in finished.records} == {"ok"}
    assert len({record.request_id for record in finished.records}) == len(finished.records)
    if sys.platform == "linux":
        assert {record.stamps for record in finished.records} == {"kernel"}, "under Locust's patches as without them"


def test_locusts_own_table_counts_requests_once_and_shows_ttft_and_tpot_beside_them(
    finished: Locust, folder: Path
) -> None:
    rows = stats(folder)
    seen = [(r.t_send, r.t_first, r.t_last) for r in finished.records if r.t_send and r.t_first and r.t_last]
    assert len(seen) == len(finished.records)
    expected = {
        "TTFT": [((r.t_first or 0) - r.t_sched) / MS for r in finished.records],  # since the request was due
        # Four tokens, one of them in the first chunk; on a busy machine some answers arrive all at once.
        "TPOT": [(last - first) / 3 / MS for _, first, last in seen if last > first],
        "POST": [(last - send) / MS for send, _, last in seen],
    }
    assert {method: row["num_requests"] for method, row in rows.items()} == {
        method: len(times) for method, times in expected.items()
    }
    for row, times in expected.items():
        assert rows[row]["min_response_time"] == pytest.approx(min(times)), "in milliseconds, not rounded"
        assert rows[row]["total_response_time"] == pytest.approx(sum(times))


def test_stages_follow_one_another_and_hold_their_load_until_the_window_is_answered(finished: Locust) -> None:
    first, second = finished.meta.stages
    assert [(stage.load, stage.label) for stage in (first, second)] == [(Users(2), "2 users"), (Users(5), "5 users")]
    assert (first.start, second.start) == (0, first.end)
    for stage in (first, second):
        assert stage.steady_start is not None
        assert stage.steady_end is not None
        assert stage.end is not None
        assert stage.steady_start - stage.start >= 400 * MS, "a fifth of two seconds, or until all were served"
        assert stage.steady_end - stage.steady_start == 1600 * MS
        mine = [record for record in finished.records if record.stage == stage.index]
        window = [record for record in mine if stage.steady_start <= record.t_sched < stage.steady_end]
        # On a busy machine the bounds of warm-up and hold may be hit, and the stage says for how many.
        late = [record for record in window if record.t_end > stage.end]
        assert len(late) == stage.unanswered, "the others have their answers before the load ends"
        assert max(record.t_end for record in mine) > stage.steady_end
        served = {record.user for record in mine if record.t_end < stage.steady_start}
        assert len(served) == stage.load.value - stage.unserved_users, "the others before the window began"


def test_requests_belong_to_the_stage_in_which_they_were_due(finished: Locust) -> None:
    first, _ = finished.meta.stages
    assert first.end is not None
    assert all(record.user in range(2 if record.stage == 0 else 5) for record in finished.records)
    # Users hear of a boundary a moment after it: the request that each is about to send may belong to the other stage.
    misplaced = Counter(r.user for r in finished.records if r.stage != (r.t_sched > first.end))
    assert max(misplaced.values(), default=0) <= 2
    assert {record.stage for record in finished.records} == {0, 1}


def test_users_do_not_send_their_first_request_in_one_instant(finished: Locust, server: ScriptedServer) -> None:
    first = [record.t_send for record in finished.records if record.t_send is not None][:2]
    assert len({record.t_send for record in finished.records}) == len(finished.records)
    assert abs(first[1] - first[0]) > MS
    assert all(record.t_connect is None for record in finished.records), "connections were open before"


@pytest.mark.alone
def test_fifty_users_spread_over_a_second_when_they_come_and_leave_as_quickly(tmp_path: Path) -> None:
    """They ask the rows of a dataset, none of them twice."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"prompt": f"Question {n}?"}) + "\n" for n in range(1000)))
    script = Script(ttft=1.5, tokens=2)
    with ScriptedServer(script) as server:
        locust = start(server, tmp_path, "--stages", "50,1", "--stage-seconds", "2.5", "--dataset", str(rows))
        locust.wait_until(lambda: locust.stage is not None and locust.stage.index == 1)
        script.ttft = 0.02
        locust.finish()
        asked = [body["messages"][0]["content"] for body in server.bodies]
    assert len(set(asked)) == len(asked) < 1000
    due = sorted(record.t_sched for record in locust.records)[:50]
    assert due[-1] - due[0] > 700 * MS
    crowded = max(sum(1 for other in due if one <= other < one + 50 * MS) for one in due)
    assert crowded <= 15, "2.5 of 50 are due in 50 ms on average"
    lags = sorted(one.t_send - one.t_sched for one in locust.records if one.stage == 0 and one.t_send is not None)
    assert 0 <= lags[0] <= lags[len(lags) // 2] < 20 * MS, "and how late each went out is on record"
    smaller = locust.meta.stages[1]
    late = [one for one in locust.records if one.stage == 1 and one.t_sched > smaller.start + 1_500 * MS]
    assert len(late) > 10
    assert len({one.user for one in late}) == 1


def test_a_user_asks_again_as_soon_as_it_has_its_answer(finished: Locust) -> None:
    alone = [record for record in finished.records if record.stage == 0 and record.t_sched > 1000 * MS]
    lags = sorted(record.t_send - record.t_sched for record in alone if record.t_send is not None)
    assert lags[0] >= 0
    assert lags[len(lags) // 4] < 50 * MS, "the others where there is a core"
    for user in (0, 1):
        mine = sorted((record for record in alone if record.user == user), key=lambda record: record.t_sched)
        pauses = sorted(after.t_sched - before.t_end for before, after in pairwise(mine))
        assert pauses[0] >= 0, "due when the answer before was over and its connection free"
        assert pauses[len(pauses) // 4] < 20 * MS


def test_meta_tells_how_to_repeat_the_run_and_no_secrets(finished: Locust, server: ScriptedServer) -> None:
    meta = finished.meta
    assert (meta.scenario, meta.url, meta.model, meta.label) == ("concurrent", server.url, "scripted-model", "scripted")
    assert meta.engine == {"name": "scripted", "features": ["ignore_eos"]}
    assert meta.workload["ignore_eos"] is True, "the server says that it can"
    assert {one.name for one in settings_of(Scenario)} <= meta.workload.keys(), "every setting that was in force"
    told = ("prompt_tokens", "output_tokens", "seed", "stages", "stage_seconds", "warm_up", "endpoint")
    assert [meta.workload[name] for name in told] == ["40", "uniform:32-96", 7, "2,5", 2.0, "20%", "chat"]
    assert meta.workload["prompt_set"] == "", "a seed fixes the prompts"
    assert meta.host["cores"] == os.cpu_count()
    assert meta.host["niceness"] in {PREFERRED_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)}, "where it is allowed"
    assert meta.run_id == finished.run.name
    assert "***" in meta.command
    assert all(b"a-secret" not in path.read_bytes() for path in finished.run.iterdir())
    assert {headers["authorization"] for headers in server.headers} == {"Bearer a-secret-key"}
    assert {headers["x-tenant"] for headers in server.headers} == {"a-secret"}


def test_telemetry_is_sampled_every_second(finished: Locust) -> None:
    *samples, last = [json.loads(line) for line in (finished.run / "telemetry.jsonl").read_text().splitlines()]
    assert (last["last"], last["users"], last["lost"]) == (True, 0, 0), "it ended in order"
    server_side = [sample for sample in samples if sample["server"]]
    client_side = [sample for sample in samples if not sample["server"]]
    assert {sample["users"] for sample in client_side} >= {2, 5}
    assert all(sample["server"] == {"enginebench_requests_running": 3.0} for sample in server_side)
    assert all(0 < sample["client_cpu"] < 4 for sample in client_side)
    assert all(0 <= sample["loop_lag"] < 5 for sample in client_side)
    assert all(0 <= sample["run_delay"] < 4 for sample in client_side)
    for side in (server_side, client_side):
        assert len(side) >= 3
        apart = sorted((b["t"] - a["t"]) / 1e9 for a, b in pairwise(side))
        assert apart[0] > 0.5
        assert 0.9 < apart[len(apart) // 4] < 1.5, "the others where there is a core"


def test_failures_are_recorded_and_a_user_does_not_hammer_a_refusing_server(tmp_path: Path) -> None:
    with ScriptedServer(Script(statuses=[503, 429, 500])) as server:
        locust = start(
            server, tmp_path, "--stages", "1", "--stage-seconds", "4", "--json-file", str(tmp_path / "stats"),
            "--csv", str(tmp_path / "locust"),
        )  # fmt: skip
        locust.wait()
    outcomes = [record.outcome for record in locust.records]
    assert outcomes[:3] == ["rejected", "rejected", "http_error"]
    entries = (tmp_path / "locust_failures.csv").read_text()
    assert "rejected 503" in entries
    assert "scripted" not in entries, "a request's id in the detail would make an entry for each failure"
    assert set(outcomes[3:]) == {"ok"}
    assert "scripted 503" in (locust.records[0].detail or "")
    first, second = locust.records[:2]
    assert 1000 * MS <= second.t_sched - first.t_end < 3000 * MS, "a second, and what a busy machine adds"
    assert all(record.t_send is not None and record.t_send >= record.t_sched for record in locust.records)
    row = stats(tmp_path)["POST"]
    assert (row["num_requests"], row["num_failures"]) == (len(outcomes), 3)
    assert locust.process.returncode == 1, "Locust's own sign that requests failed"


def test_a_think_time_that_outlasts_the_run_is_followed_by_no_request(server: ScriptedServer, tmp_path: Path) -> None:
    options = ("--stages", "3", "--stage-seconds", "2", "--think-time", "uniform:1.5-3")
    locust = start(server, tmp_path, *options).finish()
    (stage,) = locust.meta.stages
    assert stage.end is not None
    assert len(locust.records) >= 3
    assert max(record.t_sched for record in locust.records) < stage.end
