from __future__ import annotations

import pytest

from loadtests.harness.client.grade import is_correct
from loadtests.harness.client.model_answer import without_thoughts


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


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>17 + 25 = 42.</think>\n\n42", "42"),
        ("17 + 25 = 42.\n</think>\nIt is 42.", "It is 42."),  # the template begins the thought
        ("<thinking>17 + 25 = 42, or", ""),
        ("[THINK]42?[/THINK]41", "41"),
        ("The tag <think> is no thought here.", "The tag <think> is no thought here."),
    ],
)
def test_reasoning_inside_the_text_is_no_part_of_the_answer(text: str, answer: str) -> None:
    assert without_thoughts(text) == answer
