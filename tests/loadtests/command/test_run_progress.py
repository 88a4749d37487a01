"""What a run is doing right now, from what it publishes."""

import dataclasses
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from enginebench.records.metrics import REQUEST_METRICS
from enginebench.records.search import SearchRecord, SearchState
from enginebench.records.stage import SECOND, Extent, Stage
from enginebench.records.view import Distribution, Estimate, Finding, Missing, StageView
from loadtests.harness.command.run_progress import progress, where_it_stands
from loadtests.harness.live.live_json import LiveDocument, read_live, write_live
from tests.support.records import META, plan

VIEW = StageView(
    index=1,
    label="2 users",
    load=2,
    load_unit="users",
    start=37,
    end=46,
    outcomes={"ok": 3},
    metrics={
        metric.name: Distribution(
            4, 1, 0.02, None, None, None, {"p50": Estimate(0.02), "p99": Estimate(None, missing=Missing.FAILED)}
        )
        for metric in REQUEST_METRICS
    },
    quantities={"throughput": Estimate(12.0), "goodput": Estimate(0.5)},
    findings=(
        Finding("late", "warn", "it was late", "be early"),
        Finding("rude", "warn", "it was rude", "be polite"),
        Finding("odd", "note", "it was odd", "nothing"),
    ),
)
LIVE = LiveDocument(t=46 * SECOND, outcomes={"ok": 7, "rejected": 1, "cut_off": 1}, in_flight=2, stages=(VIEW,))
TOTAL = "8 requests, 1 failed, 1 cut off by its end"


STAGES = (
    Stage(0, plan(seconds=30.0, warm_up=6.0), 0, 6 * SECOND, 30 * SECOND, 31 * SECOND),
    Stage(1, plan(seconds=30.0, warm_up=6.0), 31 * SECOND, 37 * SECOND),
)


@pytest.mark.parametrize(
    ("stage", "at", "share", "text"),
    [
        pytest.param(
            dataclasses.replace(STAGES[1], steady_start=None), 34, 0.55, "warming up, 27 s left", id="warm-up"
        ),
        pytest.param(STAGES[1], 46, 0.75, "measuring, 15 s left", id="window"),
        pytest.param(dataclasses.replace(STAGES[1], steady_end=1), 62, 1.0, "waiting for answers", id="hold"),
    ],
)
def test_progress_says_where_the_run_stands(stage: Stage, at: int, share: float, text: str) -> None:
    meta = dataclasses.replace(META, plan=(STAGES[0].plan,) * 2, stages=(STAGES[0], stage))
    found, said = where_it_stands(meta, at * SECOND, LiveDocument())
    assert found == pytest.approx(share)
    assert said.startswith(f"stage 2/2, 2 users, {text}, 0 requests, 0 failed")


def test_a_stage_in_requests_has_no_share_of_its_own() -> None:
    by_count = dataclasses.replace(plan(), window=Extent(100, "requests"), name="200 prompt tokens")
    meta = dataclasses.replace(META, plan=(by_count,) * 4, stages=(Stage(0, by_count, 0, 5),))
    share, said = where_it_stands(meta, 9 * SECOND, LiveDocument())
    assert share == 0.125
    assert said.startswith("stage 1/4, 200 prompt tokens, measuring")


def test_of_users_who_grow_the_share_is_that_of_the_time() -> None:
    meta = dataclasses.replace(
        META, workload={**META.workload, "by": "growth", "search_seconds": 60.0}, stages=(STAGES[0], STAGES[1])
    )
    share, said = where_it_stands(meta, 45 * SECOND, LiveDocument())
    assert share == 0.75
    assert said.startswith("2 users, measuring, 0 requests")


@pytest.mark.parametrize("state", ["running", "undecided"])
def test_a_search_shows_its_bracket_and_no_closing_sentence(state: SearchState) -> None:
    search = SearchRecord("users", "users", ("ttft_p95=1",), 0.2, state, 35.3, missed=45.0)
    _, said = where_it_stands(dataclasses.replace(META, stages=STAGES, search=search), 46 * SECOND, LiveDocument())
    assert said == "2 users, measuring, capacity about 35.3 users; at most 45 certified, 0 requests, 0 failed"


def test_a_terminal_of_80_columns_has_a_bar_and_a_line() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, height=30, color_system=None)
    with progress(console, "scripted engine") as show:
        show(0.5, f"16 users, measuring, {TOTAL}, TTFT p50 20.0 ms p99 31.0 ms, TPOT p50 4.00 ms")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue()).replace("\r", "\n")
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= 80
    at = max(index for index, line in enumerate(lines) if line.startswith("scripted engine ━"))  # as it was drawn last
    assert lines[at + 1].startswith("16 users, measuring, 8 requests, 1 failed")
    assert lines[at + 1].endswith("…")


def test_after_the_last_stage_the_last_answers_come_in() -> None:
    share, said = where_it_stands(META, 12 * SECOND, LiveDocument())
    assert (share, said.startswith("last answers, 0 requests")) == (1.0, True)


def test_progress_shows_what_is_declared_of_the_current_stage_and_its_gravest_finding(tmp_path: Path) -> None:
    meta = dataclasses.replace(META, plan=(STAGES[0].plan,) * 2, stages=STAGES)
    write_live(tmp_path, LIVE)
    _, said = where_it_stands(meta, 46 * SECOND, read_live(tmp_path))
    assert said.partition(" left, ")[2] == (
        f"{TOTAL}, TTFT p50 20.0 ms p99 failed, TPOT p50 20.0 ms p99 failed, output 12.0 tokens/s, "
        "goodput 0.500 req/s, warn: it was late (and 1 more)"
    )


def test_before_its_window_a_stage_has_no_numbers(tmp_path: Path) -> None:
    assert read_live(tmp_path) == LiveDocument()
    meta = dataclasses.replace(META, plan=(STAGES[0].plan,) * 2, stages=STAGES)
    _, said = where_it_stands(meta, 46 * SECOND, dataclasses.replace(LIVE, stages=()))
    assert said.endswith(TOTAL)
