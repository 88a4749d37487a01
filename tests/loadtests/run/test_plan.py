"""The plan travels from Locust's master to its workers as plain values, and each reads it on its own clock and disk."""

import dataclasses
import time
from argparse import Namespace
from pathlib import Path

import msgspec
import pytest

from enginebench.records.files import write_meta
from enginebench.records.stage import SECOND
from loadtests.harness.run import run_plan as plans
from loadtests.harness.run.host import clock_id
from loadtests.harness.run.run_plan import RunPlan
from tests.loadtests.workload.test_workload import PLAIN
from tests.support.records import META


def a_plan(folder: Path, clock: str) -> RunPlan:
    """Of a run that began five seconds ago."""
    now, wall = time.monotonic_ns(), time.time_ns()
    return RunPlan(META, PLAIN, str(folder), clock, now - 5 * SECOND, wall - 5 * SECOND, grace=2.5)


def test_a_plan_arrives_as_it_was_sent(tmp_path: Path) -> None:
    plan, options = a_plan(tmp_path, clock_id()), Namespace()
    plans.send(plan, options)
    sent = vars(options)[plans.OPTION]
    arrived = plans.received(Namespace(**{plans.OPTION: msgspec.msgpack.decode(msgspec.msgpack.encode(sent))}))
    assert arrived == plan
    with pytest.raises(ValueError, match="same scenario"):
        plans.received(Namespace())


def test_on_the_same_host_the_start_is_exact(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, clock_id())
    assert plan.start_here() == plan.start


def test_on_another_host_the_start_is_as_long_ago_as_the_wall_clock_says(tmp_path: Path) -> None:
    plan = dataclasses.replace(a_plan(tmp_path, "another clock"), start=42)
    assert (time.monotonic_ns() - plan.start_here()) / SECOND == pytest.approx(5, abs=1)


def test_a_worker_writes_beside_the_master_where_they_share_a_disk(tmp_path: Path) -> None:
    shared = tmp_path / "runs" / "a-run"
    shared.mkdir(parents=True)
    plan = a_plan(shared, clock_id())
    assert plan.folder_here(tmp_path / "mine") == tmp_path / "mine" / "a-run", "no such run on this disk"
    mine = tmp_path / "mine" / "a-run"
    mine.mkdir(parents=True)
    write_meta(mine, META)
    assert plan.folder_here(tmp_path / "mine") == mine, "another worker of this run is here"
    write_meta(mine, dataclasses.replace(META, started_at="2026-11-20T10:00:00+00:00"))
    assert plan.folder_here(tmp_path / "mine") == tmp_path / "mine" / "a-run-2", "an earlier run has the same name"
    write_meta(shared, META)
    assert plan.folder_here(tmp_path / "mine") == shared


def test_shares_are_those_of_the_workers_that_began_the_run(tmp_path: Path) -> None:
    """Worker 1 has left before it, and worker 3 joins later."""
    plan = dataclasses.replace(a_plan(tmp_path, clock_id()), processes=(0, 2))
    assert [plan.share(process) for process in range(4)] == [(0, 2), None, (1, 2), None]
