"""Findings of requests, prompts and answers: each has a run that causes it, and a good run has none."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import summarise
from enginebench.records.request import RequestRecord
from enginebench.records.stage import SECOND
from enginebench.records.view import Finding, StageKey
from tests.support.analysis.found import (
    CUT_OFF,
    MS,
    STAGES,
    Change,
    changed,
    every_100_ms,
    findings,
    now_and_then,
    samples,
)
from tests.support.analysis.synthetic import FAILED, NOTHING_CAME, meta_of, record, stages_of, write_run


def prompts_of(tokens: int, every: int) -> Change:
    """All are planned to have 40 tokens; every so many has `tokens`."""
    return lambda k, one: msgspec.structs.replace(
        one, planned_prompt_tokens=40, prompt_tokens=40 if k % every else tokens
    )


def late(lag: int, every: int = 50) -> Change:
    return lambda k, one: msgspec.structs.replace(one, t_sched=one.t_sched - lag * MS) if k % every == 0 else one


def reconnecting(k: int, one: RequestRecord) -> RequestRecord:
    """Connecting took 3 ms, which is neither send lag nor TTFT."""
    later = one.t_sched + 3 * MS
    return msgspec.structs.replace(one, t_connect=one.t_sched, t_send=later) if k % 20 == 0 else one


def read_late(lag: int) -> Change:
    return lambda _, one: msgspec.structs.replace(one, read_first=(one.t_first or 0) + lag * MS)


def slower(k: int, one: RequestRecord) -> RequestRecord:
    """TTFT grows from 50 ms to 250 ms."""
    return msgspec.structs.replace(one, t_first=(one.t_first or 0) + k * MS, t_last=(one.t_last or 0) + k * MS)


def longer(k: int, one: RequestRecord) -> RequestRecord:
    """Requests end ever later: more and more of them are in flight."""
    return msgspec.structs.replace(one, t_end=one.t_end + 30 * k * MS)


def cut_off(count: int) -> Change:
    """The last requests of the window."""
    return lambda k, one: msgspec.structs.replace(one, **CUT_OFF) if 180 - count <= k < 180 else one


def all_at_once(_: int, one: RequestRecord) -> RequestRecord:
    """As by a buffering proxy that sends all chunks together."""
    last = (one.t_first or 0) + 63_000
    return msgspec.structs.replace(one, output_tokens=64, chunks=64, icl=(1000,) * 63, t_last=last)


ONE_CHUNK = changed(output_tokens=64, first_chunk_tokens=64, chunks=1, icl=(), planned_output_tokens=64)
EMPTY: dict[str, Any] = NOTHING_CAME | {"output_tokens": 0}
KEPT_CLOSED = "14 of them were sent again, because the server closed a kept connection; TTFT excludes"
REFUSED_USAGE = "the usage of 140 of 140 answers is 0 or less than the chunks that came, and does not count"
SHORTER = "70 of 140 answers were shorter than planned: 3.00 tokens on average instead of 16.0"
RUNS: list[tuple[Change, str, str, str]] = [  # what is changed in a good run, and the finding
    (late(30), "load_generator_late", "invalid", "were sent 30.0 ms late at p99"),
    (late(8), "load_generator_late", "warn", "were sent 8.00 ms late at p99"),
    (read_late(40), "load_generator_late", "note", "read 40.0 ms late"),  # the kernel knew, we did not
    (now_and_then(10, **FAILED), "failures", "warn", "10 % of the attempts failed, 1.00 per second"),
    (now_and_then(10, **CUT_OFF), "unfinished", "warn", "10 % of the requests"),
    (cut_off(1), "unfinished", "note", "of the requests were cut off"),
    (reconnecting, "reconnected", "warn", "7 of 140 requests had to open a con"),
    (now_and_then(10, t_connect=0, resent=True), "reconnected", "warn", KEPT_CLOSED),
    (slower, "unsteady", "warn", "TTFT went from"),
    (longer, "unsteady", "warn", "requests in flight went from"),
    (changed(output_tokens=12, first_chunk_tokens=4), "coarse_chunks", "note", "carried 4.00 tokens"),
    (ONE_CHUNK, "coarse_chunks", "warn", "all tokens of 140 of 140 streamed answers arrived at once"),
    (all_at_once, "coarse_chunks", "warn", "streamed answers arrived at once"),
    (changed(output_tokens=2), "token_counts", "warn", REFUSED_USAGE),
    (now_and_then(2, output_tokens=None), "token_counts", "warn", "the tokens of 70 answers are unknown"),
    (now_and_then(2, token_source="tokenizer"), "token_counts", "warn", "the other 70"),  # mixed sources
    (now_and_then(10, **EMPTY), "short_answers", "warn", "14 of 140 answers were complete and had no content"),
    (now_and_then(2, planned_output_tokens=16), "short_answers", "warn", SHORTER),
    (prompts_of(42, every=4), "prompt_lengths", "warn", "25 % of the prompts missed"),
    (prompts_of(42, every=35), "prompt_lengths", "note", "2.9 % of the prompts missed"),
    (changed(cached_tokens=30), "prompts_cached", "note", "75 % of the prompt tokens"),
]


def test_a_good_run_has_none(tmp_path: Path) -> None:
    assert findings(tmp_path, every_100_ms()) == ()


@pytest.mark.parametrize(("change", "kind", "severity", "evidence"), RUNS)
def test_what_records_tell(tmp_path: Path, change: Change, kind: str, severity: str, evidence: str) -> None:
    found = [f for f in findings(tmp_path, every_100_ms(change), model="unheard-of") if f.kind == kind]
    assert [(f.severity, f.stage, f.label) for f in found] == [(severity, StageKey(0, "1 user"), "fake")]
    assert evidence in found[0].evidence
    assert found[0].remedy


@pytest.mark.parametrize(
    ("change", "kind", "evidence"),
    [
        (changed(**FAILED), "failures", "no request succeeded"),
        (cut_off(140), "unfinished", "no request ended before the run did"),
    ],
)
def test_nothing_that_ended_well_voids_a_run(tmp_path: Path, change: Change, kind: str, evidence: str) -> None:
    invalid = [(f.kind, f.evidence) for f in findings(tmp_path, every_100_ms(change)) if f.severity == "invalid"]
    assert (kind, evidence) in invalid


@pytest.mark.parametrize(
    ("server", "found"),
    [
        pytest.param(130.0, False, id="390 tokens apart while 400 are in flight"),
        pytest.param(150.0, True, id="650 tokens apart"),
    ],
)
def test_a_server_that_counts_when_requests_end_may_be_apart_by_what_is_in_flight(
    tmp_path: Path, server: float, found: bool
) -> None:
    """Forty requests at a time, ten a second, ten tokens each: this client sees 100 tokens a second."""
    records = [record(k, k * 100 * MS, t_end=k * 100 * MS + 4 * SECOND, output_tokens=10) for k in range(200)]
    kinds = {f.kind for f in findings(tmp_path, records, samples=samples(tokens=server))}
    assert ("token_counts" in kinds) == found


def test_few_requests_do_not_void_a_run(tmp_path: Path) -> None:
    """The p99 of 50 requests is one of them: late once is a warning."""
    records = [record(k, 4 * SECOND + k * SECOND // 4) for k in range(50)]
    records[7] = msgspec.structs.replace(records[7], t_sched=records[7].t_sched - 500 * MS)
    assert {f.severity for f in findings(tmp_path, records) if f.kind == "load_generator_late"} == {"warn"}


def test_a_prompt_may_miss_its_length_by_a_token(tmp_path: Path) -> None:
    found = findings(tmp_path, every_100_ms(prompts_of(41, every=1)))
    assert "prompt_lengths" not in {f.kind for f in found}


def test_where_the_tokenizer_was_known_every_prompt_that_misses_is_a_warning(tmp_path: Path) -> None:
    workload = dict(meta_of(STAGES).workload) | {"prompt_length_measured": True}
    found = findings(tmp_path, every_100_ms(prompts_of(42, every=35)), workload=workload)
    assert {f.severity for f in found if f.kind == "prompt_lengths"} == {"warn"}


def test_hidden_reasoning_is_no_disagreement_and_no_time_per_token(tmp_path: Path) -> None:
    """Two tokens after the first in 40 ms, 60 more that were never shown; the server counts all 63."""
    hidden = changed(output_tokens=63, unseen_tokens=60, reasoning_tokens=60)
    folder = write_run(tmp_path, meta_of(STAGES, model="unheard-of"), every_100_ms(hidden), samples(tokens=630.0))
    summary = summarise(load_run(folder))
    assert summary.stages[0].value("tpot", "p50") == pytest.approx(0.02)
    assert summary.stages[0].value("reasoning_tokens") == 60
    assert "token_counts" not in {f.kind for f in summary.findings}


def kept(k: int, stage: int, text: str, logprobs: list[float], at: int) -> RequestRecord:
    """Question `k`, answered with a token for each word."""
    words = text.split(" ")
    ends = [len(" ".join(words[: n + 1])) for n in range(len(words))]
    known = {"prompt_id": f"p{k}", "answer_digest": text, "text": text, "token_ends": tuple(ends)}
    return record(k, at, stage=stage, logprobs=tuple(logprobs), **known)


def under_load(folder: Path, records: list[RequestRecord], **workload: Any) -> list[Finding]:
    """What is found of the answers to the same questions by one user and by four."""
    meta = meta_of(stages_of((1, 4), 5.0), workload={"temperature": 0.0, "dataset": "x"} | workload)
    found = summarise(load_run(write_run(folder, meta, records))).findings
    return [one for one in found if one.kind == "answers_under_load"]


def test_where_answers_part_under_load_and_how_likely_they_were_until_then(tmp_path: Path) -> None:
    """Of three questions one gets another third word, one another second one; before that -0.5 became -0.7."""
    alone, loaded = ("a b c d", "e f g", "h i j"), ("a b x d", "e f g", "h y j")
    records = [
        kept(
            k, stage, text, [-0.5 - 0.2 * stage * (k == 0), *([-0.1] * (len(text) // 2))], (k * 4 + stage * 50) * 10**8
        )
        for stage, texts in enumerate((alone, loaded))
        for k, text in enumerate(texts)
    ]
    (found,) = under_load(tmp_path, records, quality=True)
    assert found.evidence == (
        "2 of 3 prompts got another answer at 4 users than at 1 user: from token 2.5 on (median), the first from token "
        "2 on; until then log-probabilities differ by 0.20 at most"
    )


def test_without_tokens_positions_are_characters(tmp_path: Path) -> None:
    records = [
        record(k, (k * 4 + stage * 50) * 10**8, stage=stage, prompt_id=f"p{k}", answer_digest=text, text=text)
        for stage, texts in enumerate((("abcd", "ef"), ("abxd", "ef")))
        for k, text in enumerate(texts)
    ]
    (found,) = under_load(tmp_path, records, quality=True)
    assert found.evidence.endswith("from character 3 on (median), the first from character 3 on")


@pytest.mark.parametrize(
    ("loaded", "severity", "words"),
    [
        pytest.param("abcde", "note", "all 5 prompts got the same answer at 4 users as at 1 user", id="all alike"),
        pytest.param("abxde", "warn", "1 of 5 prompts got another answer at 4 users than at 1 user", id="one differs"),
        pytest.param("ab", "note", "all 2 prompts got the same answer", id="what was asked twice counts"),
    ],
)
def test_greedy_answers_under_load_are_those_of_one_user(
    tmp_path: Path, loaded: str, severity: str, words: str
) -> None:
    records = [
        record(k, (k * 4 + stage * 50 + 12) * 10**8, stage=stage, prompt_id=f"p{k}", answer_digest=letter)
        for stage, letters in enumerate(("abcde", loaded))
        for k, letter in enumerate(letters)
    ]
    (found,) = under_load(tmp_path / "greedy", records)
    assert found.severity == severity
    assert found.evidence.startswith(words)
    assert under_load(tmp_path / "sampled", records, temperature=0.7) == []


def test_text_in_unknown_fields_is_named(tmp_path: Path) -> None:
    change = now_and_then(2, unknown_text="musing, note")
    (found,) = [f for f in findings(tmp_path, every_100_ms(change)) if f.kind == "unknown_text"]
    assert (found.severity, found.stage) == ("warn", None)
    assert found.evidence == (
        "100 of 200 requests had text in fields that are not known here (musing, note): it counts as content, not as "
        "the answer"
    )
