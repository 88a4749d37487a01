"""The numbers on Locust's own page, for watching only; METRICS.md's formulas, in nanoseconds.

What a report says is computed by the analysis from the records, not from these.
"""

from __future__ import annotations

from loadtests.harness.client.observation import Observation


def e2e(seen: Observation) -> int:
    """Of a request that failed, the time until it had."""
    return (seen.t_last or seen.t_end) - (seen.t_send or seen.t_sched)


def ttft(seen: Observation) -> int | None:
    return None if seen.t_first is None or seen.t_send is None else seen.t_first - seen.t_send


def tpot(seen: Observation) -> float | None:
    if seen.t_first is None or seen.t_last is None or seen.output_tokens is None or seen.first_chunk_tokens is None:
        return None
    later = seen.output_tokens - seen.first_chunk_tokens
    return (seen.t_last - seen.t_first) / later if later > 0 else None
