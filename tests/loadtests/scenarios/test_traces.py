"""Published traces are read as they are, and played again at their times and lengths."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import polars as pl
import pytest

from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND
from loadtests.harness.schedule.trace import trace_stage
from loadtests.harness.workload.prompt_source import assumed
from loadtests.harness.workload.trace_files import read_trace
from tests.support.analysis.synthetic import meta_of, record, stages_of, write_run
from tests.support.loadtests.locust_process import MS, ROOT, start
from tests.support.servers.scripted import Script, ScriptedServer
from tests.support.servers.served import served

DATA = ROOT / "tests/data/traces"
REPLAY = ROOT / "loadtests/replay.py"


def rows(name: str) -> list[tuple[Any, ...]]:
    trace = read_trace(str(DATA / name))
    arrivals = [(arrival.at, request) for arrival in trace.arrivals for request in arrival.requests]
    return [(at, one.prompt_tokens, one.output_tokens, one.session) for at, one in arrivals]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param(
            "mooncake.jsonl",
            [(0, 1100, 20, None), (0, 1300, 4, None), (0.35, 600, 9, None), (1.2, 300, 5, None), (1.9, 1600, 12, None)],
            id="Mooncake counts in milliseconds",
        ),
        pytest.param(
            "azure_2023.csv", [(0, 374, 44, None), (4.314579, 396, 109, None), (4.541877, 879, 55, None)],
            id="Azure 2023 has seven digits and no zone",
        ),
        pytest.param(
            "azure_2024.csv", [(0, 2162, 5, None), (0.007405, 2399, 6, None), (1.5, 76, 15, None)],
            id="Azure 2024 has zones",
        ),
        pytest.param(
            "burstgpt.csv", [(0, 472, 18, "101"), (40, 1087, 230, "102"), (113, 417, 276, "101")],
            id="BurstGPT's failures are left out",
        ),
    ],
)  # fmt: skip
def test_formats_as_published(name: str, expected: list[tuple[Any, ...]]) -> None:
    found = rows(name)
    assert [one[1:] for one in found] == [one[1:] for one in expected]
    assert [one[0] for one in found] == pytest.approx([one[0] for one in expected], abs=2e-6)


def test_sharegpt_has_texts_and_no_times() -> None:
    trace = read_trace(str(DATA / "sharegpt.json"))
    assert not trace.is_timed
    first, second, third = trace.requests
    assert [request.session for request in trace.requests] == ["a1", "a1", "b2"]
    assert first.messages == (("user", "What is a queue?"),)
    assert [role for role, _ in second.messages] == ["user", "assistant", "user"]
    assert third.messages == (("assistant", "Hello."), ("user", "Count to three."))
    assert [request.output_tokens for request in trace.requests] == [15, 6, 4], "characters over four"
    with pytest.raises(ValueError, match="set the requests per second with --rate"):
        trace_stage("sharegpt.json", trace, (0.0, False))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        pytest.param("none.csv", "cannot read .*none.csv: No such file", id="no file"),
        pytest.param("gateway.csv", "line 2 has when_ms, route, tokens_in, tokens_out", id="unknown columns"),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(name: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_trace(str(DATA / name))


AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(
            b",TIMESTAMP,ContextTokens,GeneratedTokens\n0,1,9,5\n1,2,9,5\n", [(0, 9, 5, None), (1, 9, 5, None)],
            id="a nameless column",
        ),
        pytest.param(
            b'{"timestamp":0,"input_length":9,"output_length":5,"session_id":0}\n'
            b'{"timestamp":"1000","input_length":9.0,"output_length":5,"session_id":null}\n',
            [(0, 9, 5, "0"), (1, 9, 5, None)], id="session 0, and JSON in a file of any name",
        ),
        pytest.param(
            b"\xef\xbb\xbfGeneratedTokens,ContextTokens,TIMESTAMP\r\n"
            b'"5","9",2026-01-01T01:00:01+01:00\r\n6,9,2026-01-01 00:00:00Z\r\n',
            [(0, 9, 6, None), (1, 9, 5, None)], id="byte-order mark, CRLF, quotes, zones, another order",
        ),
        pytest.param(
            b'{"timestamp": 5, "input_length": 700, "output_length": 2}\n', [(0, 700, 2, None)],
            id="Mooncake's format without blocks",
        ),
    ],
)  # fmt: skip
def test_files_as_they_are_found(tmp_path: Path, data: bytes, expected: list[tuple[Any, ...]]) -> None:
    file = tmp_path / "trace.log"
    file.write_bytes(data)
    assert rows(str(file)) == expected


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        pytest.param(AZURE + b"0,9,5\nnan,9,5\n", "line 3 .*: `nan` is no time", id="a time that has no order"),
        pytest.param(AZURE + b"inf,9,5\n", "line 2 .*: `inf` is no time", id="a time that never comes"),
        pytest.param(AZURE + b"/chat,9,5\n", "line 2 .*: `/chat` is no time", id="no time"),
        pytest.param(AZURE + b"0,1e999,5\n", "line 2 .*: `1e999` is no number", id="endless tokens"),
        pytest.param(AZURE + b'0,"1,234",5\n', "line 2 .*: `1,234` is no number", id="thousands with a comma"),
        pytest.param(AZURE + b"0,9,1e12\n", "line 2 .*: `1e12` is no whole number up to 10,0", id="a time as tokens"),
        pytest.param(
            b'{"input_length":9,"output_length":5}\n{"timestamp":1,"input_length":9,"output_length":5}\n',
            "row 1 of .*: it has no time, and other rows have one", id="a first row without a time",
        ),
        pytest.param(
            b'{"timestamp":0,"input_length":9,"output_length":5,"session_id":"a"}\n'
            b'{"delay":1e300,"input_length":9,"output_length":5,"session_id":"a"}\n',
            "row 2 of .*: its `delay` of 1e.300 ms needs .* from 0 to 100,000,000 s", id="a pause without an end",
        ),
        pytest.param(b"TIMESTAMP;ContextTokens\n0;9\n", "line 2 has TIMESTAMP;ContextTokens", id="semicolons"),
        pytest.param(
            b'[{"timestamp":0,"input_length":9,"output_length":5}, [1]]', "row 2 .*: it is not a JSON object",
            id="a list",
        ),
        pytest.param(gzip.compress(AZURE + b"0,9,5\n")[:-9], "cannot read .* ended before", id="cut gzip"),
        pytest.param(b"\x1f\x8b\x08\x00t", "cannot read .* ended before", id="gzip's head alone"),
        pytest.param(
            b'{"timestamp": 61.1, "input_length": 40, "output_length": 2, "hash_ids": [1, 2, 3]}\n',
            "row 1 .* 3 hash_ids for 40 tokens, .* leave hash_ids out of the file", id="blocks of 16 tokens",
        ),
    ],
)  # fmt: skip
def test_a_line_that_is_wrong_is_named(tmp_path: Path, data: bytes, sentence: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=sentence):
        read_trace(str(file))


def test_a_trace_whose_times_are_from_two_clocks_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(f'{{"timestamp":{at},"input_length":9,"output_length":5}}\n' for at in (0, 1700000000000)))
    with pytest.raises(ValueError, match=r"the trace trace\.jsonl lasts 1,700,000,000 s"):
        trace_stage(str(file), read_trace(str(file)), (0.0, False))


def test_parquet_says_the_same(tmp_path: Path) -> None:
    """Also with dates, and with rows of failed requests."""
    mooncake, azure = tmp_path / "trace", tmp_path / "azure.parquet"
    pl.read_ndjson(DATA / "mooncake.jsonl").write_parquet(mooncake)
    assert read_trace(str(mooncake)) == read_trace(str(DATA / "mooncake.jsonl"))
    moments = [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in (0, 2, 3)]
    columns = {"TIMESTAMP": moments, "ContextTokens": [9, 8, 7], "GeneratedTokens": [5, 4, None]}
    pl.DataFrame(columns).write_parquet(azure)
    assert rows(str(azure)) == [(0, 9, 5, None), (2, 8, 4, None)]


SCRIPT = re.search(r"```python title=.log_to_trace.py.\n(.*?)```", (ROOT / "docs/scenarios.md").read_text(), re.DOTALL)


def test_the_script_of_the_documentation_makes_a_trace_of_a_log(tmp_path: Path) -> None:
    """Ten minutes, twice as fast, without prompts that are too long."""
    lines = ["ts,tokens_in,tokens_out", "599,9,5", "600,9,5", "610.5,20,7", "611,9000,7", "1200,9,5"]
    (tmp_path / "access.csv").write_text("\n".join(lines))
    assert SCRIPT is not None
    done = subprocess.run([sys.executable, "-c", SCRIPT[1]], cwd=tmp_path, capture_output=True, text=True, check=True)
    (tmp_path / "trace.jsonl").write_text(done.stdout)
    assert rows(str(tmp_path / "trace.jsonl")) == [(0, 9, 5, None), (5.25, 20, 7, None)]


def test_rows_that_are_left_out_are_counted() -> None:
    assert [read_trace(str(DATA / name)).left_out for name in ("burstgpt.csv", "mooncake.jsonl")] == [1, 0]


def test_a_run_is_a_trace_without_its_retries(tmp_path: Path) -> None:
    arrived = [record(n, n * n * SECOND // 800, prompt_tokens=30 + n, output_tokens=4 + n % 5) for n in range(30)]
    again = msgspec.structs.replace(arrived[0], request_id="again", t_sched=SECOND // 2, attempt=1)
    run = write_run(tmp_path / "run", meta_of(stages_of((2,), 3.0)), [*arrived, again], [])
    planned = RequestRecord(
        request_id="a", worker="1", scenario="rate", stage=0, outcome="rejected", t_sched=2 * SECOND,
        t_send=2 * SECOND, t_end=2 * SECOND, planned_prompt_tokens=9, planned_output_tokens=5,
    )  # fmt: skip
    (run / "requests-1.jsonl").write_text(planned.to_line())
    expected = [(one.t_sched / SECOND, one.prompt_tokens, one.output_tokens, None) for one in arrived]
    assert rows(str(run)) == [*expected, (2, 9, 5, None)]


def test_blocks_that_are_shared_are_the_same_text() -> None:
    """Of this prompt source a word is a token, and so is the start of a prompt; the chat template has ten more."""
    source = assumed("words", chat=True)

    def prompt(tokens: int, names: list[int]) -> list[str]:
        return str(source.of_blocks(tokens, list(map(str, names)), 100, Random(tokens))).split()

    one, other, third = prompt(250, [0, 1, 2]), prompt(230, [0, 1]), prompt(80, [4])
    shared = 200 - source.template
    assert one[: shared + 1] == other[: shared + 1]
    assert one[shared + 1 :] != other[shared + 1 : len(one)]
    assert [len(each) - 1 + source.template for each in (one, other, third)] == [250, 230, 80]


def test_blocks_that_are_shared_are_the_same_token_ids() -> None:
    source = replace(assumed("ids", chat=False), ids=tuple(range(1000)))
    one, other = (source.of_blocks(tokens, ["0", "1", str(tokens)], 100, Random(tokens)) for tokens in (250, 230))
    assert (len(one), len(other)) == (250, 230)
    assert one[:200] == other[:200]
    assert one[200:230] != other[200:]


SLOW = """
from functools import cache

from gevent import monkey

from loadtests.harness import scenario

read = scenario.read_trace


@cache
def slowly(*arguments):
    monkey.get_original("time", "sleep")(5)  # of the whole process
    return read(*arguments)


scenario.read_trace = slowly
from loadtests.replay import User
"""


@pytest.mark.alone
def test_a_trace_is_played_at_its_times_with_its_lengths(tmp_path: Path) -> None:
    """By processes that take long to read it, as a million lines do. Locust's master, which gives up a worker of which
    it hears nothing for three seconds, must not take them for dead."""
    recorded = read_trace(str(DATA / "mooncake.jsonl"))
    scenario = tmp_path / "slow.py"
    scenario.write_text(SLOW)
    with served() as server:
        options = ("--trace", str(DATA / "mooncake.jsonl"))
        locust = start(server, tmp_path, *options, processes=2, scenario=scenario).finish()
    (stage,) = locust.meta.stages
    assert (stage.label, stage.load.unit) == ("mooncake.jsonl", "req/s")
    assert locust.meta.workload["trace"].endswith("mooncake.jsonl")
    records = sorted(locust.records, key=lambda one: one.t_sched)
    assert {one.outcome for one in records} == {"ok"}
    assert [one.t_sched - stage.start for one in records] == [round(at * SECOND) for at in recorded.times]
    lags = sorted((one.t_send or 0) - one.t_sched for one in records)
    assert lags[len(lags) // 2] < 50 * MS
    assert lags[-1] < 1000 * MS
    lengths = Counter((one.prompt_tokens, one.output_tokens) for one in recorded.requests)
    assert Counter((one.planned_prompt_tokens, one.planned_output_tokens) for one in records) == lengths
    assert all(one.prompt_tokens == one.planned_prompt_tokens for one in records), "as the server counts them"
    assert all(one.output_tokens == one.planned_output_tokens for one in records)
    assert stage.steady_start == stage.start
    assert all(stage.start <= one.t_sched < (stage.steady_end or 0) for one in records), "all of it counts"


@pytest.mark.parametrize(("processes", "sessions"), [(1, 1), (2, 2)])
def test_a_request_of_a_session_follows_the_answer_before_it_and_a_pause(
    tmp_path: Path, processes: int, sessions: int
) -> None:
    """Two sessions arrive at a rate of two a second, again and again; a single session is played once, to its end."""
    path, blocks = tmp_path / "sessions.jsonl", list(range(3))
    rows = [
        {"session_id": f"s{session}", "input_length": 512 * turn, "output_length": 7, "hash_ids": blocks[:turn]}
        | ({} if turn == 1 else {"delay": 500 * turn})
        for session in range(sessions)
        for turn in (1, 2, 3)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--trace", str(path)]
    options += ["--rate", "2", "--stage-seconds", "4", "--arrivals", "constant"] if sessions > 1 else []
    with ScriptedServer(Script(ttft=0.2)) as server:
        locust = start(server, tmp_path, *options, processes=processes, scenario=REPLAY).finish()
        bodies = [body["messages"][0]["content"] for body in server.bodies]
    by_turn: dict[int | None, list[RequestRecord]] = defaultdict(list)
    for sent in sorted(locust.records, key=lambda sent: sent.t_sched):
        if sent.session == "s0":
            by_turn[sent.turn].append(sent)
    first, second, third = (by_turn[turn][0] for turn in range(3))
    assert second.t_sched == first.t_end + SECOND
    assert third.t_sched == second.t_end + round(1.5 * SECOND)
    assert {sent.planned_output_tokens for sent in locust.records} == {7}
    if sessions == 1:
        (stage,) = locust.meta.stages
        assert len(locust.records) == 3
        assert stage.steady_start == stage.start
        assert stage.steady_end == third.t_sched + 1
        assert len({text[:150] for text in bodies}) == 1, "blocks that they have in common"
