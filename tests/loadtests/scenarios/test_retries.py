"""Clients that ask again after a failure, and users who leave: each attempt is on record, and the server is let go."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.request import Outcome, RequestRecord
from loadtests.harness.schedule.retries import pause_before_retry
from tests.support.loadtests.locust_process import CONCURRENT, MS, ROOT, Locust, start
from tests.support.records import record
from tests.support.servers.scripted import Script, ScriptedServer
from tests.support.servers.served import served, until

RATE = ROOT / "loadtests/rate.py"


def failed(outcome: Outcome = "rejected", status: int | None = 429, **changes: Any) -> RequestRecord:
    return record(outcome=outcome, status=status, **changes)


@pytest.mark.parametrize(
    ("attempt", "least", "most"), [(0, 0.375, 0.5), (1, 0.75, 1.0), (3, 3.0, 4.0), (4, 6.0, 8.0), (9, 6.0, 8.0)]
)
def test_the_pause_doubles_up_to_a_limit_and_is_spread(attempt: int, least: float, most: float) -> None:
    rng = Random(1)
    drawn = [pause_before_retry(failed(attempt=attempt), 20, rng) or 0.0 for _ in range(2000)]
    assert least <= min(drawn) < least + 0.02 * most
    assert most - 0.02 * most < max(drawn) <= most


@pytest.mark.parametrize(
    ("ended", "again"),
    [
        pytest.param(failed(), True, id="429"),
        pytest.param(failed("rejected", 503), True, id="503"),
        pytest.param(failed("http_error", 500), True, id="500"),
        pytest.param(failed("http_error", 408), True, id="408"),
        pytest.param(failed("disconnected", None), True, id="no connection"),
        pytest.param(failed("disconnected", 200), True, id="a stream that ended early"),
        pytest.param(failed("http_error", 400), False, id="a request that is wrong stays wrong"),
        pytest.param(failed("timeout", None), False, id="who has left does not come back"),
        pytest.param(failed("cut_off", None), False, id="the run is over"),
        pytest.param(record(), False, id="an answer"),
        pytest.param(failed("dropped", None), False, id="never sent"),
    ],
)
def test_what_is_asked_again(ended: RequestRecord, again: bool) -> None:
    assert (pause_before_retry(ended, 1, Random(0)) is not None) is again
    assert pause_before_retry(msgspec.structs.replace(ended, attempt=1), 1, Random(0)) is None, "once is enough"


def test_the_server_says_when(tmp_path: Path) -> None:
    assert pause_before_retry(failed(retry_after=3.0), 1, Random(0)) == 3.0
    pause = pause_before_retry(failed(retry_after=86400.0), 1, Random(0))
    assert pause is not None
    assert pause < 1, "nobody comes back for the answer tomorrow"


def by_prompt(locust: Locust) -> dict[str | None, list[RequestRecord]]:
    found: dict[str | None, list[RequestRecord]] = defaultdict(list)
    for one in sorted(locust.records, key=lambda one: one.t_sched):
        found[one.prompt_id].append(one)
    return found


@pytest.mark.alone
@pytest.mark.parametrize("load", [("--stages", "3"), ("--rate", "15")])
def test_a_refusal_is_asked_again_and_recorded_by_attempt(tmp_path: Path, load: tuple[str, str]) -> None:
    """Nobody waits longer than a second for the first token, and who has seen one stays."""
    script = Script(ttft=0.02, tpot=0.4, tokens=4, statuses=[503, 429, 500, 400], retry_after="0.3")
    with ScriptedServer(script) as server:
        locust = start(
            server, tmp_path, *load, "--stage-seconds", "3", "--warm-up", "0", "--retries", "2", "--patience", "1",
            scenario=RATE if load[0] == "--rate" else CONCURRENT,
        )  # fmt: skip
        locust.wait()
    attempts = by_prompt(locust)
    assert len(locust.records) == len(server.bodies)
    assert sorted(one.status or 0 for one in locust.records if one.outcome != "ok") == [400, 429, 500, 503]
    for each in attempts.values():
        assert [one.attempt for one in each] == list(range(len(each)))
        assert each[-1].outcome == "ok" or each[-1].status == 400 or len(each) == 3
        assert all(one.outcome != "ok" for one in each[:-1])
    assert all(one.t_end - one.t_sched > 1200 * MS for one in locust.records if one.outcome == "ok")
    waited = sorted(after.t_sched - before.t_end for each in attempts.values() for before, after in pairwise(each))
    assert waited[0] >= 300 * MS, "as Retry-After says"
    assert waited[len(waited) // 2] < 400 * MS
    if load[0] == "--rate":  # the warm-up of users lasts until each had an answer: their window has no retries
        findings = summarise(load_run(locust.run)).findings
        (finding,) = [finding for finding in findings if finding.kind == "failures"]
        assert re.search(r"(\d+) attempts were made for (\d+) logical requests, (\d+) of which", finding.evidence)


@pytest.mark.alone
def test_the_server_stops_computing_for_users_who_have_left(tmp_path: Path) -> None:
    """They wait for one second, and the first token takes five."""
    with served("ttft=5", arguments=("--warm-up-tokens", "0")) as slow:
        before = slow.metric("generation_tokens_total")
        locust = start(
            slow, tmp_path, "--rate", "8", "--stage-seconds", "3", "--warm-up", "0", "--patience", "1",
            "--stop-timeout", "5", scenario=RATE,
        )  # fmt: skip
        locust.wait_until(lambda: (slow.metric("requests_running") or 0) > 0)
        locust.wait()
        until(lambda: slow.metric("requests_running") == 0, "the server lets go of them", 2)
        assert slow.metric("generation_tokens_total") == before
    outcomes = Counter((one.outcome, one.detail) for one in locust.records if one.outcome != "cut_off")
    assert outcomes.keys() == {("timeout", "the user left before the first token")}
    waited = [(one.t_end - one.t_sched) / 1e9 for one in locust.records if one.outcome == "timeout"]
    assert len(waited) >= 8
    assert sorted(waited)[len(waited) // 2] == pytest.approx(1.0, abs=0.1)
