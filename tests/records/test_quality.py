"""Perplexity and differences of log-probabilities."""

from math import log

import pytest

from enginebench.records.quality import Quality, against

BASE = Quality(("a", "b"), (log(0.5), log(0.125)), ({"a": log(0.5), "x": log(0.25)}, {"b": log(0.125)}), "float32")


def test_perplexity_is_the_inverse_of_the_mean_probability() -> None:
    assert BASE.perplexity == pytest.approx(4)  # of 1/2 and 1/8: √16
    assert Quality(why="it has no model").perplexity is None


def test_the_difference_is_the_largest_of_the_text_and_of_the_likeliest() -> None:
    other = Quality(BASE.tokens, (log(0.5), log(0.125) + 1e-6), ({"x": log(0.25) - 3e-4, "y": -9.0}, {}), "bfloat16")
    found = against("mine", other, BASE)
    assert found.difference == pytest.approx(3e-4)
    assert found.perplexity_over == pytest.approx(-5e-7, rel=1e-3)
    assert (found.engine, found.dtype) == ("mine", "bfloat16")


@pytest.mark.parametrize(
    ("own", "base"),
    [
        pytest.param(None, BASE, id="a run that did not ask"),
        pytest.param(Quality(why="no log-probabilities"), BASE, id="an engine that cannot"),
        pytest.param(BASE, Quality(why="no"), id="no baseline"),
        pytest.param(Quality(("a",), (-1.0,), ({},)), BASE, id="another tokenizer"),
    ],
)
def test_what_is_not_known_is_missing(own: Quality | None, base: Quality) -> None:
    assert against("mine", own, base).difference is None
