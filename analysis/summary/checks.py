"""All problems of a run: of its load generator (load_generator.py), its load (steady.py) and its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from analysis.data.load import RunData
from analysis.data.windows import keys_of
from analysis.stats.intervals import needed
from analysis.summary import load_generator, recovery, steady
from analysis.summary.finding import FEW_SAMPLES, Finding, in_order
from analysis.summary.stage import StageSummary
from records.formatting import counted, format_count, format_seconds, format_share, in_words, join_labels, significant
from records.run import Imported

CENSORED_SHARE = 0.01  # as many as p99 leaves out
FAILURE_SHARE = 0.01
STORM = 1.5  # attempts for each question
COUNT_TOLERANCE = 0.05
AT_ONCE_SHARE = 0.1  # of the streamed answers
SHORT_SHARE = 0.1  # of the answers
MISSED_SHARE = 0.05  # of the prompts
CACHED_SHARE = 0.1  # of the prompt tokens


def findings_of(run: RunData, stages: tuple[StageSummary, ...]) -> tuple[Finding, ...]:
    """All findings of one run, the gravest first."""
    found = [*_of_the_run(run, stages), *load_generator.of_the_run(run, stages), *recovery.of_the_run(run)]
    for stage in stages:
        for check in (*load_generator.CHECKS, *steady.CHECKS, *CHECKS):
            finding = check(stage)
            if finding is not None:
                found.append(replace(finding, stage=stage.key))
    fixed_lengths = bool(run.meta.workload.get("ignore_eos"))
    exact = bool(run.meta.workload.get("prompt_length_measured"))
    found += [missed for stage in stages if (missed := _prompts_missed(stage, exact)) is not None]
    found += [short for stage in stages if (short := _cut_short(stage, fixed_lengths)) is not None]
    return in_order([replace(finding, label=run.meta.label) for finding in found])


def _imported_from(imported: Imported) -> Finding:
    """What the file of another tool does not have; these numbers are n/a and never guessed."""
    lacks = in_words(imported.lacks)
    evidence = f"the run was made by {imported.tool} and imported from {imported.file}; it has no {lacks}"
    return Finding("imported", "note", evidence, "measure with enginebench for what is missing")


def _of_the_run(run: RunData, stages: tuple[StageSummary, ...]) -> Iterator[Finding]:
    if run.meta.imported is not None:
        yield _imported_from(run.meta.imported)
    measured = {stage.index for stage in stages}
    unreached = [key.label for key in keys_of(run).values() if key.index not in measured]
    cut = [stage.label for stage in stages if not stage.complete]
    if unreached or cut:
        said = [f"nothing was measured at {join_labels(unreached)}"] if unreached else []
        said += [f"the stage at {join_labels(cut)} was cut short"] if cut else []
        yield Finding("stopped_early", "warn", f"the run was stopped: {' and '.join(said)}", "run it to its end")
    if run.malformed_lines:
        yield Finding(
            "malformed_lines",
            "warn",
            f"{format_count(run.malformed_lines)} lines of requests*.jsonl are not records and were left out",
            "check for a full disk, or for two runs that wrote into one folder",
        )
    if run.telemetry.lost:
        yield Finding(
            "records_lost",
            "invalid",
            f"{format_count(run.telemetry.lost)} requests could not be recorded: counts and tokens/s are too low",
            "check for a full disk (locust.log), and run again",
        )
    if stages and not any(stage.ok for stage in stages):
        if any(stage.failed for stage in stages):
            yield Finding("failures", "invalid", "no request succeeded", "see how they failed, and the server's log")
        else:
            remedy = "make the stages longer than the longest response time, or ask for shorter answers"
            yield Finding("censored", "invalid", "no request ended before the run did", remedy)


def _failures(stage: StageSummary) -> Finding | None:
    share = stage.failure_share.value
    if not stage.failed or share is None:
        return None
    details = "; ".join(f"{count} × {what}" for what, count in list(stage.failure_details.items())[:2])
    return Finding(
        "failures",
        "warn" if share > FAILURE_SHARE else "note",
        f"{format_share(share)} of the attempts failed, {significant(stage.failure_rate)} per second ({details}); they "
        "count as infinitely long in every percentile",
        "read the server's log; under overload, look for the largest load without failures",
    )


def _retries(stage: StageSummary) -> Finding | None:
    """Attempts and answers are counted apart: clients that ask again make more load just when there is too much."""
    if not stage.again:
        return None
    asked = stage.requests - stage.again
    return Finding(
        "retries",
        "note" if asked and stage.requests <= STORM * asked else "warn",
        f"{format_count(stage.requests)} attempts were made for {format_count(asked)} logical requests, "
        f"{format_count(stage.ok)} of which were answered; each attempt is counted as one request",
        "look at the failures; retries add to the load",
    )


def _censored(stage: StageSummary) -> Finding | None:
    if not stage.cut_off:
        return None
    share = stage.cut_off / stage.requests
    return Finding(
        "censored",
        "warn" if share > CENSORED_SHARE else "note",
        f"{format_share(share)} of the requests were cut off before their answer was complete; a percentile that "
        "depends on how long they would have taken is n/a",
        "let the run end by itself, or allow its last requests more time (--stop-timeout)",
    )


def _too_few_samples(stage: StageSummary) -> Finding | None:
    if stage.ok >= FEW_SAMPLES:
        return None
    return Finding(
        "too_few_samples",
        "warn" if stage.ok < FEW_SAMPLES / 5 else "note",
        f"{counted(stage.ok, 'request')} succeeded in the steady window: too few for tail percentiles",
        f"make the stages longer (--stage-seconds); the interval of p99 needs at least {needed(0.99)} requests",
    )


def _tokens_per_chunk(stage: StageSummary) -> Finding | None:
    per_chunk = stage.answers.per_chunk
    if per_chunk is None or 0.9 <= per_chunk <= 1.1:
        return None
    return Finding(
        "tokens_per_chunk",
        "note",
        f"a chunk carried {significant(per_chunk)} tokens on average, so ICL is not the time per token",
        "compare engines by TPOT, which divides by tokens",
    )


def _token_count_disagrees(stage: StageSummary) -> Finding | None:
    answers, said = stage.answers, []
    if answers.fewer_than_chunks:
        said.append(f"{answers.fewer_than_chunks} answers report fewer tokens than they had chunks")
    if _server_counts_otherwise(stage):
        said.append(
            f"the server's counter grew by {format_count(answers.server_count)} tokens while this client received "
            f"{format_count(answers.client_count)}"
        )
    if 0 < answers.by_tokenizer < stage.ok:
        said.append(f"the server counted some answers, the tokenizer the other {answers.by_tokenizer}")
    if answers.uncounted:
        said.append(f"the tokens of {answers.uncounted} answers are unknown")
    if answers.uncounted_chunks:
        said.append(f"{answers.uncounted_chunks} chunks of unknown token count are missing from the throughput")
    if not said:
        return None
    return Finding(
        "token_count_disagrees",
        "warn",
        "; ".join(said),
        "have the server send usage (stream_options.include_usage), or name the model's tokenizer with --tokenizer; "
        "make sure that no other client uses the server during the run",
    )


def _server_counts_otherwise(stage: StageSummary) -> bool:
    """A server may count a request's tokens when it ends: what is in flight at the edges can be on either side."""
    server, client = stage.answers.server_count, stage.answers.client_count
    if server is None or client is None:
        return False
    edges = stage.concurrency.average * (stage.answers.output_tokens or 0.0)
    return abs(client - server) > COUNT_TOLERANCE * max(server, client) + edges


def _not_streamed(stage: StageSummary) -> Finding | None:
    answers = stage.answers
    if answers.at_once <= AT_ONCE_SHARE * answers.streams:
        return None
    return Finding(
        "not_streamed",
        "warn",
        f"all tokens of {answers.at_once} of {answers.streams} streamed answers arrived at once: their TTFT is the "
        "time to the whole answer, and their TPOT is meaningless",
        "look for a proxy that buffers responses, or a server that does not stream; compare by E2E",
    )


def _empty_answers(stage: StageSummary) -> Finding | None:
    if not stage.answers.empty:
        return None
    return Finding(
        "empty_answers",
        "warn" if stage.answers.empty > FAILURE_SHARE * stage.ok else "note",
        f"{stage.answers.empty} of {stage.ok} answers were complete and had no content",
        "look at a prompt and its answer; a chat template or a stop string may end the answer immediately",
    )


def _cut_short(stage: StageSummary, fixed_lengths: bool) -> Finding | None:
    answers = stage.answers
    if answers.cut_short <= SHORT_SHARE * stage.ok or answers.planned_tokens is None:
        return None
    return Finding(
        "cut_short",
        "warn" if fixed_lengths else "note",
        f"{answers.cut_short} of {stage.ok} answers were shorter than planned: "
        f"{significant(answers.output_tokens or 0)} tokens on average instead of {significant(answers.planned_tokens)}",
        "use a server that supports ignore_eos, or compare only runs whose answers have the same length"
        if fixed_lengths
        else "fix the length of the answers with --ignore-eos yes, if engines are to do the same work",
        stage.key,
    )


def _prompts_missed(stage: StageSummary, exact: bool) -> Finding | None:
    missed, planned = stage.answers.missed_prompts, stage.answers.planned_prompts
    if not missed:
        return None
    return Finding(
        "prompts_missed",
        "warn" if exact or missed > MISSED_SHARE * planned else "note",
        f"{format_share(missed / planned)} of the prompts missed their planned length by more than a token; "
        f"all prompts had {significant(stage.answers.prompt_tokens or 0)} tokens on average",
        "use longer prompts: unique words and a chat template take some tokens"
        if exact
        else "use a server with /tokenize, or name the model's tokenizer with --tokenizer",
        stage.key,
    )


def _prompts_cached(stage: StageSummary) -> Finding | None:
    prompt, cached = stage.answers.prompt_tokens, stage.answers.cached_tokens
    if not prompt or not cached or cached < CACHED_SHARE * prompt:
        return None
    return Finding(
        "prompts_cached",
        "note",
        f"{format_share(cached / prompt)} of the prompt tokens came from the server's prefix cache",
        "expect a longer TTFT for prompts that are not cached; --shared-prefix-tokens sets how much prompts share",
    )


def _reconnected(stage: StageSummary) -> Finding | None:
    if not stage.reconnected:
        return None
    connect = stage.latencies["connect"]
    return Finding(
        "reconnected",
        "warn" if stage.reconnected > 0.01 * stage.requests else "note",
        f"{format_count(stage.reconnected)} of {format_count(stage.requests)} requests had to open a connection, which "
        f"took {format_seconds(connect.p50.value)} (median); TTFT excludes it, TTFT (user) includes it",
        "have the server keep connections open for longer than a user's think time",
    )


CHECKS: tuple[Callable[[StageSummary], Finding | None], ...] = (
    _failures,
    _retries,
    _censored,
    _too_few_samples,
    _not_streamed,
    _empty_answers,
    _token_count_disagrees,
    _tokens_per_chunk,
    _prompts_cached,
    _reconnected,
)
