"""What speaks against the numbers of a stage: one table of rules, each a check of a view.

A rule that is added to the table appears on every surface: in terminal, page, Markdown, CSV, JSON, compare and gate.
During the run only latencies, outcomes, throughput and goodput are known: a rule that looks at nothing else also
appears in the progress line, on Locust's page, in `live.json` and in the exporter. The checks are in
`load_generator.py`, `load.py` and `answers.py`. Those that need the whole run or statistics are in
`enginebench/analysis/summary/findings.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enginebench.records.findings import answers, load, load_generator
from enginebench.records.run import RunMeta
from enginebench.records.view import Evidence, Finding, StageView, in_order

Condition = Callable[[RunMeta], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """Looks at the view of one stage of a run that fulfils `given`. A live view can be judged by it too.

    `check` returns `None` where nothing is wrong, and where what it looks at was not observed. One kind may have
    several rules, each with the remedy of its own case.
    """

    kind: str
    check: Callable[[StageView], Evidence | None]
    remedy: str
    given: Condition = lambda run: True


def _lengths_vary(run: RunMeta) -> bool:
    return not run.workload.get("ignore_eos")


def _ignore_eos_supported(run: RunMeta) -> bool:
    return not _lengths_vary(run) and "ignore_eos" in ((run.engine or {}).get("features") or ())


def _ignore_eos_unknown(run: RunMeta) -> bool:
    return not _lengths_vary(run) and not _ignore_eos_supported(run)


def _tokenizer_known(run: RunMeta) -> bool:
    return bool(run.workload.get("prompt_length_measured"))


OWN_CORE = (
    "give the load generator a core of its own (taskset, or fewer threads for the server) or another machine; more "
    "--processes would wait for the same cores"
)


def _by_cause(kind: str, check: Callable[[StageView], Evidence | None], remedy: str) -> tuple[Rule, Rule]:
    """A load generator is late because it has too much to do, which has a remedy, or because others have its cores."""
    return (
        Rule(kind, lambda view: None if load_generator.crowded(view) else check(view), remedy),
        Rule(kind, lambda view: check(view) if load_generator.crowded(view) else None, OWN_CORE),
    )


FIND_OUT = "find out what ended it (locust.log, out of memory), and run again"

STAGE_RULES: tuple[Rule, ...] = (
    Rule("process_lost", load_generator.process_lost, FIND_OUT),
    Rule("waited_for_cpu", load_generator.waited_for_cpu, OWN_CORE),
    *_by_cause(
        "users_missing",
        load_generator.users_missing,
        "make the warm-up longer than users take to start; if a worker process was lost, run again",
    ),
    *_by_cause(
        "client_late",
        load_generator.client_late,
        "give the load generator more processes (--processes) or a machine of its own",
    ),
    Rule(
        "client_error",
        load_generator.client_error,
        "give the load generator more processes (--processes), then `enginebench calibrate` with as many",
    ),
    Rule(
        "event_loop_late",
        load_generator.event_loop_late,
        "stop other programs on that machine, or use a separate machine for the load generator",
    ),
    *_by_cause(
        "read_together",
        load_generator.read_together,
        "give the load generator more processes (--processes) or a machine of its own",
    ),
    Rule("client_cpu_bound", load_generator.client_cpu_bound, "give it more processes: --processes"),
    Rule(
        "unserved_users",
        load.unserved_users,
        "make the stages longer, or test fewer users: the server may not have the capacity for so many",
    ),
    Rule("unanswered", load.unanswered, "make the stages longer, or ask for shorter answers"),
    Rule("backlog_grew", load.backlog_grew, "test lower rates: this one exceeds the server's capacity"),
    Rule("memory_grew", load.memory_grew, "run for longer and see whether it levels off; a leak does not"),
    Rule(
        "gpu_throttled",
        load.gpu_throttled,
        "improve the cooling or the power supply, and measure again; compare engines only if none was throttled",
    ),
    Rule(
        "lock_step",
        load.lock_step,
        "vary the lengths, as by --output-tokens uniform:32-96",
    ),
    Rule("littles_law_off", load.littles_law_off, "make the stages longer, and see whether a worker was lost"),
    Rule(
        "failures",
        answers.failures,
        "read the server's log; under overload, look for the largest load without failures",
    ),
    Rule("retries", answers.retries, "look at the failures; retries add to the load"),
    Rule(
        "censored", answers.censored, "let the run end by itself, or allow its last requests more time (--stop-timeout)"
    ),
    Rule(
        "not_streamed",
        answers.not_streamed,
        "look for a proxy that buffers responses, or a server that does not stream; compare by E2E",
    ),
    Rule(
        "empty_answers",
        answers.empty_answers,
        "look at a prompt and its answer; a chat template or a stop string may end the answer immediately",
    ),
    Rule(
        "token_count_disagrees",
        answers.token_count_disagrees,
        "have the server send usage (stream_options.include_usage), or name the model's tokenizer with --tokenizer; "
        "make sure that no other client uses the server during the run",
    ),
    Rule("tokens_per_chunk", answers.tokens_per_chunk, "compare engines by TPOT, which divides by tokens"),
    Rule(
        "cut_short",
        answers.cut_short,
        "fix the length of the answers with --ignore-eos yes, if engines are to do the same work",
        given=_lengths_vary,
    ),
    Rule(
        "cut_short",
        lambda view: answers.cut_short(view, "warn"),
        "look for what else ends an answer: the server's limit on tokens, the context length, or stop strings in "
        "--extra-body",
        given=_ignore_eos_supported,
    ),
    Rule(
        "cut_short",
        lambda view: answers.cut_short(view, "warn"),
        "the server may not obey ignore_eos: ask for the length in its own way (--extra-body, such as min_tokens), or "
        "compare by TPOT and by cost per token, not by requests/s or E2E",
        given=_ignore_eos_unknown,
    ),
    Rule(
        "prompts_missed",
        answers.prompts_missed,
        "use a server with /tokenize, or name the model's tokenizer with --tokenizer",
        given=lambda run: not _tokenizer_known(run),
    ),
    Rule(
        "prompts_missed",
        lambda view: answers.prompts_missed(view, "warn"),
        "use longer prompts: unique words and a chat template take some tokens",
        given=_tokenizer_known,
    ),
    Rule(
        "prompts_cached",
        answers.prompts_cached,
        "expect a longer TTFT for prompts that are not cached; --shared-prefix-tokens sets how much prompts share",
    ),
    Rule(
        "reconnected", answers.reconnected, "have the server keep connections open for longer than a user's think time"
    ),
)


def findings_of_view(view: StageView, run: RunMeta, rules: Sequence[Rule] = ()) -> tuple[Finding, ...]:
    """By the table and by `rules`, the gravest first."""
    findings = []
    for rule in (*STAGE_RULES, *rules):
        evidence = rule.check(view) if rule.given(run) else None
        if evidence is not None:
            findings.append(Finding(rule.kind, evidence.severity, evidence.words, rule.remedy, view.key, run.label))
    return in_order(findings)
