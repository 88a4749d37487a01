"""Lines into a table: what is read, and what is skipped. Metrics by hand: tests/records/test_metrics.py."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from enginebench.analysis.data.lines import KILLED, LINES_ONLY, SCHEMA
from enginebench.analysis.data.requests_table import write_table
from enginebench.analysis.data.run_data import NotARun, load_run, with_metrics
from enginebench.analysis.data.tokens import write_counts
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND
from tests.support.analysis.synthetic import meta_of, record, sent_line, stages_of, write_run

META = meta_of(stages_of((1,), 10.0))
REQUIRED = [field.name for field in msgspec.structs.fields(RequestRecord) if field.required]


def uncounted(texts: list[str]) -> list[int] | None:
    return None


def malformed(folder: Path, tokenizer: Path | None = None) -> int:
    """How many lines were skipped as the table was written."""
    return write_table(folder, uncounted, tokenizer)[1]


def written(folder: Path, *lines: str) -> None:
    write_run(folder, META, [])
    (folder / "requests-0.jsonl").write_text("".join(lines))


def table(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "requests.parquet")


def test_every_field_of_the_record_has_a_column() -> None:
    assert {*SCHEMA, *LINES_ONLY} == set(RequestRecord.__struct_fields__)
    assert SCHEMA["icl"] == pl.List(pl.Int64)
    assert SCHEMA["server_queue"] == pl.Float64()
    assert SCHEMA["t_first"] == pl.Int64()
    assert SCHEMA["chunks"] == pl.Int32()


def test_unknown_fields_are_ignored_and_missing_optional_ones_have_their_defaults(tmp_path: Path) -> None:
    whole = json.loads(record(0, 0).to_line())
    least = {name: whole[name] for name in ("event", *REQUIRED)}
    lines = [whole | {"invented_later": {"deep": [1, {"er": None}]}}, least | {"request_id": "0-1"}]
    written(tmp_path, *(json.dumps(line) + "\n" for line in lines))
    assert malformed(tmp_path) == 0
    first, second = table(tmp_path).rows(named=True)
    assert first["ttft"] == pytest.approx(0.1)
    defaults = {"stamps": "user", "chunks": 0, "merged_first": False, "icl": [], "streamed": True}
    assert {name: second[name] for name in defaults} == defaults
    assert second["ttft"] is None


def test_a_request_that_was_sent_and_never_ended_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three sent, one of them ended, in blocks that part the line of the sending from that of the end."""
    monkeypatch.setattr("enginebench.records.files.BLOCK_BYTES", 200)
    ended, *others = (record(k, k * SECOND) for k in range(3))
    written(tmp_path, sent_line(ended), sent_line(others[0]), ended.to_line(), sent_line(others[1]))
    assert malformed(tmp_path) == 0
    rows = {row["request_id"]: row for row in table(tmp_path).rows(named=True)}
    assert [rows[f"0-{k}"]["outcome"] for k in range(3)] == ["ok", "cut_off", "cut_off"]
    assert rows["0-1"]["detail"] == KILLED
    assert rows["0-1"]["t_end"] == 2 * SECOND, "the last trace of its process"
    assert rows["0-1"]["ttft"] is None


def test_malformed_lines_in_the_middle_are_skipped_and_counted(tmp_path: Path) -> None:
    lines = [record(k, k * SECOND).to_line() for k in range(6)]
    lines[1] = lines[1][:100] + lines[2]  # a disk was full for a while
    lines[4] = "\0\0\0\n"
    lines.append('{"request_id": 5}\n')
    lines.append("{}\n")
    written(tmp_path, *lines)
    assert malformed(tmp_path) == 4
    assert table(tmp_path)["request_id"].to_list() == ["0-0", "0-2", "0-3", "0-5"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"icl": None}, id="no list of gaps"),
        pytest.param({"icl": "123"}, id="a word in place of gaps"),
        pytest.param({"icl": [2**63]}, id="a gap of 64 bits"),
        pytest.param({"chunks": 2**31}, id="more chunks than an answer can have"),
        pytest.param({"t_first": "soon"}, id="an instant that is a word"),
        pytest.param({"chunks": None}, id="no count"),
    ],
)
def test_a_record_that_holds_something_else_is_skipped_and_counted(tmp_path: Path, change: dict[str, object]) -> None:
    written(tmp_path, record(0, 0).to_line(), json.dumps(json.loads(record(1, SECOND).to_line()) | change) + "\n")
    run = load_run(tmp_path)
    assert (len(run.requests), run.malformed_lines) == (1, 1)


def test_spaces_in_a_list_are_read(tmp_path: Path) -> None:
    line = json.dumps(json.loads(record(0, 0, icl=(5, 7)).to_line())) + "\n"
    assert '"icl": [5, 7]' in line
    written(tmp_path, line)
    assert malformed(tmp_path) == 0
    assert table(tmp_path)["icl"].to_list() == [[5, 7]]


def test_answers_without_usage_are_counted_by_the_tokenizer(tmp_path: Path) -> None:
    texts = [record(0, 0, output_tokens=None, token_source=None, text="one two three four"), record(1, 1)]
    write_run(tmp_path, META, texts)
    write_table(tmp_path, lambda texts: [len(text.split()) for text in texts])
    assert table(tmp_path).select("output_tokens", "token_source").rows() == [(4, "tokenizer"), (3, "usage")]
    assert "text" not in table(tmp_path).columns


def a_tokenizer(folder: Path) -> Path:
    """A folder with a tokenizer.json that knows two words."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "hello": 1, "world": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_the_table_is_written_anew_when_what_it_was_made_from_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, META, [record(0, 0)])
    path = tmp_path / "requests-0.jsonl"
    path.write_text(path.read_text() + "{}\n")

    def anew() -> bool:
        (tmp_path / "requests.parquet").touch()
        before = (tmp_path / "requests.parquet").stat()
        assert malformed(tmp_path) == 1, "the malformed line is told again"
        return (tmp_path / "requests.parquet").stat().st_ino != before.st_ino

    assert malformed(tmp_path) == 1
    assert not anew(), "nothing has changed"
    path.write_text(path.read_text() + record(1, 1).to_line())
    assert anew(), "a line more"
    assert len(table(tmp_path)) == 2
    monkeypatch.setattr("enginebench.analysis.data.requests_table.LAYOUT", 99)
    assert anew(), "another version's"


def test_answers_that_could_not_be_counted_are_tried_again(tmp_path: Path) -> None:
    write_run(tmp_path, META, [record(0, 0, output_tokens=None, token_source=None, text="one two")])
    write_table(tmp_path, uncounted)
    assert table(tmp_path)["output_tokens"].to_list() == [None]
    write_table(tmp_path, lambda texts: [len(text.split()) for text in texts])
    assert table(tmp_path)["output_tokens"].to_list() == [2]


def test_a_run_of_which_only_the_table_is_left_is_read(tmp_path: Path) -> None:
    write_run(tmp_path, META, [record(k, k * SECOND) for k in range(3)])
    load_run(tmp_path)
    (tmp_path / "requests-0.jsonl").unlink()
    assert with_metrics(load_run(tmp_path).requests)["ttft"].to_list() == pytest.approx([0.1] * 3)
    table(tmp_path).drop("ttft").write_parquet(tmp_path / "requests.parquet")
    with pytest.raises(NotARun, match="from another version, and the lines it was made from are gone"):
        load_run(tmp_path)


def test_a_run_is_counted_once_whatever_later_commands_name(tmp_path: Path) -> None:
    tokenizer = a_tokenizer(tmp_path)
    one = record(0, 0, output_tokens=None, token_source=None, text="hello world hello")
    folder = write_run(tmp_path / "run", dataclasses.replace(META, model="unheard-of"), [one])
    assert load_run(folder).requests["output_tokens"].to_list() == [None]
    for named in (tokenizer, None):
        assert load_run(folder, named).requests["output_tokens"].to_list() == [3]
    path = folder / "requests-0.jsonl"
    path.write_text(path.read_text() + record(1, SECOND, output_tokens=None, text="hello").to_line())
    assert load_run(folder).requests["output_tokens"].to_list() == [3, 1], "more lines are counted in the same way"


def test_counts_in_the_lines_of_a_run_need_no_tokenizer_elsewhere(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    a_tokenizer(model)
    lacks = {"output_tokens": None, "token_source": None}
    cut_off = record(1, SECOND, outcome="cut_off", text="hello world hello", **lacks)
    records = [record(0, 0, text="kept"), cut_off, record(2, 2 * SECOND, **lacks)]
    folder = write_run(tmp_path / "run", dataclasses.replace(META, model=str(model)), records)
    path = folder / "requests-0.jsonl"
    unchanged, damaged = path.read_bytes().splitlines(keepends=True), b'{"output_tokens":null, cut'
    path.write_bytes(b"".join([sent_line(record(9, 0)).encode(), *unchanged, damaged]))
    write_counts(folder)
    model.rename(tmp_path / "elsewhere")
    lines = path.read_bytes().splitlines(keepends=True)
    assert [lines[1], lines[3], lines[4]] == [unchanged[0], unchanged[2], damaged]
    counted = load_run(folder).requests.select("output_tokens", "token_source").rows()
    assert (3, "tokenizer") in counted
    assert (None, None) in counted
    before = path.read_bytes()
    write_counts(folder)
    assert path.read_bytes() == before
    assert not list(folder.glob(".*"))


def test_requests_are_in_the_order_of_their_schedule_whatever_that_of_their_ends(tmp_path: Path) -> None:
    records = [record(k, t) for k, t in enumerate((5, 3, 9, 1))]
    requests = load_run(write_run(tmp_path, META, records)).requests
    assert requests["t_sched"].to_list() == [1, 3, 5, 9]
    assert requests["t_end"].to_list() == [one.t_end for one in sorted(records, key=lambda one: one.t_sched)]


def test_two_commands_may_make_the_same_table_at_once(tmp_path: Path) -> None:
    write_run(tmp_path, META, [record(0, SECOND, output_tokens=None, text="one two")])
    report = [sys.executable, "-m", "enginebench", "report", str(tmp_path), "--allow-invalid"]

    def counted_meanwhile(texts: list[str]) -> list[int]:
        subprocess.run(report, capture_output=True, timeout=120)
        return [2] * len(texts)

    write_table(tmp_path, counted_meanwhile)
    assert table(tmp_path)["output_tokens"].to_list() == [2]


@pytest.mark.parametrize(
    ("changes", "tokens", "reported"),
    [
        pytest.param({"output_tokens": 0}, None, 0, id="zero"),
        pytest.param({"output_tokens": 2}, None, 2, id="fewer than chunks"),
        pytest.param({"output_tokens": 3}, 3, None, id="as many as chunks"),
        pytest.param({"output_tokens": 2, "token_source": "tokenizer"}, 2, None, id="a tokenizer may join chunks"),
        pytest.param({"output_tokens": 0, "token_source": "tokenizer"}, None, 0, id="but never to nothing"),
        pytest.param({"output_tokens": 4, "unseen_tokens": 2}, 4, None, id="reasoning that was shown after all"),
        pytest.param({"output_tokens": 0, "chunks": 0, "streamed": False, "answer_digest": "x"}, None, 0, id="whole"),
        pytest.param({"output_tokens": 0, "chunks": 0, "icl": ()}, 0, None, id="an empty answer has none"),
    ],
)
def test_counts_that_cannot_be_are_unknown_in_records_of_other_tools_too(
    tmp_path: Path, changes: dict[str, Any], tokens: int | None, reported: int | None
) -> None:
    told = record(0, 3 * SECOND, **{"chunks": 3, "answer_digest": None} | changes)
    write_run(tmp_path, META, [told])
    write_table(tmp_path, uncounted)
    (read,) = table(tmp_path).to_dicts()
    assert (read["output_tokens"], read["reported_tokens"]) == (tokens, reported)
