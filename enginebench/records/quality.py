"""How well an engine predicts a fixed text: its perplexity, and the distance of its log-probabilities from another's.

The engine gets every token of the text instead of the one it would have sampled (teacher forcing), so all engines have
the same context at every position.

Log-probabilities are logits after a softmax: if logits differ by at most d, they differ by at most 2 d.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

TOP = 5  # likeliest tokens at each position, which are also compared
NO_WEIGHTS = "random weights predict nothing"
MAX_EXPONENT = 700.0  # limit of a float's exponential
Logarithm = Annotated[float, msgspec.Meta(ge=-1e6, le=1.0)]  # of a probability, which rounding may raise above 1
TEXT = (
    "The lighthouse stood at the end of a long pier, and every evening its keeper climbed ninety-two steps to "
    "light the lamp. In 1911 a storm broke three windows and carried away the boat, but the light did not go out."
    " Sailors wrote to thank him; he kept their letters in a tin box, together with a list of ships: 14 steamers,"
    " 203 schooners and one canoe. When electricity came to the island, the company offered him a pension and a "
    "small house with a garden. He grew potatoes and beans, and complained that the nights were too quiet. def "
    "add(a, b): return a + b. Water boils at 100 degrees Celsius at sea level, and at a lower temperature on a "
    "mountain, because the pressure of the air decreases with height. To be exact is not the same as to be right."
)


class Quality(msgspec.Struct, frozen=True):
    """The natural log-probability of each token from the second on, and the `TOP` likeliest tokens at its position. If
    there are no log-probabilities, `why` gives the reason."""

    tokens: tuple[str, ...] = ()
    logprobs: tuple[Logarithm, ...] = ()
    top: tuple[dict[str, Logarithm], ...] = ()
    dtype: str | None = None  # the engine's number format
    why: str | None = None

    def __post_init__(self) -> None:
        """Raise `ValueError` if lengths differ, also in decoded data."""
        if not len(self.tokens) == len(self.logprobs) == len(self.top):
            raise ValueError("each token has one log-probability, and those of the likeliest tokens at its position")

    @property
    def perplexity(self) -> float | None:
        """Return exp of the mean negative log-probability (Jelinek et al. 1977)."""
        if not self.logprobs:
            return None
        return math.exp(min(-math.fsum(self.logprobs) / len(self.logprobs), MAX_EXPONENT))


class QualityAgainst(msgspec.Struct, frozen=True):
    """An engine against the baseline. `perplexity_over` is the ratio minus 1, `difference` the largest absolute
    difference in log-probability over the text's tokens and the likeliest tokens. Unknown values are `None`."""

    engine: str
    dtype: str | None
    perplexity: float | None
    perplexity_over: float | None = None
    difference: float | None = None


def against(engine: str, own: Quality | None, baseline: Quality | None) -> QualityAgainst:
    if own is None or own.perplexity is None:
        return QualityAgainst(engine, own.dtype if own else None, None)
    alone = QualityAgainst(engine, own.dtype, own.perplexity)
    if baseline is None or baseline.perplexity is None or own.tokens != baseline.tokens:  # different tokenizers
        return alone
    over = own.perplexity / baseline.perplexity - 1
    return msgspec.structs.replace(alone, perplexity_over=over, difference=largest_difference(own, baseline))


def largest_difference(quality: Quality, other: Quality) -> float:
    """Compare the tokens of the text, and the likeliest tokens that both have."""
    pairs = list(zip(quality.logprobs, other.logprobs, strict=True))
    for ours, theirs in zip(quality.top, other.top, strict=True):
        pairs += [(ours[token], theirs[token]) for token in ours.keys() & theirs.keys()]
    return max((abs(a - b) for a, b in pairs), default=0.0)
