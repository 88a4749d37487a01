from __future__ import annotations

import pytest

from loadtests.harness.client.grade import is_correct


@pytest.mark.parametrize(
    ("text", "expected", "correct"),
    [
        ("42", "42", True),
        ("The answer is 42.", "42", True),
        ("40 + 2 = **42**", "42", True),
        ("142", "42", False),
        ("42nd", "42", False),
        ("-42", "42", False),
        ("42.5", "42", False),
        ("1,042", "042", False),
        ("forty-two", "42", False),
        ("", "42", False),
        ("Amber  river\nstone", "amber river stone", True),
        ("amber stone river", "amber river stone", False),
        ("amber river stones", "amber river stone", False),
    ],
)
def test_an_answer_is_correct_if_it_contains_the_exact_answer(text: str, expected: str, correct: bool) -> None:
    assert is_correct(text, expected) is correct
