"""An open loop as people run it: arrivals at their instants, the same from any number of processes."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from contextlib import ExitStack
from itertools import islice, pairwise
from pathlib import Path

import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.load import Rate
from enginebench.records.stage import SECOND
from enginebench.settings.system import free_port
from loadtests.harness.schedule.rates import arrival_times
from tests.support.loadtests.locust_process import MS, ROOT, Locust, start, start_worker
from tests.support.servers.scripted import Script, ScriptedServer

RATE = ROOT / "loadtests/rate.py"
FIXED = ("--seed", "7", "--prompt-tokens", "uniform:30-60")
Runs = dict[int, tuple[Locust, list[str]]]  # by number of processes: the run, and the prompts as they came


def finished(locust: Locust) -> Locust:
    output = locust.wait()
    assert "Traceback" not in output, output
    return locust


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The same two stages by one process and by three, at the same time."""
    options = ("--rate", "20,40", "--stage-seconds", "4", *FIXED)
    with ExitStack() as stack:
        servers = {n: stack.enter_context(ScriptedServer(Script(ttft=0.3, tpot=0.01, tokens=9))) for n in (1, 3)}
        begun = {
            n: start(server, tmp_path_factory.mktemp(f"processes-{n}"), *options, scenario=RATE, processes=n)
            for n, server in servers.items()
        }
        found = {n: finished(locust) for n, locust in begun.items()}
    assert [locust.process.returncode for locust in found.values()] == [0, 0]
    return {n: (locust, [body["messages"][0]["content"] for body in servers[n].bodies]) for n, locust in found.items()}


@pytest.mark.alone
@pytest.mark.parametrize("processes", [1, 3])
def test_requests_arrive_when_the_schedule_says(runs: Runs, processes: int) -> None:
    locust, asked = runs[processes]
    assert len(locust.records) == len(asked)
    assert {one.outcome for one in locust.records} == {"ok"}
    assert [stage.label for stage in locust.meta.stages] == ["20 req/s", "40 req/s"]
    for stage in locust.meta.stages:
        assert stage.steady_start is not None
        assert (stage.steady_start - stage.start, (stage.steady_end or 0) - stage.steady_start) == (800 * MS, 3200 * MS)
        load, end = stage.load, stage.end
        assert isinstance(load, Rate)
        assert end is not None
        # Each process sends on until it hears that the last stage has ended.
        mine = sorted(one.t_sched for one in locust.records if one.stage == stage.index and one.t_sched < end)
        drawn = islice(arrival_times(load, 0.8, 3.2, 7, stage.index), len(mine))
        assert [at - stage.start for at in mine] == [round(at * SECOND) for at in drawn], "each arrival, none twice"
        assert len(mine) >= 60, "and not only the first"
        assert all(one.t_end <= end for one in locust.window(stage)), "the window is answered"
    first, second = locust.meta.stages
    assert first.end == second.start, "arrivals go on until the next stage"


@pytest.mark.alone
def test_it_does_not_matter_how_many_processes_send(runs: Runs) -> None:
    one, three = runs[1][0], runs[3][0]
    for alone, shared in zip(one.meta.stages, three.meta.stages, strict=True):
        a, b = one.window(alone), three.window(shared)
        assert [x.t_sched - alone.start for x in a] == [x.t_sched - shared.start for x in b]
        assert [x.prompt_id for x in a] == [x.prompt_id for x in b], "and each asks the same"
        assert {x.worker for x in b} == {"0", "1", "2"}
    assert len({one.prompt_id for one in one.records}) == len(one.records), "no prompt twice"


@pytest.mark.alone
@pytest.mark.parametrize("processes", [1, 3])
def test_each_goes_out_at_its_instant_over_an_open_connection(runs: Runs, processes: int) -> None:
    locust, _ = runs[processes]
    lags = sorted(one.t_send - one.t_sched for one in locust.records if one.t_send is not None)
    assert lags[0] >= 0
    assert lags[len(lags) // 2] < 20 * MS, "three processes and the server share two cores"
    opened = sum(one.t_connect is not None for one in locust.records)
    assert opened < 0.05 * len(locust.records), "more than were opened in advance are needed if the machine stalls"


@pytest.mark.alone
def test_a_report_speaks_of_what_users_feel(runs: Runs) -> None:
    locust, _ = runs[1]
    summary = summarise(load_run(locust.run))
    for stage, rate in zip(summary.stages, (20, 40), strict=True):
        assert (stage.is_open, stage.value("users_running"), stage.load) == (True, None, rate)
        assert stage.count("unanswered") == 0
        assert stage.value("offered_rate") == pytest.approx(rate, rel=0.35)
        assert stage.value("achieved_rate") == pytest.approx(stage.value("offered_rate"), rel=0.3)
        assert stage.value("ttft_user", "p50") == pytest.approx(0.3, abs=0.06)
    assert not [finding for finding in summary.findings if finding.kind == "load_missing"]
    assert not [finding for finding in summary.findings if "the backlog grew" in finding.evidence]


@pytest.mark.alone
def test_a_server_that_stalls_does_not_hold_up_arrivals_or_change_their_number(tmp_path: Path) -> None:
    """Two seconds without an answer: a closed loop would stop asking. The stage ends after 200 requests."""
    script = Script(ttft=0.02)
    with ScriptedServer(script) as server:
        locust = start(
            server, tmp_path, "--rate", "50", "--arrivals", "constant", "--stage-requests", "200", "--warm-up", "50",
            scenario=RATE, processes=2,
        )  # fmt: skip
        locust.wait_until(lambda: locust.stage is not None and locust.stage.steady_start is not None)
        script.ttft = 2.0
        finished(locust)
    (stage,) = locust.meta.stages
    window = locust.window(stage)
    assert len(window) == 200
    assert sum(stage.start <= one.t_sched < (stage.steady_start or 0) for one in locust.records) == 50
    slow = [one for one in window if one.t_first is not None and one.t_first - one.t_sched > 1900 * MS]
    assert len(slow) > 150
    lags = sorted(one.t_send - one.t_sched for one in window if one.t_send is not None)
    assert len(lags) == 200
    assert lags[len(lags) // 2] < 50 * MS, "a user who waits for an answer would be 2 s late"
    assert max(lags) < 500 * MS


@pytest.mark.alone
def test_what_the_bound_forbids_is_dropped_and_counts_as_a_failure(tmp_path: Path) -> None:
    few = tmp_path / "few.py"
    few.write_text(
        "from loadtests.harness.users import dispatcher\nfrom loadtests.rate import User\n"
        "dispatcher.MAX_IN_FLIGHT = 5\n"
    )
    with ScriptedServer(Script(ttft=1.0)) as server:
        locust = start(server, tmp_path, "--rate", "20", "--arrivals", "constant", "--stage-seconds", "4", scenario=few)
        finished(locust)
        sent = len(server.bodies)
    (stage,) = locust.meta.stages
    outcomes = Counter(one.outcome for one in locust.records)
    assert outcomes.keys() == {"ok", "dropped"}
    assert outcomes["ok"] == sent
    window = locust.window(stage)
    assert len(window) == 64, "20 a second for 3.2 s, sent or not"
    assert sum(one.outcome == "ok" for one in window) == pytest.approx(16, abs=3), "5 at a time, a second each"
    dropped = next(one for one in window if one.outcome == "dropped")
    assert (dropped.t_send, dropped.detail) == (None, "5 requests were in flight")
    assert dropped.planned_prompt_tokens is not None
    (summary,) = summarise(load_run(locust.run)).stages
    assert summary.failed == sum(one.outcome == "dropped" for one in window)
    assert summary.value("ttft_user", "p95") == float("inf")
    assert locust.process.returncode == 1


def test_a_run_of_two_processes_that_is_stopped_records_what_was_in_flight(tmp_path: Path) -> None:
    with ScriptedServer(Script(ttft=5.0)) as server:
        locust = start(server, tmp_path, "--rate", "20", "--stage-seconds", "60", scenario=RATE, processes=2)
        locust.wait_until(lambda: len(server.bodies) >= 20)
        locust.process.send_signal(signal.SIGTERM)
        finished(locust)
        sent = len(server.bodies)
    on_their_way = len(locust.records) - sent  # a busy server has not read all of them
    assert 0 <= on_their_way <= 20, "more than a second of arrivals"
    assert {one.outcome for one in locust.records} == {"cut_off"}


ANOTHER_USER = """
import gevent
from locust import events

from loadtests.harness.users.locust_events import process
from loadtests.rate import User


@events.test_start.add_listener
def start_another(environment, **_):
    gevent.spawn(another, environment.runner)


def another(runner):
    while process.run.generator.stage.steady_start is None:
        gevent.sleep(0.1)
    runner.spawn_users({"User": 1})
    gevent.sleep(1)
    runner.stop_users({"User": 2})
    gevent.sleep(1.5)
    runner.spawn_users({"User": 1})
"""


def test_another_user_of_a_process_sends_no_arrival_again(tmp_path: Path) -> None:
    """Locust moves the users of a lost worker process to others, and those of others when one joins. Here the second
    comes while the first one sends, and the third when both have left."""
    scenario = tmp_path / "another.py"
    scenario.write_text(ANOTHER_USER)
    with ScriptedServer() as server:
        locust = finished(start(server, tmp_path, "--rate", "40", "--stage-seconds", "8", *FIXED, scenario=scenario))
    sent = sorted(one.t_sched for one in locust.records)
    assert len(set(sent)) == len(sent), "each arrival at most once"
    assert {one.outcome for one in locust.records} == {"ok"}
    assert max((one.t_send or 0) - one.t_sched for one in locust.records) < SECOND, "what was missed is not sent late"
    gaps = sorted(after - before for before, after in pairwise(sent))
    assert gaps[-1] > SECOND > gaps[-2], "only while there was no user"
    (stage,) = locust.meta.stages
    assert sent[-1] > (stage.steady_end or 0) - SECOND, "one of them sends to the end"


def test_a_worker_that_joins_during_the_run_sends_nothing_and_holds_nothing_up(tmp_path: Path) -> None:
    port = str(free_port())
    master_options = ("--master", "--expect-workers", "1", "--master-bind-host", "127.0.0.1")
    with ScriptedServer() as server, ExitStack() as stack:
        master = start(
            server, tmp_path, "--rate", "20,40", "--stage-seconds", "6", *FIXED, *master_options,
            "--master-bind-port", port, scenario=RATE,
        )  # fmt: skip

        def join() -> subprocess.Popen[bytes]:
            worker = start_worker(RATE, port)
            stack.callback(worker.kill)
            return worker

        workers = [join()]
        master.wait_until(lambda: len(server.bodies) > 10)
        workers.append(join())
        finished(master)
        assert [worker.wait(20) for worker in workers] == [0, 0]
        asked = len(server.bodies)
    assert master.process.returncode == 0
    assert len(master.records) == asked
    assert {one.worker for one in master.records} == {"0"}
    assert [stage.label for stage in master.meta.stages] == ["20 req/s", "40 req/s"]
    sent = [one.t_sched for one in master.records]
    assert len(set(sent)) == len(sent), "each arrival at most once"
