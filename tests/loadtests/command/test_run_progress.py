"""What a run is doing right now, from what it publishes."""

import dataclasses
import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from enginebench.records.metrics import REQUEST_METRICS
from enginebench.records.run import RunMeta
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


PLANNED = dataclasses.replace(META, plan=(STAGES[0].plan,) * 2, stages=STAGES)
BY_COUNT = dataclasses.replace(plan(), window=Extent(100, "requests"), name="200 prompt tokens")
COUNTED = dataclasses.replace(META, plan=(BY_COUNT,) * 4, stages=(Stage(0, BY_COUNT, 0, 5),))
GROWTH = {"by": "growth", "search_seconds": 60.0}
GROWING = dataclasses.replace(META, workload={**META.workload, **GROWTH}, stages=STAGES)


def in_stage(steady_start: int | None = 37 * SECOND, steady_end: int | None = None) -> RunMeta:
    second = dataclasses.replace(STAGES[1], steady_start=steady_start, steady_end=steady_end)
    return dataclasses.replace(PLANNED, stages=(STAGES[0], second))


@pytest.mark.parametrize(
    ("meta", "at", "share", "text"),
    [
        pytest.param(in_stage(steady_start=None), 34, 0.55, "stage 2/2, 2 users, warming up, 27 s left", id="warm-up"),
        pytest.param(PLANNED, 46, 0.75, "stage 2/2, 2 users, measuring, 15 s left", id="window"),
        pytest.param(in_stage(steady_end=1), 62, 1.0, "stage 2/2, 2 users, waiting for answers", id="hold"),
        pytest.param(COUNTED, 9, 0.125, "stage 1/4, 200 prompt tokens, measuring", id="a stage in requests"),
        pytest.param(GROWING, 45, 0.75, "2 users, measuring", id="of users who grow, the share of the time"),
        pytest.param(META, 12, 1.0, "last answers", id="after the last stage"),
    ],
)
def test_progress_says_where_the_run_stands(meta: RunMeta, at: int, share: float, text: str) -> None:
    found, said = where_it_stands(meta, at * SECOND, LiveDocument())
    assert found == pytest.approx(share)
    assert said.startswith(f"{text}, 0 requests")


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


def test_progress_shows_what_is_declared_of_the_current_stage_and_its_gravest_finding(tmp_path: Path) -> None:
    write_live(tmp_path, LIVE)
    _, said = where_it_stands(PLANNED, 46 * SECOND, read_live(tmp_path))
    assert said.partition(" left, ")[2] == (
        f"{TOTAL}, TTFT p50 20.0 ms p99 failed, TPOT p50 20.0 ms p99 failed, output 12.0 tokens/s, "
        "goodput 0.500 req/s, warn: it was late (and 1 more)"
    )


def test_before_its_window_a_stage_has_no_numbers(tmp_path: Path) -> None:
    assert read_live(tmp_path) == LiveDocument()
    _, said = where_it_stands(PLANNED, 46 * SECOND, dataclasses.replace(LIVE, stages=()))
    assert said.endswith(TOTAL)
