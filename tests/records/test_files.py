"""The contract on disk: what is written can be read back, and is what the published schema says."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

from records.request import RequestRecord, RunMeta, Stage, json_schema, read_meta, read_requests, write_meta

SCHEMA = Path(__file__).parents[2] / "docs" / "request-record.schema.json"

RECORD = RequestRecord(
    request_id="0-1",
    worker="0",
    scenario="concurrent",
    stage=0,
    users=10,
    outcome="ok",
    detail=None,
    status=200,
    t_sched=1_000,
    t_send=1_200,
    t_headers=2_000,
    t_first=3_000,
    t_first_out=3_000,
    t_last=9_000,
    t_end=9_500,
    read_first=3_100,
    stamps="kernel",
    merged_first=False,
    icl=(2_000, 4_000),
    chunks=3,
    first_chunk_tokens=1,
    prompt_tokens=40,
    output_tokens=3,
    token_source="usage",
    text=None,
    reconnected=False,
    streamed=True,
    server_queue=0.001,
    server_prefill=0.1,
    server_decode=0.2,
)
CUT_OFF = dataclasses.replace(
    RECORD, outcome="cut_off", status=None, t_first=None, t_last=None, icl=(), detail="é\n", server_queue=None
)
META = RunMeta(
    run_id="r",
    started_at="2026-11-21T10:00:00+00:00",
    scenario="concurrent",
    url="http://127.0.0.1:8000",
    model="m",
    stages=(Stage(0, 10, 0, 5, 9, 10),),
    workload={"seed": 0},
    engine=None,
    host={"cores": 2},
    versions={"enginebench": "0"},
    label="m",
    command=("locust",),
    client_error=((5000.0, 0.0001),),
)


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(SCHEMA.read_text()) == json_schema(), "write docs/request-record.schema.json again"


@pytest.mark.parametrize("record", [RECORD, CUT_OFF], ids=["answered", "cut off"])
def test_a_record_obeys_the_schema_and_comes_back(record: RequestRecord, tmp_path: Path) -> None:
    jsonschema.validate(json.loads(record.to_line()), json_schema())
    (tmp_path / "requests-0.jsonl").write_text(record.to_line())
    assert list(read_requests(tmp_path)) == [record]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"outcome": "fine"}, id="an outcome nobody knows"),
        pytest.param({"t_send": 0.5}, id="half a nanosecond"),
        pytest.param({"chunks": None}, id="a count that is missing"),
        pytest.param({"extra": 1}, id="a field nobody knows"),
    ],
)
def test_the_schema_refuses_what_is_no_record(change: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads(RECORD.to_line()) | change, json_schema())


def test_a_line_cut_short_by_a_crash_is_skipped_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "requests-0.jsonl").write_text(RECORD.to_line() + RECORD.to_line()[:40])
    (tmp_path / "requests-1.jsonl").write_text(CUT_OFF.to_line())
    assert list(read_requests(tmp_path)) == [RECORD, CUT_OFF]


def test_meta_comes_back_whole_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    write_meta(tmp_path, META)
    assert read_meta(tmp_path) == META
    assert [path.name for path in tmp_path.iterdir()] == ["meta.json"]


def test_records_of_another_schema_are_refused_with_a_sentence(tmp_path: Path) -> None:
    write_meta(tmp_path, dataclasses.replace(META, schema=99))
    with pytest.raises(ValueError, match="schema 99; this version reads 1"):
        read_meta(tmp_path)


@pytest.mark.parametrize(
    ("load", "error"),
    [
        pytest.param(500, 0.0001, id="lighter than anything calibrated"),
        pytest.param(3000, 0.0003, id="between two loads: the heavier one's"),
        pytest.param(20_000, 0.004, id="the heaviest one"),
        pytest.param(20_001, None, id="heavier than anything calibrated"),
    ],
)
def test_the_clients_error_is_that_of_the_next_heavier_calibrated_load(load: float, error: float | None) -> None:
    calibrated = dataclasses.replace(META, client_error=((1000, 0.0001), (20_000, 0.004), (5000, 0.0003)))
    assert calibrated.client_error_at(load) == error
    assert dataclasses.replace(META, client_error=()).client_error_at(load) is None, "nobody has calibrated it"
