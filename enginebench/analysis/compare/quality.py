"""What engines predict of a fixed text, beside the baseline (`enginebench/records/quality.py`), as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from enginebench.analysis.console import TextTable
from enginebench.records.formatting import MISSING
from enginebench.records.quality import MOST_DIFFERENCE, QualityAgainst

FLOAT32 = "float32"
QUALITY = "quality"  # the metric of its rows
TITLE = "Quality on a fixed text"
PERPLEXITY_DIGITS = 5  # of a ratio, 0.001 %: another order of summation makes smaller differences


def table_of_quality(engines: Sequence[QualityAgainst]) -> TextTable:
    """The baseline first."""
    rows = tuple(
        (
            each.engine,
            each.dtype or MISSING,
            MISSING if each.perplexity is None else f"{each.perplexity:.4f}",
            MISSING if each.perplexity_over is None else perplexity_text(each.perplexity_over),
            MISSING if each.difference is None else f"{each.difference:.1e}",
            each.why or "",
        )
        for each in engines
    )
    base = next((each for each in engines if each.perplexity is not None), None)
    caption = (
        "Every token of the text is given (teacher forcing). The difference is the largest of a log-probability, at "
        f"most twice that of a logit; the project brief allows {MOST_DIFFERENCE:g} in float32."
    )
    if base is not None and base.dtype != FLOAT32:
        caption += f" The baseline {base.engine} computed in {base.dtype}, not in float32."
    headers = ("engine", "format", "perplexity", "over the baseline", "largest difference", "because")
    table = TextTable(TITLE, headers, rows, (0, 1, 5), caption)
    return table.without([] if any(each.why for each in engines) else ["because"])


def perplexity_text(over: float) -> str:
    """A ratio less 1, in per cent; `-0.000 %` is none."""
    return f"{100 * (round(over, PERPLEXITY_DIGITS) + 0.0):+.3f} %"


def quality_rows(each: QualityAgainst) -> Iterator[dict[str, Any]]:
    """Rows of the tidy frame."""
    values = {"perplexity": each.perplexity, "perplexity over the baseline": each.perplexity_over}
    for statistic, value in (values | {"largest log-probability difference": each.difference}).items():
        yield {"label": each.engine, "metric": QUALITY, "statistic": statistic, "value": value, "why": each.why}
