"""The live view: sums of several processes, and the tab of Locust's page that shows them."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import httpx
import msgspec
import pytest

from loadtests.harness.exporter.counts import Buckets, Counts, together
from loadtests.harness.exporter.sketches import Sketches
from loadtests.harness.recording.live import COLUMNS, rows
from loadtests.harness.run.host import free_port
from records.load import Users
from records.request import Outcome, RequestRecord
from records.slo import RunObjectives
from records.stage import SECOND, Extent, Stage, StagePlan
from tests.support.loadtests.locust_process import start
from tests.support.records import record
from tests.support.servers.scripted import Script, ScriptedServer


def ended(
    ttft: float = 0.1, tpot: float = 0.01, tokens: int = 11, outcome: Outcome = "ok", kind: str | None = None
) -> RequestRecord:
    first = round(ttft * SECOND)
    last = first + round((tokens - 1) * tpot * SECOND)
    return record(
        outcome=outcome,
        request_class=kind,
        t_sched=0,
        t_send=0,
        t_first=first,
        t_last=last,
        t_end=last,
        chunks=tokens,
        first_chunk_tokens=1,
        output_tokens=tokens,
    )


def test_percentiles_are_within_one_per_cent() -> None:
    rng, sketches = Random(1), Sketches()
    values = sorted(rng.lognormvariate(-2, 1) for _ in range(5000))
    for value in values:
        sketches.count(ended(ttft=value))
    for q, exact in ((0.5, values[2499]), (0.99, values[4949])):
        assert sketches.percentile("ttft_user", q) == pytest.approx(exact, rel=0.0101)


def test_failures_are_infinitely_long_and_what_was_cut_off_is_neither() -> None:
    sketches = Sketches()
    assert sketches.percentile("tpot", 0.5) is None
    for outcome in ("ok",) * 90 + ("rejected",) * 10 + ("cut_off",) * 50:
        sketches.count(ended(outcome=outcome))
    assert sketches.failed == 10
    assert sketches.percentile("ttft_user", 0.9) == pytest.approx(0.1, rel=0.01)
    assert sketches.percentile("ttft_user", 0.91) == float("inf")


@pytest.mark.parametrize("exported", [True, False])
def test_workers_send_what_changed_and_the_master_adds_them_up(exported: bool) -> None:
    """Whether or not anything is served to Prometheus."""
    buckets = Buckets(RunObjectives.of({"slo": "ttft_p95=0.15"}), exported)
    workers, master = ([Counts(buckets), Counts(buckets)] for _ in range(2))
    for turn in range(3):
        for worker, (here, there) in enumerate(zip(workers, master, strict=True)):
            for _ in range(10):
                here.request_scheduled()
                here.request_ended(msgspec.structs.replace(ended(ttft=0.1 * (1 + worker)), stage=turn))
            there.take(json.loads(json.dumps(here.message())))
    assert workers[0].message()["stages"] == []
    total = together(master, buckets)
    assert (total.scheduled, total.in_flight) == (60, 0)
    assert [(index, one.outcomes["ok"], one.good, one.output_tokens) for index, one in total.stages.items()] == [
        (0, 20, 10, 220), (1, 20, 10, 220), (2, 20, 10, 220),
    ]  # fmt: skip
    assert total.stages[2].sketches.percentile("ttft_user", 0.5) == pytest.approx(0.1, rel=0.01)
    assert total.stages[2].sketches.percentile("ttft_user", 0.99) == pytest.approx(0.2, rel=0.01)


def test_a_row_for_each_stage_the_newest_first() -> None:
    plan = StagePlan(Users(4), Extent(2), Extent(8))
    counts = Counts(Buckets(RunObjectives()))
    for _ in range(4):
        counts.request_scheduled()
    counts.request_ended(msgspec.structs.replace(ended(ttft=0.25, tpot=0.02, tokens=51), stage=1))
    newest, first = rows((Stage(0, plan, 0, end=10 * SECOND), Stage(1, plan, 10 * SECOND)), counts, 12 * SECOND)
    assert set(newest) == set(COLUMNS)
    assert (newest["stage"], newest["load"], newest["answered"], newest["in_flight"]) == ("2", "4 users", "1", "3")
    assert float(newest["ttft_p99"]) == pytest.approx(250, rel=0.01)
    assert float(newest["tpot_p50"]) == pytest.approx(20, rel=0.01)
    assert (newest["tokens"], newest["goodput"]) == ("26", "0.5")  # 51 in two seconds, of one request
    assert (first["stage"], first["answered"], first["ttft_p50"], first["in_flight"]) == ("1", "0", "", "")


OBJECTIVES = RunObjectives.of(
    {"slo": "ttft_p95=0.5,failures=0.01", "class_objectives": {"chat": "tpot_p95=0.02", "batch": "e2e_p95=9"}}
)


@pytest.mark.parametrize(
    ("request_ended", "good"),
    [
        pytest.param(ended(ttft=0.49, tpot=9.0), True, id="without a class only the objectives of all count"),
        pytest.param(ended(ttft=0.51), False, id="late"),
        pytest.param(ended(outcome="rejected"), False, id="failed"),
        pytest.param(ended(tpot=0.019, kind="chat"), True, id="a class has its own besides"),
        pytest.param(ended(tpot=0.021, kind="chat"), False, id="and misses them by itself"),
        pytest.param(ended(ttft=0.6, tpot=0.01, kind="chat"), False, id="as well as those of all"),
        pytest.param(ended(ttft=0.4, tpot=0.5, kind="batch"), True, id="another class has others"),
    ],
)
def test_a_good_request_meets_every_objective_of_the_run_and_of_its_class(
    request_ended: RequestRecord, good: bool
) -> None:
    assert OBJECTIVES
    assert OBJECTIVES.met_by(request_ended) == good
    assert not RunObjectives.of({"slo": "", "class_objectives": {"chat": ""}})
    counts = Counts(Buckets(OBJECTIVES))
    counts.request_ended(request_ended)
    assert counts.stages[0].good == good


def test_locusts_page_has_the_tab_with_the_sums_of_all_processes(tmp_path: Path) -> None:
    """That of a single process is in tests/loadtests/scenarios/test_concurrent.py."""
    port = free_port()
    with ScriptedServer(Script(ttft=0.1, tpot=0.01, tokens=9)) as server:
        locust = start(
            server, tmp_path, "--stages", "4", "--stage-seconds", "6", "--slo", "ttft_p95=0.02",
            "--web-host", "127.0.0.1", "--web-port", str(port), "--autostart", "--autoquit", "4", headless=False,
            processes=2,
        )  # fmt: skip
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=httpx.HTTPTransport(retries=50)) as page:
            found: list[dict[str, str]] = []

            def counted() -> bool:
                (table,) = page.get("/stats/requests").json()["extended_stats"]
                found[:] = table["data"]
                return bool(found) and int(found[0]["answered"]) >= 20

            locust.wait_until(lambda: "Tokens" in page.get("/").text)
            locust.wait_until(counted)
        output = locust.wait()
    assert locust.process.returncode == 0, output
    assert found[0]["load"] == "4 users"
    assert 99 < float(found[0]["ttft_p50"]) < 250, "100 ms, and what a busy machine adds"
    assert len(locust.records) >= int(found[0]["answered"])
    assert found[0]["goodput"] == "0.0", "no first token comes within 20 ms"
