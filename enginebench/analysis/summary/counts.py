"""What is counted of a stage's requests besides their metrics: by each flag, what is unusual about them.

Rules of findings read these counts (`StageView.counts`).
"""

from __future__ import annotations

from collections.abc import Mapping

from enginebench.records.formula import Above, Below, Both, Either, Field, Formula, Is, Known, Magnitude, Not, Positive
from enginebench.records.metrics import BY_NAME, OUTPUT, PLANNED, PROMPT, SEEN_TOKENS

STREAM_TOKENS = 8  # an answer of fewer tokens may come in one chunk
AT_ONCE = 1e-4  # seconds per token: faster than any model decodes, so the chunks had been held back
PROMPT_TOLERANCE = 1  # tokens by which a prompt may miss its planned length
SHORT = 0.9  # share of the planned tokens below which an answer counts as cut short

PLANNED_PROMPT = Field("planned_prompt_tokens")
STREAM = Both(Is("streamed", True), Above(SEEN_TOKENS, STREAM_TOKENS - 1))

OF_REQUESTS: Mapping[str, Formula] = {
    "retried": Above(Field("attempt"), 0),
    "reconnected": Known(Field("t_connect")),
    "resent": Is("resent", True),
}
OF_ANSWERS: Mapping[str, Formula] = {
    "merged_first": Is("merged_first", True),
    "usage_refused": Known(Field("reported_tokens")),  # fewer tokens than were received, which cannot be
    "counted_by_tokenizer": Is("token_source", "tokenizer"),  # because the server did not count
    "uncounted": Not(Known(OUTPUT)),
    "empty": Either(Is("output_tokens", 0), Both(Is("streamed", True), Is("chunks", 0))),
    "cut_short": Below(OUTPUT / Positive(PLANNED), SHORT),
    "missed_prompts": Above(Magnitude(PROMPT - PLANNED_PROMPT), PROMPT_TOLERANCE),  # not as long as planned …
    "planned_prompts": Known(PROMPT - PLANNED_PROMPT),  # … of those with a plan and a count
    "at_once": Both(STREAM, Either(Is("chunks", 1), Below(BY_NAME["tpot"].formula, AT_ONCE))),  # all tokens together …
    "streams": STREAM,  # … of the streamed answers long enough to tell
}
