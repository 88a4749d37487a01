"""Every metric's value on records whose truth was computed by hand, and the one place where each is defined."""

import ast
from typing import Any

import pytest

from enginebench.records.formula import (
    NOTHING,
    Above,
    Between,
    ByOutcome,
    Constant,
    Field,
    FirstOf,
    Formula,
    Is,
    Known,
    Longest,
    Not,
    Positive,
    When,
    reader,
)
from enginebench.records.metrics import BY_NAME, QUANTITIES, REQUEST_METRICS, columns
from enginebench.records.request import RequestRecord
from tests.support.records import MS, record
from tests.support.servers.served import ROOT

NOT_SENT: dict[str, Any] = {"t_send": None, "t_first": None, "t_first_out": None, "t_last": None, "read_first": None}
ONE_CHUNK: dict[str, Any] = {"chunks": 1, "first_chunk_tokens": 12, "icl": (), "t_last": 301 * MS}
NOT_STREAMED: dict[str, Any] = {"streamed": False, "t_first": None, "t_first_out": None, "icl": (), "chunks": 0}
IN_ONE_PIECE = NOT_STREAMED | {"read_first": None}

# By hand, from RECORD: scheduled at 0, sent at 1 ms, first token at 301 (read at 302), last at 501; 12 tokens in three
# chunks, the first of which had two; 50 ms and 150 ms between them.
WHOLE = {
    "ttft": 0.300,
    "ttft_user": 0.301,
    "ttfo": 0.300,
    "tpot": 0.020,  # 200 ms ÷ (12 − 2)
    "ntpot": 0.500 / 12,
    "ntpot_user": 0.501 / 12,
    "e2e": 0.500,
    "e2e_user": 0.501,
    "send_lag": 0.001,
    "connect": None,  # a connection was open
    "client_lag": 0.001,
    "stall": 0.150,  # the longer one of the two gaps
    "delivery": 0.090,  # 300 − 10 queued − 200 of prefill
}


def test_every_metric_of_a_whole_answer_has_the_value_computed_by_hand() -> None:
    values = {metric.name: metric.read(record(icl=(50 * MS, 150 * MS))) for metric in REQUEST_METRICS}
    assert values == pytest.approx(WHOLE, abs=1e-12)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"first_chunk_tokens": None}, {"tpot": 0.025}),  # unknown first chunk: the mean chunk, 12 ÷ 3
        ({"unseen_tokens": 5}, {"tpot": 0.040, "ntpot": 0.500 / 12}),  # hidden reasoning: 7 seen, 2 of them first
        ({"unseen_tokens": 6, "first_chunk_tokens": None}, {"tpot": 0.050}),  # both: 6 seen, 2 in the mean chunk
        (
            ONE_CHUNK | {"first_chunk_tokens": 12},
            {"tpot": None, "ttft": 0.3, "e2e": 0.3, "ntpot": 0.025, "stall": None},
        ),
        (ONE_CHUNK | {"first_chunk_tokens": None}, {"tpot": None}),
        ({"t_last": 301 * MS}, {"tpot": None}),  # all chunks in one read: no time passed between them
        ({"output_tokens": 2}, {"tpot": None, "ntpot": 0.250}),  # no token after the first chunk
        ({"output_tokens": None}, {"tpot": None, "ntpot": None, "e2e": 0.5}),
        ({"output_tokens": 0}, {"tpot": None, "ntpot": None}),
        ({"t_first_out": 401 * MS}, {"ttfo": 0.400, "ttft": 0.300}),  # reasoning came first
        ({"t_first_out": None}, {"ttfo": None, "ttft": 0.300}),  # nothing but reasoning
        (NOT_SENT | {"icl": ()}, dict.fromkeys(WHOLE)),
        # Opening a connection is neither send lag nor the server's time.
        ({"t_connect": 500_000, "t_send": 3 * MS}, {"send_lag": 0.0005, "connect": 0.0025, "ttft": 0.298}),
        (NOT_SENT | {"t_connect": 2 * MS}, {"send_lag": 0.002, "connect": None}),  # it could not be opened
        ({"stamps": "user"}, {"client_lag": None}),
        ({"server_prefill": None}, {"delivery": None}),
        (IN_ONE_PIECE, {"ttft": None, "tpot": None, "e2e": 0.500, "ntpot": 0.500 / 12}),
    ],
)
def test_what_was_not_observed_is_none(changes: dict[str, Any], expected: dict[str, float | None]) -> None:
    found = {name: BY_NAME[name].read(record(**changes)) for name in expected}
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("formula", "value", "text"),
    [
        (Field("status"), 200, "status"),
        (Between(Field("t_send"), Field("t_first")), 0.3, "t_first − t_send"),
        (Field("server_prefill") - Field("server_queue"), 0.19, "server_prefill − server_queue"),
        (Field("output_tokens") / Positive(Field("chunks")), 4.0, "output_tokens ÷ chunks"),
        (Field("a") - (Field("b") - Field("c")), None, "a − (b − c)"),
        (Positive(Field("unseen_tokens")), None, "unseen_tokens"),
        (FirstOf(Field("t_connect"), Field("t_send")), 1_000_000, "t_connect, else t_send"),
        (When(Is("stamps", "user"), Field("status")), None, "status, where stamps = user"),
        (When(Is("stamps", "kernel"), Field("status")), 200, "status, where stamps = kernel"),
        (Constant(2.0), 2.0, "2"),
        (NOTHING, None, "0"),
        (Longest("icl"), 0.1, "max(icl)"),
        (Known(Field("t_first")), 1.0, "t_first known"),
        (Not(Known(Field("t_first"))), 0.0, "not (t_first known)"),
        (Not(Known(Field("t_connect"))), 1.0, "not (t_connect known)"),
        (Above(Field("status"), 199), 1.0, "status > 199"),
        (Above(Field("status"), 200), 0.0, "status > 200"),
        (Above(Field("a"), 1), 0.0, "a > 1"),
        (
            ByOutcome(ok=Field("status"), cut_off=NOTHING, failed=Constant(1.0)),
            200,
            "ok: status; cut off: 0; failed: 1",
        ),
    ],
)
def test_formulas(formula: Formula, value: float | None, text: str) -> None:
    class Lenient:
        """A record, and `None` for fields that it has not."""

        def __getattr__(self, name: str) -> Any:
            return getattr(record(), name, None)

    assert reader(formula)(Lenient()) == pytest.approx(value)
    assert str(formula) == text


def test_names_are_unique_and_since_due_names_the_same_metric_on_the_other_clock() -> None:
    names = [*(metric.name for metric in REQUEST_METRICS), *(quantity.name for quantity in QUANTITIES)]
    assert len(set(names)) == len(names)
    twins = {metric.name: BY_NAME[metric.since_due].title for metric in REQUEST_METRICS if metric.since_due}
    assert twins == {"ttft": "TTFT (user)", "ntpot": "NTPOT (user)", "e2e": "E2E (user)"}
    known = set(RequestRecord.__struct_fields__)
    assert {metric.needs for metric in REQUEST_METRICS} - {None} <= known


def test_columns_since_due_have_the_title_of_their_twins() -> None:
    since_due = columns("table", since_due=True)
    assert [column.key for column in since_due][:2] == ["ttft_user p50", "ttft_user p95"]
    assert (since_due[0].title, since_due[0].full_title) == ("TTFT p50", "TTFT (user) p50")


STAMPS = {"t_sched", "t_connect", "t_send", "t_first", "t_first_out", "t_last"}


@pytest.mark.parametrize(
    "room",
    [*(f"loadtests/harness/{name}" for name in ("users", "run", "recording", "command")), "enginebench/analysis"],
)
def test_no_formula_is_written_down_a_second_time(room: str) -> None:
    """No other file subtracts one of a request's stamps from another."""
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        assert differences(path.read_text()) == [], path


def differences(code: str) -> list[int]:
    """The lines on which a stamp is subtracted from a stamp."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and stamp(node.left) and stamp(node.right)
    ]


def stamp(node: ast.expr) -> bool:
    """`x.t_first`, or `x["t_first"]`, or `col("t_first")`."""
    names = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    names |= {str(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant)}
    return bool(names & STAMPS)
