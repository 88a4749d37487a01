"""Checks of one stage's requests and answers: did they fail, and are their tokens what they seem?"""

from __future__ import annotations

from enginebench.records.formatting import format_count, format_seconds, format_share, significant
from enginebench.records.view import Evidence, Severity, StageView

FAILURE_SHARE = 0.01
STORM = 1.5  # attempts for each question
CENSORED_SHARE = 0.01  # as many as p99 leaves out
AT_ONCE_SHARE = 0.1  # of the streamed answers
COUNT_TOLERANCE = 0.05
PER_CHUNK = (0.9, 1.1)  # tokens
SHORT_SHARE = 0.1  # of the answers
MISSED_SHARE = 0.05  # of the prompts
CACHED_SHARE = 0.1  # of the prompt tokens
RECONNECTED_SHARE = 0.01


def failures(view: StageView) -> Evidence | None:
    share, rate = view.value("failure_share"), view.value("failure_rate")
    if not view.failed or share is None:
        return None
    per_second = "" if rate is None else f", {significant(rate)} per second"
    details = "; ".join(f"{count} × {what}" for what, count in list(view.failures.items())[:2])
    return Evidence(
        "warn" if share > FAILURE_SHARE else "note",
        f"{format_share(share)} of the attempts failed{per_second}{f' ({details})' if details else ''}; failures count "
        "as +Inf in every percentile",
    )


def retries(view: StageView) -> Evidence | None:
    """Attempts and answers are counted apart: clients that ask again make more load just when there is too much."""
    retried = view.count("retried")
    if not retried:
        return None
    asked = view.requests - retried
    return Evidence(
        "note" if asked and view.requests <= STORM * asked else "warn",
        f"{format_count(view.requests)} attempts were made for {format_count(asked)} logical requests, "
        f"{format_count(view.ok)} of which were answered; each attempt is counted as one request",
    )


def censored(view: StageView) -> Evidence | None:
    if not view.cut_off:
        return None
    share = view.cut_off / view.requests
    return Evidence(
        "warn" if share > CENSORED_SHARE else "note",
        f"{format_share(share)} of the requests were cut off before their answer was complete; a percentile that "
        "depends on how long they would have taken has no value",
    )


def not_streamed(view: StageView) -> Evidence | None:
    at_once, streams = view.count("at_once"), view.count("streams")
    if at_once <= AT_ONCE_SHARE * streams:
        return None
    return Evidence(
        "warn",
        f"all tokens of {at_once} of {streams} streamed answers arrived at once: their TTFT is the time to the whole "
        "answer, and their TPOT is meaningless",
    )


def empty_answers(view: StageView) -> Evidence | None:
    empty = view.count("empty")
    if not empty:
        return None
    return Evidence(
        "warn" if empty > FAILURE_SHARE * view.ok else "note",
        f"{empty} of {view.ok} answers were complete and had no content",
    )


def token_count_disagrees(view: StageView) -> Evidence | None:
    by_tokenizer, uncounted = view.count("counted_by_tokenizer"), view.count("uncounted")
    reasons = []
    if refused := view.count("usage_refused"):
        reasons.append(
            f"the usage of {refused} of {view.ok} answers is 0 or less than the chunks that came, and does not count"
        )
    if _server_counts_otherwise(view):
        reasons.append(
            f"the server's counter grew by {format_count(view.count('server_tokens'))} tokens while this client "
            f"received {format_count(view.count('client_tokens'))}"
        )
    if 0 < by_tokenizer < view.ok:
        reasons.append(f"the server counted some answers, the tokenizer the other {by_tokenizer}")
    if uncounted:
        reasons.append(f"the tokens of {uncounted} answers are unknown")
    if chunks := view.count("uncounted_chunks"):
        reasons.append(f"{chunks} chunks of unknown token count are missing from the throughput")
    return Evidence("warn", "; ".join(reasons)) if reasons else None


def _server_counts_otherwise(view: StageView) -> bool:
    """A server may count a request's tokens when it ends: what is in flight at the edges can be on either side."""
    server, client = view.counts.get("server_tokens"), view.counts.get("client_tokens")
    if server is None or client is None:
        return False
    edges = (view.value("concurrency") or 0.0) * (view.value("output_tokens") or 0.0)
    return abs(client - server) > COUNT_TOLERANCE * max(server, client) + edges


def tokens_per_chunk(view: StageView) -> Evidence | None:
    per_chunk = view.value("tokens_per_chunk")
    if per_chunk is None or PER_CHUNK[0] <= per_chunk <= PER_CHUNK[1]:
        return None
    words = f"a chunk carried {significant(per_chunk)} tokens on average, so ICL is not the time per token"
    return Evidence("note", words)


def cut_short(view: StageView, severity: Severity = "note") -> Evidence | None:
    short, planned = view.count("cut_short"), view.value("planned_tokens")
    if short <= SHORT_SHARE * view.ok or planned is None:
        return None
    return Evidence(
        severity,
        f"{short} of {view.ok} answers were shorter than planned: {significant(view.value('output_tokens') or 0)} "
        f"tokens on average instead of {significant(planned)}",
    )


def prompts_missed(view: StageView, severity: Severity = "note") -> Evidence | None:
    missed, planned = view.count("missed_prompts"), view.count("planned_prompts")
    if not missed:
        return None
    return Evidence(
        "warn" if missed > MISSED_SHARE * planned else severity,
        f"{format_share(missed / planned)} of the prompts missed their planned length by more than a token; all "
        f"prompts had {significant(view.value('prompt_tokens') or 0)} tokens on average",
    )


def prompts_cached(view: StageView) -> Evidence | None:
    prompt, cached = view.value("prompt_tokens"), view.value("cached_tokens")
    if not prompt or not cached or cached < CACHED_SHARE * prompt:
        return None
    return Evidence("note", f"{format_share(cached / prompt)} of the prompt tokens came from the server's prefix cache")


def reconnected(view: StageView) -> Evidence | None:
    count, resent = view.count("reconnected"), view.count("resent")
    if not count:
        return None
    twice = f"; {format_count(resent)} of them were sent again, because the server closed a kept connection" * bool(
        resent
    )
    return Evidence(
        "warn" if count > RECONNECTED_SHARE * view.requests else "note",
        f"{format_count(count)} of {format_count(view.requests)} requests had to open a connection, which took "
        f"{format_seconds(view.value('connect', 'p50'))} (median){twice}; TTFT excludes it, TTFT (user) includes it",
    )
