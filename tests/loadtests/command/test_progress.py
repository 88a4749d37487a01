"""What a run is doing right now, from records that are still growing."""

import dataclasses
from pathlib import Path

import pytest

from loadtests.harness.command.progress import Tally, where_it_stands
from records.request import SentRecord
from records.slo import RunObjectives
from records.stage import SECOND, Extent, Stage
from tests.support.records import META, plan, record


def test_progress_reads_records_as_they_grow(tmp_path: Path) -> None:
    tally = Tally(tmp_path)
    tally.update()
    assert tally.sentence(SECOND) == "0 requests, 0 failed, 0 tokens/s"
    sent = SentRecord(request_id="0-9", worker="0", stage=0, t_sched=1, t_send=2).to_line()
    first = 20_000_000  # nanoseconds after the start of each
    starts = [number * SECOND for number in range(1, 5)]
    lines = [
        sent,
        *(
            record(t_sched=at, t_first=at + first, t_last=at + 11 * first, t_end=at + 11 * first).to_line()
            for at in starts
        ),
    ]
    path = tmp_path / "requests-0.jsonl"
    path.write_text(lines[0] + lines[1] + lines[2][:50])
    tally.update()
    assert tally.requests == 1, "what has only been sent and half a line are no requests yet"
    path.write_text("".join(lines))
    (tmp_path / "requests-1.jsonl").write_text(record(5, outcome="cut_off").to_line())
    tally.update()
    tally.update()
    # Four answers of twelve tokens within four seconds.
    total = "4 requests, 0 failed, 1 cut off by its end, 12 tokens/s"
    assert tally.sentence(4 * SECOND) == f"{total}, TTFT in ms p50 20 p99 20, TPOT in ms p50 20 p99 20"


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
def test_progress_says_where_the_run_stands(tmp_path: Path, stage: Stage, at: int, share: float, text: str) -> None:
    meta = dataclasses.replace(META, plan=(STAGES[0].plan,) * 2, stages=(STAGES[0], stage))
    found, said = where_it_stands(meta, at * SECOND, Tally(tmp_path))
    assert found == pytest.approx(share)
    assert said.startswith(f"stage 2/2, 2 users, {text}, 0 requests, 0 failed")


def test_a_stage_in_requests_has_no_share_of_its_own(tmp_path: Path) -> None:
    by_count = dataclasses.replace(plan(), window=Extent(100, "requests"), name="200 prompt tokens")
    meta = dataclasses.replace(META, plan=(by_count,) * 4, stages=(Stage(0, by_count, 0, 5),))
    share, said = where_it_stands(meta, 9 * SECOND, Tally(tmp_path))
    assert share == 0.125
    assert said.startswith("stage 1/4, 200 prompt tokens, measuring")


def test_after_the_last_stage_the_last_answers_come_in(tmp_path: Path) -> None:
    share, said = where_it_stands(META, 12 * SECOND, Tally(tmp_path))
    assert (share, said.startswith("last answers, 0 requests")) == (1.0, True)


def test_goodput_is_shown_where_there_are_objectives(tmp_path: Path) -> None:
    """Of four requests within four seconds two meet the objective of all, and one of these misses its class's own."""
    lines = [
        record(request_class=kind, t_sched=0, t_first=first, t_last=first + 100, t_end=at * SECOND).to_line()
        for at, (kind, first) in enumerate(
            [(None, SECOND // 10), ("chat", SECOND // 5), ("chat", SECOND // 10), (None, SECOND)]
        )
    ]
    (tmp_path / "requests-0.jsonl").write_text("".join(lines))
    tally = Tally(tmp_path, RunObjectives.of({"slo": "ttft_p95=0.5", "class_objectives": {"chat": "ttft_p95=0.15"}}))
    tally.update()
    assert "12 tokens/s, goodput 0.5 req/s, TTFT" in tally.sentence(4 * SECOND)
