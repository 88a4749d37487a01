"""The contract on disk: what is written can be read back, whatever a crash or another version did to it."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginebench.records.files import (
    JOURNAL,
    close_journal,
    read_meta,
    read_requests,
    read_samples,
    write_atomically,
    write_meta,
)
from enginebench.records.load import Rate
from enginebench.records.request import RequestRecord, SentRecord
from enginebench.records.run import JournalLine, RunEvent
from enginebench.records.stage import Extent, Stage, StagePlan, changed
from tests.support.records import META, RECORD, record

CUT_OFF = record(2, outcome="cut_off", status=None, t_first=None, t_last=None, icl=(), detail="é\n", server_queue=None)
SENT = SentRecord(request_id="0-3", worker="0", stage=0, t_sched=5, t_send=7)


@pytest.mark.parametrize("one", [RECORD, CUT_OFF], ids=["answered", "cut off"])
def test_a_record_comes_back_equal(one: RequestRecord, tmp_path: Path) -> None:
    (tmp_path / "requests-0.jsonl").write_text(one.to_line())
    assert list(read_requests(tmp_path)) == [one]


def test_the_line_written_as_a_request_is_sent_is_no_finished_request(tmp_path: Path) -> None:
    (tmp_path / "requests-0.jsonl").write_text(SENT.to_line() + RECORD.to_line())
    assert list(read_requests(tmp_path)) == [RECORD]
    assert json.loads(SENT.to_line()) == {
        "event": "sent", "request_id": "0-3", "worker": "0", "stage": 0, "t_sched": 5, "t_send": 7,
    }  # fmt: skip


def test_a_line_cut_short_by_a_crash_is_skipped_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "requests-0.jsonl").write_text(RECORD.to_line() + RECORD.to_line()[:40])
    (tmp_path / "requests-1.jsonl").write_text(CUT_OFF.to_line())
    assert list(read_requests(tmp_path)) == [RECORD, CUT_OFF]


def test_fields_of_a_later_version_are_ignored_and_optional_ones_are_filled(tmp_path: Path) -> None:
    required = {field.name for field in msgspec.structs.fields(RequestRecord) if field.required}
    document = json.loads(RECORD.to_line())
    short = {name: document[name] for name in ("event", *required)} | {"a_later_field": 1}
    (tmp_path / "requests-0.jsonl").write_text(json.dumps(short) + "\n")
    (found,) = read_requests(tmp_path)
    assert found == RequestRecord(**{name: document[name] for name in required})
    assert required == {"request_id", "worker", "scenario", "stage", "outcome", "t_sched", "t_end"}
    (tmp_path / "telemetry.jsonl").write_text('{"t": 5, "a_later_field": 1}\n{"no": "sample"}\nhalf a li')
    (sample,) = read_samples(tmp_path / "telemetry.jsonl")
    assert (sample.t, sample.server, sample.users, sample.last, sample.lost) == (5, {}, None, False, 0)


def test_meta_comes_back_whole_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    write_meta(tmp_path, META)
    assert read_meta(tmp_path) == META
    assert [path.name for path in tmp_path.iterdir()] == ["meta.json"]


def test_open_loops_named_stages_and_stages_that_are_on_come_back_too(tmp_path: Path) -> None:
    plan = StagePlan(
        Rate(8.0, "gamma:cv=2"), Extent(5, "requests"), Extent(100, "requests"), 30.0, "probe 3", {"prompt_tokens": "9"}
    )
    meta = dataclasses.replace(META, plan=(plan,), stages=(Stage(0, plan, 0, 5, None, None),))
    write_meta(tmp_path, meta)
    assert read_meta(tmp_path) == meta


def test_meta_of_a_later_version_of_the_same_schema_is_read(tmp_path: Path) -> None:
    document = json.loads(msgspec.json.encode(META)) | {"a_later_field": 1}
    document["stages"][0] |= {"a_later_field": 1}
    document["stages"][0]["plan"] |= {"a_later_field": 1}
    document["plan"][0]["window"] |= {"a_later_field": 1}
    for optional in ("repeat", "commit", "workers", "hosts", "client_error"):
        del document[optional]
    (tmp_path / "meta.json").write_text(json.dumps(document))
    assert read_meta(tmp_path) == dataclasses.replace(META, client_error=(), workers=1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"schema": 99}', "schema 99; this version reads 3"),
        ("[]", "cannot be understood"),
        ("{}", "schema None; this version reads 3"),
        ('{"schema": 3, "run_id": "x"}', "cannot be understood"),
    ],
)
def test_what_cannot_be_read_is_told_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_meta(tmp_path)


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_meta(tmp_path)


def test_a_file_that_cannot_be_written_is_named_as_it_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "report.html"
    with pytest.raises(FileNotFoundError) as failure:
        write_atomically(path, "")
    assert failure.value.filename == str(path)


def test_a_link_is_followed_and_a_pipe_is_written_to(tmp_path: Path) -> None:
    """As /dev/stdout is: replaced by a file, it would be gone for every program."""
    link, target, pipe = tmp_path / "link", tmp_path / "target", tmp_path / "pipe"
    link.symlink_to(target)
    write_atomically(link, "one")
    assert link.is_symlink()
    assert target.read_text() == "one"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, "two")
    assert os.read(reader, 100) == b"two"
    os.close(reader)
    assert pipe.is_fifo()
    assert {path.name for path in tmp_path.iterdir()} == {"link", "target", "pipe"}
    reading, writing = os.pipe()
    write_atomically(Path(f"/dev/fd/{writing}"), "three")  # as a shell's `| program` and `>(program)` are
    assert os.read(reading, 100) == b"three"
    os.close(reading)
    os.close(writing)


FIRST, SECOND_STAGE = META.stages[0], dataclasses.replace(META.stages[0], index=1, start=20, steady_start=25)
STOPPED = RunEvent(30, "docker restart server")
BARE = dataclasses.replace(META, stages=())


def journal(folder: Path, *lines: JournalLine) -> None:
    with (folder / JOURNAL).open("a") as file:
        file.writelines(line.to_line() for line in lines)


def test_what_has_happened_is_known_although_meta_was_never_written_again(tmp_path: Path) -> None:
    """As when the process was killed, or had no descriptor left for another file."""
    write_meta(tmp_path, BARE)
    begun = dataclasses.replace(FIRST, steady_start=None, steady_end=None, end=None)
    journal(tmp_path, JournalLine(stage=begun), JournalLine(stage=FIRST), JournalLine(stage=SECOND_STAGE))
    journal(tmp_path, JournalLine(event=STOPPED))
    with (tmp_path / JOURNAL).open("a") as file:
        file.write('{"stage":{"index":2,')  # cut short by a crash
    found = read_meta(tmp_path)
    assert found.stages == (FIRST, SECOND_STAGE)
    assert found.plan == (*BARE.plan, SECOND_STAGE.plan), "a stage that was not planned beforehand, as of a search"
    assert found.events == (STOPPED,)


def test_a_complete_meta_needs_no_journal(tmp_path: Path) -> None:
    write_meta(tmp_path, BARE)
    journal(tmp_path, JournalLine(stage=FIRST), JournalLine(event=STOPPED))
    whole = read_meta(tmp_path)
    close_journal(tmp_path, whole)
    assert [path.name for path in tmp_path.iterdir()] == ["meta.json"]
    assert read_meta(tmp_path) == whole
    journal(tmp_path, JournalLine(stage=FIRST), JournalLine(event=STOPPED))  # killed before it was removed
    assert read_meta(tmp_path) == whole


def test_a_run_that_ends_while_it_is_read_has_all_its_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_meta(tmp_path, BARE)
    journal(tmp_path, JournalLine(stage=FIRST), JournalLine(stage=SECOND_STAGE))
    whole = read_meta(tmp_path)
    read = Path.read_bytes

    def read_and_end(path: Path) -> bytes:
        content = read(path)
        close_journal(tmp_path, whole)
        return content

    monkeypatch.setattr(Path, "read_bytes", read_and_end)
    assert read_meta(tmp_path) == whole


def test_a_stage_that_was_announced_and_never_begun_is_taken_back(tmp_path: Path) -> None:
    write_meta(tmp_path, BARE)
    cut = dataclasses.replace(FIRST, end=15)
    journal(tmp_path, *(JournalLine(stage=stage) for stage in (FIRST, SECOND_STAGE, cut)))
    assert read_meta(tmp_path).stages == (cut,)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param([], [FIRST], [FIRST], id="the first one begins"),
        pytest.param([FIRST], [FIRST], [], id="nothing has changed"),
        pytest.param([FIRST], [FIRST, SECOND_STAGE], [SECOND_STAGE], id="another one begins"),
        pytest.param([BARE.stages, SECOND_STAGE], [FIRST, SECOND_STAGE], [FIRST, SECOND_STAGE], id="an earlier one"),
        pytest.param([FIRST, SECOND_STAGE], [FIRST], [FIRST], id="the last one is taken back"),
    ],
)
def test_the_stages_that_changed(before: Any, now: list[Stage], expected: list[Stage]) -> None:
    assert list(changed(before, now)) == expected
