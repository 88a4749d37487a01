"""The answers of a stage: their lengths, how they were counted, and whether they came as a stream."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from analysis.data.load import RunData, mean_of
from analysis.data.telemetry import Increase
from analysis.data.windows import Flows, Window

STREAM_TOKENS = 8  # an answer of fewer tokens may come in one chunk
AT_ONCE = 1e-4  # seconds per token: faster than any model decodes, so the chunks had been held back
PROMPT_TOLERANCE = 1  # tokens by which a prompt may miss its planned length
SHORT = 0.9  # share of the planned tokens below which an answer counts as cut short


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """Means over the requests that ended well, and what makes the counts doubtful."""

    prompt_tokens: float | None
    cached_tokens: float | None  # of the prompt, from the server's prefix cache; `None` where it does not say
    output_tokens: float | None
    planned_tokens: float | None
    reasoning_tokens: float | None
    per_chunk: float | None  # tokens
    fewer_than_chunks: int  # answers with fewer tokens than chunks, which cannot be
    by_tokenizer: int  # answers that the tokenizer counted, because the server did not
    uncounted: int  # answers whose tokens are unknown
    uncounted_chunks: int  # chunks that arrived in the window and are missing from the throughput
    server_count: float | None  # tokens between two scrapes inside the window, by the server's counter …
    client_count: float | None  # … and by this client
    empty: int  # answers without content
    cut_short: int  # answers shorter than planned
    missed_prompts: int  # prompts whose tokens are not those planned …
    planned_prompts: int  # … of those with a plan and a count
    at_once: int  # streamed answers whose tokens came all together
    streams: int  # streamed answers long enough to tell


def answers_of(run: RunData, ok: pl.DataFrame, window: Window, flows: Flows) -> AnswerCounts:
    """`ok` are the requests scheduled in the window that ended well."""
    streamed = ok.filter((pl.col("chunks") > 0) & pl.col("output_tokens").is_not_null())
    seen = streamed["output_tokens"] - streamed["unseen_tokens"]
    chunks = int(streamed["chunks"].sum())
    long = ok.filter(pl.col("streamed") & (pl.col("output_tokens") - pl.col("unseen_tokens") >= STREAM_TOKENS))
    at_once = (pl.col("chunks") == 1) | (pl.col("tpot") < AT_ONCE)
    planned = ok.filter(pl.col("planned_output_tokens").is_not_null() & pl.col("output_tokens").is_not_null())
    counted = ok.filter(pl.col("planned_prompt_tokens").is_not_null() & pl.col("prompt_tokens").is_not_null())
    off = (counted["prompt_tokens"] - counted["planned_prompt_tokens"]).abs()
    generated = window.generated
    return AnswerCounts(
        prompt_tokens=mean_of(ok["prompt_tokens"]),
        cached_tokens=mean_of(ok["cached_tokens"]),
        output_tokens=mean_of(ok["output_tokens"]),
        planned_tokens=mean_of(planned["planned_output_tokens"]),
        reasoning_tokens=mean_of(ok["reasoning_tokens"]),
        per_chunk=int(seen.sum()) / chunks if chunks else None,
        fewer_than_chunks=int((seen < streamed["chunks"]).sum()),
        by_tokenizer=int((ok["token_source"] == "tokenizer").sum()),
        uncounted=ok["output_tokens"].null_count(),
        uncounted_chunks=flows.uncounted(window.start, window.end),
        server_count=None if generated is None else generated.amount,
        client_count=None if generated is None else _received(run, generated, flows),
        empty=len(ok.filter((pl.col("output_tokens") == 0) | (pl.col("streamed") & (pl.col("chunks") == 0)))),
        cut_short=len(planned.filter(pl.col("output_tokens") < SHORT * pl.col("planned_output_tokens"))),
        missed_prompts=int((off > PROMPT_TOLERANCE).sum()),
        planned_prompts=len(counted),
        at_once=len(long.filter(at_once)),
        streams=len(long),
    )


def _received(run: RunData, span: Increase, flows: Flows) -> float:
    """Tokens that this client received meanwhile; those that no chunk showed count as their request ends."""
    ended_here = pl.col("t_end").is_between(span.start, span.end, closed="left")
    unseen = pl.col("unseen_tokens").filter(ended_here).cast(pl.Int64).sum()
    return flows.tokens_of(span) + int(run.requests.select(unseen).item())
