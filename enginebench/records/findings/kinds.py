"""The kinds of findings, one row each: symptom, meaning, remedy, and the check of a stage's view.

python -m enginebench.records.findings.kinds        # the table of docs/troubleshooting.md

A kind that is added here appears on every surface: terminal, page, Markdown, CSV, JSON, compare and gate. During the
run only latencies, outcomes, retries, throughput and goodput are known; findings that need nothing else also appear in
the progress line, on Locust's page, in `live.json` and in the exporter. Checks of a stage are in `load_generator.py`,
`load.py` and `answers.py`; checks of a whole run are in `enginebench/analysis/summary/findings.py`, and checks of
several runs in `enginebench/analysis/sections/warnings.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from enginebench.records.files import REQUEST_FILES
from enginebench.records.findings import answers, load, load_generator
from enginebench.records.run import RunMeta
from enginebench.records.stage import SECOND
from enginebench.records.view import SEVERITIES, Evidence, Finding, StageView

Check = Callable[[StageView, RunMeta], Iterable[Evidence]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding, as the documentation explains it.

    `check` yields nothing if all is well, or if its inputs were not observed. Evidence may carry its own remedy, which
    replaces `remedy`.
    """

    name: str
    symptom: str
    meaning: str
    remedy: str
    check: Check = lambda view, run: ()


KINDS: tuple[Kind, ...] = (
    Kind(
        "load_generator_late",
        "requests were sent late (p99 over 5 ms and 5 % of the median TTFT: warn; over 20 ms and 25 %, with 100 "
        "requests or more: invalid), answers were read late, the load generator's event loop was late, its busiest "
        "process used 0.9 cores or more, or it waited for a CPU for 10 % of the time or more",
        "the load and the latencies partly reflect the load generator itself; late reads do not affect kernel "
        "timestamps",
        "give the load generator more processes (--processes) or a machine of its own",
        load_generator.late,
    ),
    Kind(
        "timing_error",
        "the calibrated error is over 1 ms and 5 % of the median TTFT; or it is not known for this machine, number of "
        "processes, load or share of time without a core",
        "TTFT is less accurate than its digits suggest, or has no ±",
        "run `enginebench calibrate` once on the load generator's machine",
        load_generator.timing_error,
    ),
    Kind(
        "load_missing",
        "fewer users than planned were running (below 99 %: warn, below 90 %: invalid), a process was lost, or "
        "requests could not be sent because the load generator lacked descriptors, ports, buffers or memory (invalid)",
        "the server had less load than planned",
        "find out what ended it (locust.log, out of memory), and run again",
        load_generator.load_missing,
    ),
    Kind(
        "unfinished",
        "the warm-up or the stage reached its maximum duration while users or requests were still waiting for an "
        "answer, requests were cut off (above 1 %: warn, all: invalid), or planned stages were not measured",
        "the window is not the planned one, and percentiles that depend on missing answers have no value",
        "make the stages longer, ask for shorter answers or test fewer users; --stop-timeout allows the last requests "
        "more time",
        load.unfinished,
    ),
    Kind(
        "unsteady",
        "throughput, TTFT, TPOT or requests in flight changed within the window, more requests arrived than ended in "
        "an open loop, or requests in flight differ from λW by more than 10 % and what the window's edges explain",
        "the numbers depend on how long the stage lasted; a difference from λW may also mean that records are missing",
        "make the stages and their warm-up longer",
        load.unsteady,
    ),
    Kind(
        "lock_step",
        "users sent their requests at the same moments (index of dispersion of 2 or more), or in a fixed order",
        "queues are longer than with independent users, and intervals are withheld",
        "vary the lengths: --output-tokens uniform:LOW-HIGH",
        load.lock_step,
    ),
    Kind(
        "memory_grew",
        "the server's memory grew by more than 5 % and 16 MiB within a window of ten minutes or more",
        "the server may leak memory",
        "run for longer and see whether it levels off; a leak does not",
        load.memory_grew,
    ),
    Kind(
        "gpu_throttled",
        "a GPU ran slower in more than 1 % of the window because of heat or its power supply, not its power limit",
        "the engine is faster than measured",
        "improve the cooling or the power supply, and measure again; compare engines only if none was throttled",
        load.gpu_throttled,
    ),
    Kind(
        "failures",
        "requests failed (above 1 %: warn, all: invalid), or clients retried them (above 1.5 attempts each: warn)",
        "failures count as +∞ in every percentile, and retries add to the load",
        "read the server's log; under overload, look for the largest load without failures",
        answers.failures,
    ),
    Kind(
        "short_answers",
        "answers had no content, or more than 10 % of them were shorter than planned",
        "engines that answer with fewer tokens do less work",
        "fix the length of the answers with --ignore-eos yes, or find out what ends them early",
        answers.short_answers,
    ),
    Kind(
        "coarse_chunks",
        "the tokens of more than 10 % of the streamed answers arrived at once (warn), or chunks do not hold one token "
        "each (note)",
        "TTFT and TPOT are those of whole answers, or ICL is not the time per token",
        "look for a proxy that buffers responses; compare engines by TPOT, which divides by tokens, or by E2E",
        answers.coarse_chunks,
    ),
    Kind(
        "token_counts",
        "the reported usage is 0 or less than the number of chunks, the number of tokens is unknown, tokens were "
        "counted in two ways, or the server's counter differs by more than 5 % and by more than what was in flight at "
        "the window's edges",
        "tokens/s and TPOT are uncertain or missing",
        "have the server send usage (stream_options.include_usage), or name the model's tokenizer with --tokenizer; "
        "make sure that no other client uses the server during the run",
        answers.token_counts,
    ),
    Kind(
        "unknown_text",
        "text came in fields of the answer that this client does not know",
        "it counts as content, but not for TTFO",
        "look at an answer of the server: if a model did not generate that text, TTFT and tokens per chunk wrongly "
        "include it, and TTFO is the time to the first token",
    ),
    Kind(
        "prompt_lengths",
        "prompts missed their planned length by more than one token (warn if the tokenizer was known or above 5 %, "
        "else a note)",
        "prefill was more or less work than planned",
        "use a server with /tokenize, or name the model's tokenizer with --tokenizer; unique words and a chat template "
        "take some tokens",
        answers.prompt_lengths,
    ),
    Kind(
        "prompts_cached",
        "10 % or more of the prompt tokens came from the server's prefix cache",
        "TTFT is shorter than for prompts that are not cached",
        "expect a longer TTFT for prompts that are not cached; --shared-prefix-tokens sets how many tokens prompts "
        "share",
        answers.prompts_cached,
    ),
    Kind(
        "reconnected",
        "connections had to be opened during the window (above 1 %: warn), or requests were sent again because the "
        "server had closed a kept-alive connection",
        "TTFT (user) includes the time to connect",
        "have the server keep connections open for longer than a user's think time",
        answers.reconnected,
    ),
    Kind(
        "answers_under_load",
        "prompts got a different greedy answer under load than with a single user (warn), or all got the same (note)",
        "batching changes the answers, by rounding or by a bug",
        "see docs/answers.md: a few late differences indicate rounding, many early ones a bug in the cache or the "
        "masks",
    ),
    Kind(
        "graded_under_load",
        "questions with exact answers that a single user got right were answered worse under load (McNemar's test, "
        "Holm-corrected p of at most 5 %: warn), or how many were right (note)",
        "the engine gets worse under load: its speed there is not that of the same answers",
        "look for a bug in batching (cache, masks, positions), or limit the size of the batch; docs/answers.md",
    ),
    Kind(
        "telemetry_missing",
        "the server's `/metrics`, or one of its series, was missing for the last 10 seconds of a window or longer "
        "(warn), or a known server publishes none of the names known for a gauge (note)",
        "values of the server, such as power or KV cache in use, are missing or out of date",
        "see the server's log and its /metrics: it may need an option for a series, or publish it under another name",
    ),
    Kind(
        "records_missing",
        f"lines of `{REQUEST_FILES}` are not records (warn), records could not be written or a worker process has none "
        "(invalid)",
        "counts and tokens/s are too low",
        "check for a full disk (locust.log) or two runs that wrote to the same folder, and run again",
    ),
    Kind(
        "imported",
        "another tool made the run",
        "numbers that its file lacks are n/a, never guessed",
        "measure with enginebench to get what is missing",
    ),
    Kind(
        "run_to_run",
        "repeats of one engine have a standard deviation of 5 % or more in output tokens/s",
        "small differences between engines are not significant",
        "repeat more often, and see what else runs on the machine",
    ),
    Kind(
        "not_interleaved",
        "according to their timestamps, the repeats of the engines were not interleaved",
        "drift of the machine may look like a difference",
        "measure the engines in a single command, with --repeat 5",
    ),
    Kind(
        "different_workload",
        "the runs have different scenarios, or different requests (invalid)",
        "nothing is compared",
        "measure all with the same scenario and options",
    ),
    Kind(
        "different",
        "the settings differ between repeats of one engine, or the load generator or the measured lengths between "
        "engines",
        "the difference may be due to that",
        "see how they were measured, below",
    ),
)


KIND_BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}


def evidence_of_view(view: StageView, run: RunMeta) -> Iterator[tuple[Kind, Evidence]]:
    for kind in KINDS:
        for evidence in kind.check(view, run):
            yield kind, evidence._replace(stage=view.key)


def findings_of(evidence: Iterable[tuple[Kind, Evidence]], label: str | None) -> tuple[Finding, ...]:
    """Merge the evidence of a kind in a stage into one finding, with the remedy of its most severe part."""
    groups: dict[tuple[Kind, object], list[Evidence]] = {}
    for kind, part in evidence:
        groups.setdefault((kind, part.stage), []).append(part)
    findings = []
    for (kind, _), parts in groups.items():
        worst = min(parts, key=lambda part: SEVERITIES.index(part.severity))
        words = "; ".join(part.words for part in parts)
        findings.append(Finding(kind.name, worst.severity, words, worst.remedy or kind.remedy, worst.stage, label))
    return tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity)))


def findings_of_view(view: StageView, run: RunMeta) -> tuple[Finding, ...]:
    """Return the findings of one view, including lost processes; also while its stage is running."""
    lost = (process for process in run.lost if not view.complete or process.t < view.end * SECOND)
    missing = KIND_BY_NAME["load_missing"]
    losses = ((missing, load_generator.process_lost(process)._replace(stage=view.key)) for process in lost)
    return findings_of((*evidence_of_view(view, run), *losses), run.label)


def documentation() -> str:
    rows = ["| finding | symptom | what it means | what to do |", "|---|---|---|---|"]
    rows += [f"| `{kind.name}` | {kind.symptom} | {kind.meaning} | {kind.remedy} |" for kind in KINDS]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(documentation())
