"""The token from which answers to the same question differ, and how likely the tokens were until then.

Greedy decoding takes the likeliest token. Two correct engines, or one engine at two loads, first differ at a position
where two tokens are almost equally likely. Log-probabilities that differ long before that indicate another cause.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from enginebench.records.files import read_requests
from enginebench.records.request import RequestRecord

ASKED = ("prompt_id", "planned_output_tokens")  # two requests with equal values ask the same question


@dataclass(frozen=True, slots=True)
class AnswerDifference:
    """The positions from which pairs of answers differ, if their texts were kept.

    Positions count from 1, in tokens if all differing answers have tokens, else in characters. `earliest` is the
    minimum over differing pairs, `middle` the median; `None` if no pair differs. `logprob` is the largest difference
    of a token's log-probability before the first difference; `None` without log-probabilities.
    """

    unit: Literal["token", "character"]
    earliest: int | None
    middle: float | None
    logprob: float | None


def kept_answers(folder: Path, workload: Mapping[str, Any]) -> list[RequestRecord]:
    """Return a run's answered requests with their texts (`--quality`). They are read from the lines, because the
    table has no texts."""
    if not workload.get("quality"):
        return []
    return [request for request in read_requests(folder) if request.outcome == "ok" and request.text is not None]


def difference_of(answers: Iterable[RequestRecord], reference: Iterable[RequestRecord]) -> AnswerDifference | None:
    """Return how the answers to the same questions differ; `None` if no question is in both."""
    by_question = {
        _question(answer): answer
        for answer in sorted(reference, key=lambda answer: answer.answer_digest or "", reverse=True)
    }
    different = {
        (_question(answer), answer.answer_digest): answer for answer in answers if _question(answer) in by_question
    }
    if not different:
        return None
    characters: list[int] = []
    tokens: list[int] = []
    gaps: list[float] = []
    for (question, _), answer in different.items():
        expected = by_question[question]
        text, expected_text = answer.text or "", expected.text or ""
        same = _common_length(text, expected_text)
        whole = min(bisect_right(text.token_ends, same) for text in (answer, expected))  # equal tokens
        if text != expected_text:
            characters.append(same + 1)
            tokens += [whole + 1] * bool(answer.token_ends and expected.token_ends)
        pairs = zip(answer.logprobs[:whole], expected.logprobs[:whole], strict=True)
        gaps += [abs(ours - theirs) for ours, theirs in pairs]
    in_tokens = len(tokens) == len(characters)
    places = tokens if in_tokens else characters
    middle = median(places) if places else None
    return AnswerDifference(
        "token" if in_tokens else "character", min(places, default=None), middle, max(gaps, default=None)
    )


def _question(request: RequestRecord) -> tuple[object, ...]:
    return tuple(getattr(request, name) for name in ASKED)


def _common_length(text: str, expected: str) -> int:
    """Return the length of the common beginning."""
    pairs = enumerate(zip(text, expected, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(text), len(expected)))
