"""Parts of a stage's requests: the classes of a mix, and the turns of conversations."""

from pathlib import Path

import pytest

from enginebench.analysis.document import Number, Table
from enginebench.analysis.frame import frame_of
from enginebench.analysis.sections.loads import loads
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND
from enginebench.records.view import StageView
from tests.support.analysis.one_stage import MS, stage_of, summary_of
from tests.support.analysis.synthetic import FAILED, record, stages_of

RARE = 5  # conversations with one more turn: too few for a median with an interval


def mixed(failed: int = 0) -> list[RequestRecord]:
    """Every other request is slow: 100 ms against a limit of 0.2 s, 900 ms against one of 0.5 s."""
    slow = {"t_first": 900 * MS, "t_first_out": 900 * MS, "t_last": 940 * MS, "t_end": 941 * MS, "read_first": 900 * MS}
    records = []
    for k in range(700):
        at = 2 * SECOND + k * 10 * MS
        late = {name: at + value for name, value in slow.items()} if k % 2 else {}
        late = late if k >= 2 * failed else dict(FAILED)
        records.append(record(k, at, request_class="batch" if k % 2 else "chat", user=k % 20, **late))
    return records


def classes_of(tmp_path: Path, records: list[RequestRecord]) -> StageView:
    workload = {"class_objectives": {"chat": "ttft_p95=0.2,e2e_p95=1", "batch": "ttft_p95=0.5"}}
    return stage_of(tmp_path, records, workload=workload)


def test_classes_are_summarised_and_judged_by_their_own_objectives(tmp_path: Path) -> None:
    stage = classes_of(tmp_path, mixed())
    batch, chat = stage.classes
    assert [(part.name, part.requests, part.failed) for part in stage.classes] == [("batch", 350, 0), ("chat", 350, 0)]
    assert chat.metrics["ttft"].percentile("p95").value == pytest.approx(0.1)
    assert batch.metrics["ttft"].percentile("p95").value == pytest.approx(0.9)
    answers = [[judgement.answer for judgement in part.judgements] for part in (chat, batch)]
    assert answers == [["met", "met"], ["missed"]]
    assert [judgement.share.value for judgement in chat.judgements] == [1.0, 1.0]


def test_failures_of_a_class_count_as_missed(tmp_path: Path) -> None:
    """A tenth of either class, as for the whole stage."""
    batch, chat = classes_of(tmp_path, mixed(failed=35)).classes
    assert (batch.failed, chat.failed) == (35, 35)
    assert [judgement.share.value for judgement in chat.judgements] == pytest.approx([0.9, 0.9])


def test_requests_without_a_class_have_no_classes(tmp_path: Path) -> None:
    assert stage_of(tmp_path, [record(0, 3 * SECOND)]).classes == ()


def test_each_turn_with_enough_requests_has_its_median(tmp_path: Path) -> None:
    """Forty conversations of four turns; each adds 100 tokens and 30 ms."""
    records: list[RequestRecord] = []
    for session in range(40):
        for turn in range(4 + (session < RARE)):
            at = 2 * SECOND + session * 20 * MS + turn * SECOND
            first = at + (50 + 30 * turn) * MS
            stamps = {"t_first": first, "t_first_out": first, "read_first": first, "t_last": first + 40 * MS}
            tokens = {"prompt_tokens": 100 * (turn + 1), "session": str(session), "turn": turn, "user": session}
            records.append(record(len(records), at, t_end=first + 40 * MS, **stamps, **tokens))
    records.sort(key=lambda one: one.t_sched)
    summary = summary_of(tmp_path, records, stages=stages_of((40,), 10.0))
    turns = summary.stages[0].turns
    assert [(part.turn, part.requests, part.prompt_tokens) for part in turns] == [
        (1, 40, 100), (2, 40, 200), (3, 40, 300), (4, 40, 400),
    ]  # fmt: skip
    assert [part.ttft.value for part in turns] == pytest.approx([0.05, 0.08, 0.11, 0.14])
    assert all(part.ttft.low is not None for part in turns)
    table = next(
        block for block in loads(frame_of([summary])).blocks if isinstance(block, Table) and block.key == "turns"
    )
    shown = [[cell.estimate.value for cell in row if isinstance(cell, Number)] for row in table.rows]
    assert shown == [[part.turn, part.requests, part.prompt_tokens, part.ttft.value] for part in turns]


def test_requests_of_one_turn_are_no_conversation(tmp_path: Path) -> None:
    alone = [record(k, 2 * SECOND + k * 10 * MS, turn=0, session=str(k)) for k in range(100)]
    assert stage_of(tmp_path, alone).turns == ()
