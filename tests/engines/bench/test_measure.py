"""What one turn's answers say: on made-up arrivals, so that every figure is known."""

import pytest

from engines.bench.measure import Arrivals, TimedAnswer, decode_rate, values_of
from engines.bench.settings import Case

PREFILL = Case("prefill", 512, 1, 512, 1)
GENERATE = Case("generate", 5, 1, 32, 5)
BATCH = Case("batch", 2, 2, 32, 4)


def test_a_prefill_is_the_time_to_the_first_token() -> None:
    answer = TimedAnswer(sent=10.0, arrivals=[(10.25, 1)], first_token=0.24)
    assert dict(values_of(PREFILL, [answer])) == {("prefill", 512): 0.25, ("prefill inside", 512): 0.24}
    assert dict(values_of(PREFILL, [TimedAnswer(10.0, [(10.25, 1)])])) == {("prefill", 512): 0.25}


def test_a_decoded_token_costs_what_comes_after_the_first_chunk() -> None:
    """Two tokens in the first chunk at 1 s, three more until 2.5 s: half a second each."""
    answer = TimedAnswer(0.0, [(1.0, 2), (1.5, 1), (2.5, 2)])
    assert dict(values_of(GENERATE, [answer])) == {("generate", 5): 2.5, ("decode", None): 0.5}


def test_an_answer_of_one_chunk_has_no_time_per_token() -> None:
    assert dict(values_of(GENERATE, [TimedAnswer(0.0, [(1.0, 5)])])) == {("generate", 5): 1.0}


def test_a_batch_counts_all_tokens_from_the_first_request_to_the_last_token() -> None:
    first = TimedAnswer(0.0, [(1.0, 1), (2.0, 1), (3.0, 2)])
    second = TimedAnswer(0.5, [(2.0, 1), (3.0, 1), (4.0, 2)])
    assert dict(values_of(BATCH, [first, second])) == {
        ("batch", 2): 8 / 4,
        ("batch decode", 2): 3.0,  # from 2 s, when both decode, to 3 s, when the first is complete: 2 + 1 tokens
    }


@pytest.mark.parametrize(
    ("arrivals", "rate"),
    [
        pytest.param([[(1.0, 1), (1.5, 1), (2.0, 1)]], 2.0, id="the first token is not decoded"),
        pytest.param([[(1.0, 1), (3.0, 4)]], 2.0, id="a chunk counts its tokens"),
        pytest.param(
            [[(1.0, 1), (2.0, 1), (3.0, 1), (4.0, 1)], [(2.0, 1), (3.0, 1), (4.0, 1), (5.0, 1)]],
            2.0,
            id="only while all are being answered",
        ),
        pytest.param([[(1.0, 1), (2.0, 1)], [(3.0, 1), (4.0, 1)]], None, id="never while all are being answered"),
    ],
)
def test_decode_counts_what_comes_while_all_are_answered(arrivals: list[Arrivals], rate: float | None) -> None:
    assert decode_rate(arrivals) == (None if rate is None else pytest.approx(rate))
