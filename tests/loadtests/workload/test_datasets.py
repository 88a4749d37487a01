"""People's own prompts and lengths, from JSONL and Parquet."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from random import Random

import polars as pl
import pytest

from loadtests.harness.client.call import Call
from loadtests.harness.scenario import Scenario, read
from loadtests.harness.schedule.trace import Trace, TraceRequest
from loadtests.harness.workload.datasets import dataset as read_dataset
from tests.loadtests.workload.test_workload import PLAIN, asks, bodies
from tests.support.analysis.synthetic import meta_of, stages_of, write_run
from tests.support.analysis.synthetic import record as synthetic
from tests.support.loadtests.locust_process import ROOT
from tests.support.records import record

ENDED = record()
TRACES = ROOT / "tests/data/traces"


def dataset(path: str) -> tuple[TraceRequest, ...]:
    return tuple(read_dataset(path).requests)


def said(text: str, limit: int | None = None) -> TraceRequest:
    return TraceRequest(None, limit, messages=(("user", text),))


def jsonl(folder: Path, rows: list[dict[str, object]]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + "\n")
    return str(path)


def test_missing_numbers_make_a_column_of_floats(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pl.DataFrame({"prompt": ["Who?", "Where?"], "output_tokens": [7.0, None]}).write_parquet(path)
    assert dataset(str(path)) == (said("Who?", limit=7), said("Where?"))


def questions(tmp_path: Path, count: int) -> Trace:
    return read_dataset(jsonl(tmp_path, [{"prompt": f"Question {n}?"} for n in range(count)]))


def question(ask: Call) -> str:
    text: str = json.loads(ask.body)["messages"][0]["content"]
    return text


@pytest.mark.parametrize(("processes", "rows"), [(1, 1000), (2, 1000), (4, 1000), (4, 3)])
def test_a_process_sends_its_rows_once_before_any_twice(tmp_path: Path, processes: int, rows: int) -> None:
    """100 users, some of whom send many more requests than others."""
    asked, rng = questions(tmp_path, rows), Random(3)
    shares = [PLAIN.rows_of(asked, process, processes) for process in range(processes)]
    users = [PLAIN.requests_of(user, shares[user % processes]) for user in range(100)]
    sent: list[list[str]] = [[] for _ in range(processes)]
    for turn in range(2000):
        of_process = [user for user in range(100) if user % processes == turn % processes]
        user = users[min(rng.choice(of_process), rng.choice(of_process))]
        sent[turn % processes].append(question(user.next({})))
        user.answered(ENDED, "")
    for process in range(processes):
        share = len(range(process, rows, processes)) or rows
        counts = Counter(sent[process])
        assert len(counts) == share
        assert max(counts.values()) - min(counts.values()) <= 1
    if rows == 1000:
        assert set(Counter(row for rows_sent in sent for row in rows_sent).values()) == {2}


def test_the_order_is_the_seeds_and_the_same_for_every_engine(tmp_path: Path) -> None:
    asked = questions(tmp_path, 50)
    order = [question(ask) for ask in asks(PLAIN, count=50, dataset=asked)]
    assert order == [question(ask) for ask in asks(PLAIN, user=7, count=50, dataset=asked)]
    assert order != sorted(order)
    other = dataclasses.replace(PLAIN, prompt_set="another")
    assert order != [question(ask) for ask in asks(other, count=50, dataset=asked)]
    assert {ask.record.planned_output_tokens for ask in asks(PLAIN, dataset=asked)} == {16}


def test_a_row_that_was_not_sent_is_sent_later(tmp_path: Path) -> None:
    """A user who leaves, a stage that asks for something else, arrivals that were built for a stage that has ended."""
    rows = PLAIN.rows_of(questions(tmp_path, 6))
    assert rows is not None
    leaves, stays = PLAIN.requests_of(0, rows), PLAIN.requests_of(1, rows)
    unsent, sent = question(leaves.next({})), question(stays.next({}))
    assert question(stays.next({"output_tokens": "9"})) == sent, "it was asked anew before it was sent"
    leaves.close()
    stays.answered(ENDED, "")
    assert question(stays.next({})) == unsent
    arrivals = [question(PLAIN.requests_of(number, rows).next({})) for number in range(3)]
    rows.untake(2)
    following = [question(PLAIN.requests_of(number, rows).next({})) for number in range(3)]
    assert following[:2] == arrivals[1:]
    assert {unsent, sent, arrivals[0], *following} == {f"Question {n}?" for n in range(6)}


def test_a_rows_own_limit_counts_before_the_scenarios(tmp_path: Path) -> None:
    asked = read_dataset(jsonl(tmp_path, [{"prompt": "Who?", "output_tokens": 7}]))
    assert {body["max_tokens"] for body in bodies(PLAIN, dataset=asked)} == {7}


def test_rows_of_lengths_are_words_of_those_lengths(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"prompt_tokens": 100 * n, "output_tokens": n} for n in range(1, 6)]
    asked = asks(PLAIN, count=60, dataset=read_dataset(jsonl(tmp_path, [*rows, {"prompt_tokens": 90}])))
    pairs = Counter((one.record.planned_prompt_tokens, one.record.planned_output_tokens) for one in asked)
    assert pairs == dict.fromkeys([*((100 * n, n) for n in range(1, 6)), (90, 16)], 10)
    assert len({question(one) for one in asked}) == 60, "other words each time"
    assert {len(question(one).split()) for one in asked if one.record.planned_prompt_tokens == 300} == {1 + 280 + 8}


def test_what_a_trace_has_is_a_dataset_too(tmp_path: Path) -> None:
    """ShareGPT's conversations, the folder of a run: without their times."""
    texts, *_ = dataset(str(TRACES / "sharegpt.json"))
    assert texts.messages == (("user", "What is a queue?"),)
    run = write_run(tmp_path / "run", meta_of(stages_of((2,), 3.0)), [synthetic(0, 0, prompt_tokens=30)], [])
    assert [row.prompt_tokens for row in dataset(str(run))] == [30]


def test_a_question_may_have_an_exact_answer(tmp_path: Path) -> None:
    trace = read_dataset(jsonl(tmp_path, [{"prompt": "6 x 7?", "expected_answer": 42}, {"prompt": "Who?"}]))
    assert [request.expected for request in trace.requests] == ["42", None]
    assert trace.unsent_columns == ()


def test_the_graded_questions_are_the_same_in_every_run() -> None:
    questions = dataset("graded")
    texts = [f"{request.messages[0][1]}: {request.expected}" for request in questions]
    assert texts[0] == "What is 80 + 17? Answer with the number only.: 97"
    assert (len(texts), len(set(texts))) == (200, 200)
    assert blake2b("\n".join(texts).encode(), digest_size=8).hexdigest() == "405d9553fa2b8891"
    assert dataset("graded") == questions
    assert read(Scenario(), {"dataset": "graded"}).dataset == "graded"
