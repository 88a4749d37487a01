"""Checks of one stage's requests and answers: failures, and the number and timing of tokens."""

from __future__ import annotations

from collections.abc import Iterator

from enginebench.records.formatting import format_count, format_seconds, format_share, significant
from enginebench.records.run import RunMeta
from enginebench.records.view import Evidence, StageView

FAILURE_SHARE = 0.01
MAX_ATTEMPTS = 1.5  # per question
AT_ONCE_SHARE = 0.1  # share of the streamed answers
COUNT_TOLERANCE = 0.05
PER_CHUNK = (0.9, 1.1)  # tokens
SHORT_SHARE = 0.1  # share of the answers
MISSED_SHARE = 0.05  # share of the prompts
CACHED_SHARE = 0.1  # share of the prompt tokens
RECONNECTED_SHARE = 0.01


def failures(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    """Report failures and retries: retries add load to a server that is already overloaded."""
    share, rate = view.value("failure_share"), view.value("failure_rate")
    if view.failed and share is not None:
        per_second = "" if rate is None else f", {significant(rate)} per second"
        details = "; ".join(f"{count} × {what}" for what, count in list(view.failures.items())[:2])
        yield Evidence(
            "warn" if share > FAILURE_SHARE else "note",
            f"{format_share(share)} of the attempts failed{per_second}{f' ({details})' if details else ''}; failures "
            "count as +Inf in every percentile",
        )
    if retried := view.count("retried"):
        questions = view.requests - retried
        yield Evidence(
            "note" if questions and view.requests <= MAX_ATTEMPTS * questions else "warn",
            f"{format_count(view.requests)} attempts were made for {format_count(questions)} logical requests, "
            f"{format_count(view.ok)} of which were answered; each attempt is counted as one request",
        )


def coarse_chunks(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    at_once, streams = view.count("at_once"), view.count("streams")
    if at_once > AT_ONCE_SHARE * streams:
        yield Evidence(
            "warn",
            f"all tokens of {at_once} of {streams} streamed answers arrived at once: their TTFT is the time to the "
            "whole answer, and their TPOT is meaningless",
            "look for a proxy that buffers responses, or a server that does not stream; compare by E2E",
        )
    per_chunk = view.value("tokens_per_chunk")
    if per_chunk is not None and not PER_CHUNK[0] <= per_chunk <= PER_CHUNK[1]:
        words = f"a chunk carried {significant(per_chunk)} tokens on average, so ICL is not the time per token"
        yield Evidence("note", words, "compare engines by TPOT, which divides by tokens")


def token_counts(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    if refused := view.count("usage_refused"):
        yield Evidence(
            "warn",
            f"the usage of {refused} of {view.ok} answers is 0 or less than the chunks that came, and does not count",
        )
    if _server_counts_otherwise(view):
        yield Evidence(
            "warn",
            f"the server's counter grew by {format_count(view.count('server_tokens'))} tokens while this client "
            f"received {format_count(view.count('client_tokens'))}",
        )
    by_tokenizer = view.count("counted_by_tokenizer")
    if 0 < by_tokenizer < view.ok:
        yield Evidence("warn", f"the server counted some answers, the tokenizer the other {by_tokenizer}")
    if uncounted := view.count("uncounted"):
        yield Evidence("warn", f"the tokens of {uncounted} answers are unknown")
    if chunks := view.count("uncounted_chunks"):
        yield Evidence("warn", f"{chunks} chunks of unknown token count are missing from the throughput")


def _server_counts_otherwise(view: StageView) -> bool:
    """Return whether the counts differ by more than tokens in flight at the edges, which may fall on either side."""
    server, client = view.counts.get("server_tokens"), view.counts.get("client_tokens")
    if server is None or client is None:
        return False
    edges = (view.value("concurrency") or 0.0) * (view.value("output_tokens") or 0.0)
    return abs(client - server) > COUNT_TOLERANCE * max(server, client) + edges


def short_answers(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    if empty := view.count("empty"):
        yield Evidence(
            "warn" if empty > FAILURE_SHARE * view.ok else "note",
            f"{empty} of {view.ok} answers were complete and had no content",
            "look at a prompt and its answer; a chat template or a stop string may end the answer immediately",
        )
    short, planned = view.count("cut_short"), view.value("planned_tokens")
    if short <= SHORT_SHARE * view.ok or planned is None:
        return
    if not run.workload.get("ignore_eos"):
        remedy = "fix the length of the answers with --ignore-eos yes, if engines are to do the same work"
    elif "ignore_eos" in ((run.engine or {}).get("features") or ()):
        remedy = (
            "look for what else ends an answer: the server's limit on tokens, the context length, or stop strings in "
            "--extra-body"
        )
    else:
        remedy = (
            "the server may not obey ignore_eos: ask for the length in its own way (--extra-body, such as min_tokens), "
            "or compare by TPOT and by cost per token, not by requests/s or E2E"
        )
    yield Evidence(
        "warn" if run.workload.get("ignore_eos") else "note",
        f"{short} of {view.ok} answers were shorter than planned: {significant(view.value('output_tokens') or 0)} "
        f"tokens on average instead of {significant(planned)}",
        remedy,
    )


def prompt_lengths(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    missed, planned = view.count("missed_prompts"), view.count("planned_prompts")
    if not missed:
        return
    measured = bool(run.workload.get("prompt_length_measured"))  # by the model's tokenizer, which should be exact
    yield Evidence(
        "warn" if measured or missed > MISSED_SHARE * planned else "note",
        f"{format_share(missed / planned)} of the prompts missed their planned length by more than a token; all "
        f"prompts had {significant(view.value('prompt_tokens') or 0)} tokens on average",
        "use longer prompts: unique words and a chat template take some tokens"
        if measured
        else "use a server with /tokenize, or name the model's tokenizer with --tokenizer",
    )


def prompts_cached(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    prompt, cached = view.value("prompt_tokens"), view.value("cached_tokens")
    if prompt and cached and cached >= CACHED_SHARE * prompt:
        share = format_share(cached / prompt)
        yield Evidence("note", f"{share} of the prompt tokens came from the server's prefix cache")


def reconnected(view: StageView, run: RunMeta) -> Iterator[Evidence]:
    count, resent = view.count("reconnected"), view.count("resent")
    if not count:
        return
    again = f"; {format_count(resent)} of them were sent again, because the server closed a kept connection"
    yield Evidence(
        "warn" if count > RECONNECTED_SHARE * view.requests else "note",
        f"{format_count(count)} of {format_count(view.requests)} requests had to open a connection, which took "
        f"{format_seconds(view.value('connect', 'p50'))} (median){again if resent else ''}; TTFT excludes it, TTFT "
        "(user) includes it",
    )
