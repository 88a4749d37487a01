"""All that speaks against a run: what the load generator did wrong (load_generator.py), and what its records show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from analysis.report.units import format_count, format_seconds, format_share, in_words, significant
from analysis.run.load import Run
from analysis.verdict import load_generator
from analysis.verdict.finding import FEW_SAMPLES, Finding, in_order
from analysis.verdict.stages import StageSummary
from analysis.verdict.statistics import trend

LITTLE_TOLERANCE = 0.10
TREND_P = 0.01  # chance that a steady backlog looks like one that grows
TREND_SIZE = 0.2  # and by how much it must have grown, to matter
CENSORED_SHARE = 0.01  # as many as p99 leaves out
FAILURE_SHARE = 0.01
COUNT_TOLERANCE = 0.05


def findings_of(run: Run, stages: tuple[StageSummary, ...]) -> tuple[Finding, ...]:
    """All findings of one run, the gravest first."""
    found = [*_of_the_run(run, stages), *load_generator.of_the_run(run, stages)]
    for stage in stages:
        for check in (*load_generator.CHECKS, *CHECKS):
            finding = check(stage)
            if finding is not None:
                found.append(finding)
    return in_order([replace(finding, label=run.meta.label) for finding in found])


def _of_the_run(run: Run, stages: tuple[StageSummary, ...]) -> Iterator[Finding]:
    unreached = [str(s.users) for s in run.meta.stages if s.index not in {stage.index for stage in stages}]
    cut = [str(stage.users) for stage in stages if not stage.complete]
    if unreached or cut:
        said = [f"nothing was measured at {in_words(unreached)} users"] if unreached else []
        said += [f"the step with {in_words(cut)} users was cut short"] if cut else []
        yield Finding("stopped_early", "warn", f"the run was stopped: {' and '.join(said)}", "run it to its end")
    if run.spoilt_lines:
        yield Finding(
            "spoilt_lines",
            "warn",
            f"{format_count(run.spoilt_lines)} lines of requests*.jsonl are no records and were left out",
            "look for a full disk, or for two runs that wrote into one folder",
        )
    if run.telemetry.lost:
        yield Finding(
            "records_lost",
            "warn",
            f"{format_count(run.telemetry.lost)} requests could not be recorded: counts and tokens/s are too low",
            "look for a full disk (locust.log), and run again",
        )
    if stages and not any(stage.ok for stage in stages):
        if any(stage.failed for stage in stages):
            yield Finding("failures", "invalid", "no request ended well", "see how they failed, and the server's log")
        else:
            remedy = "make the stages longer than the longest wait, or ask for shorter answers"
            yield Finding("censored", "invalid", "no request ended before the run did", remedy)


def _littles_law_off(stage: StageSummary) -> Finding | None:
    concurrency = stage.concurrency
    if concurrency.little is None or concurrency.average == 0:
        return None
    if abs(concurrency.little / concurrency.average - 1) <= LITTLE_TOLERANCE:
        return None
    return Finding(
        "littles_law_off",
        "warn",
        f"{significant(concurrency.average)} requests were in flight, but arrivals × mean stay give "
        f"{significant(concurrency.little)}: the window was not steady, or records are missing",
        "make the stages longer, and see whether a worker was lost",
        stage.users,
    )


def _never_steady(stage: StageSummary) -> Finding | None:
    moved = _drift(stage.concurrency.batches)
    if moved is None or max(stage.concurrency.batches) - min(stage.concurrency.batches) < 1:
        return None
    first, last = moved
    return Finding(
        "never_steady",
        "warn",
        f"requests in flight went from {significant(first)} to {significant(last)} inside the steady window",
        "make the warm-up longer; under an open load, this rate is more than the server can take",
        stage.users,
    )


def _drift(batches: tuple[float, ...]) -> tuple[float, float] | None:
    """Mean of the first and of the last third, where the series has a trend that is neither chance nor small."""
    if not batches:
        return None
    third = max(len(batches) // 3, 1)
    first, last = sum(batches[:third]) / third, sum(batches[-third:]) / third
    _, p = trend(batches)
    if p >= TREND_P or abs(last - first) <= TREND_SIZE * max(first, last):
        return None
    return first, last


def _ttft_drifts(stage: StageSummary) -> Finding | None:
    moved = _drift(stage.ttft_batches)
    if moved is None:
        return None
    first, last = moved
    return Finding(
        "never_steady",
        "warn",
        f"TTFT went from {format_seconds(first)} to {format_seconds(last)} inside the steady window: its percentiles "
        "depend on how long the test ran",
        "make the stages and their warm-up longer than the longest wait",
        stage.users,
    )


def _too_few_samples(stage: StageSummary) -> Finding | None:
    if stage.ok >= FEW_SAMPLES:
        return None
    return Finding(
        "too_few_samples",
        "warn" if stage.ok < FEW_SAMPLES / 5 else "note",
        f"{stage.ok} requests ended well in the steady window: too few for tails",
        "make the stages longer (--stage-seconds); p99 needs 368 requests for an interval",
        stage.users,
    )


def _tokens_per_chunk(stage: StageSummary) -> Finding | None:
    per_chunk = stage.tokens.per_chunk
    if per_chunk is None or 0.9 <= per_chunk <= 1.1:
        return None
    return Finding(
        "tokens_per_chunk",
        "note",
        f"a chunk carried {significant(per_chunk)} tokens on average, so ICL is not the time of a token",
        "compare engines by TPOT, which divides by tokens",
        stage.users,
    )


def _token_count_disagrees(stage: StageSummary) -> Finding | None:
    tokens, said = stage.tokens, []
    if tokens.fewer_than_chunks:
        said.append(f"{tokens.fewer_than_chunks} answers report fewer tokens than they had chunks")
    if _server_counts_otherwise(stage):
        said.append(
            f"the server's counter grew by {format_count(tokens.server_count)} tokens while this client received "
            f"{format_count(tokens.client_count)}"
        )
    if 0 < tokens.by_tokenizer < stage.ok:
        said.append(f"the server counted some answers, the tokenizer the other {tokens.by_tokenizer}")
    if tokens.uncounted or tokens.uncounted_chunks:
        said.append(
            f"nobody counted the tokens of {tokens.uncounted} answers, and {tokens.uncounted_chunks} chunks are "
            "missing from the throughput"
        )
    if not said:
        return None
    return Finding(
        "token_count_disagrees",
        "warn",
        "; ".join(said),
        "have the server send usage (stream_options.include_usage), or name the model's tokenizer with --tokenizer; "
        "let nobody else use the server meanwhile",
        stage.users,
    )


def _server_counts_otherwise(stage: StageSummary) -> bool:
    """A server may count a request's tokens when it ends: what is in flight at the edges can be on either side."""
    server, client = stage.tokens.server_count, stage.tokens.client_count
    if server is None or client is None:
        return False
    edges = stage.concurrency.average * (stage.tokens.output or 0.0)
    return abs(client - server) > COUNT_TOLERANCE * max(server, client) + edges


def _reconnected(stage: StageSummary) -> Finding | None:
    if not stage.reconnected:
        return None
    return Finding(
        "reconnected",
        "warn" if stage.reconnected > 0.01 * stage.requests else "note",
        f"{format_count(stage.reconnected)} of {format_count(stage.requests)} requests had to connect again",
        "make the server keep connections alive for longer than a user thinks",
        stage.users,
    )


def _censored(stage: StageSummary) -> Finding | None:
    if not stage.cut_off:
        return None
    share = stage.cut_off / stage.requests
    return Finding(
        "censored",
        "warn" if share > CENSORED_SHARE else "note",
        f"{format_share(share)} of the requests were cut off by the end of the run; they were the longest, so the true "
        "tails are longer",
        "give the last requests more time to end (--stop-timeout), or make the cool-down longer",
        stage.users,
    )


def _failures(stage: StageSummary) -> Finding | None:
    share = stage.failure_share.value
    if not stage.failed or share is None:
        return None
    details = "; ".join(f"{count} × {what}" for what, count in list(stage.failure_details.items())[:2])
    return Finding(
        "failures",
        "warn" if share > FAILURE_SHARE else "note",
        f"{format_share(share)} of the requests failed ({details}); latencies are those of the others",
        "read the server's log; under overload, look for the largest step without failures",
        stage.users,
    )


CHECKS: tuple[Callable[[StageSummary], Finding | None], ...] = (
    _failures,
    _censored,
    _never_steady,
    _ttft_drifts,
    _littles_law_off,
    _too_few_samples,
    _token_count_disagrees,
    _tokens_per_chunk,
    _reconnected,
)
