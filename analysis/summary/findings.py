"""What speaks against the numbers of a run: one table of rules, each a check of a stage's view or of the whole run.

A rule that is added to its table appears on every surface: terminal, page, Markdown, CSV, JSON, compare and gate. The
checks stand in `load_generator.py`, `stability.py`, `answers.py` and `recovery.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from analysis.data.load import RunData
from analysis.stats.intervals import needed
from analysis.summary import answers, load_generator, recovery, stability
from records.run import RunMeta
from records.view import Evidence, Finding, StageView, in_order

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


@dataclass(frozen=True, slots=True)
class RunRule:
    """Looks at a whole run and the views of its stages; it may find its kind several times."""

    kind: str
    check: Callable[[RunData, Sequence[StageView]], Iterable[Evidence]]
    remedy: str


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


STAGE_RULES: tuple[Rule, ...] = (
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
        stability.unserved_users,
        "make the stages longer, or test fewer users: the server may not have the capacity for so many",
    ),
    Rule("unanswered", stability.unanswered, "make the stages longer, or ask for shorter answers"),
    Rule("backlog_grew", stability.backlog_grew, "test lower rates: this one exceeds the server's capacity"),
    Rule(
        "never_steady",
        stability.never_steady,
        "make the stages and their warm-up longer; if the server cannot keep up with a rate, lower the rate",
    ),
    Rule("memory_grew", stability.memory_grew, "run for longer and see whether it levels off; a leak does not"),
    Rule(
        "gpu_throttled",
        stability.gpu_throttled,
        "improve the cooling or the power supply, and measure again; compare engines only if none was throttled",
    ),
    Rule(
        "lock_step", stability.lock_step, "vary the lengths of prompts and answers, or give users a random think time"
    ),
    Rule("littles_law_off", stability.littles_law_off, "make the stages longer, and see whether a worker was lost"),
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
        "too_few_samples",
        answers.too_few_samples,
        f"make the stages longer (--stage-seconds); the interval of p99 needs at least {needed(0.99)} requests",
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

RUN_RULES: tuple[RunRule, ...] = (
    RunRule("imported", load_generator.imported, "measure with enginebench for what is missing"),
    RunRule(
        "unsent",
        load_generator.unsent,
        "raise the limits of its machine (ulimit -n for files, net.ipv4.ip_local_port_range for ports), or use more "
        "processes (--processes), more machines or fewer users",
    ),
    RunRule(
        "telemetry_stopped",
        load_generator.telemetry_stopped,
        "see the server's log and its /metrics; its gauges of that stage are those of the time before",
    ),
    RunRule("stopped_early", stability.stopped_early, "run it to its end"),
    RunRule(
        "malformed_lines",
        load_generator.malformed_lines,
        "check for a full disk, or for two runs that wrote into one folder",
    ),
    RunRule("records_lost", load_generator.records_lost, "check for a full disk (locust.log), and run again"),
    RunRule("failures", answers.all_failed, "see how they failed, and the server's log"),
    RunRule(
        "censored",
        answers.all_censored,
        "make the stages longer than the longest response time, or ask for shorter answers",
    ),
    RunRule(
        "workers_missing",
        load_generator.workers_missing,
        "copy the files of every worker into the run's folder (enginebench collect)",
    ),
    RunRule(
        "process_lost", load_generator.process_lost, "find out what ended it (locust.log, out of memory), and run again"
    ),
    RunRule(
        "several_hosts",
        load_generator.several_hosts,
        "nothing to do: no duration mixes their clocks; `enginebench calibrate` measures the error of each of them",
    ),
    RunRule(
        "not_calibrated",
        load_generator.not_calibrated,
        "run `enginebench calibrate` there once, with as many --processes; later runs will show it",
    ),
    RunRule(
        "past_calibration",
        load_generator.past_calibration,
        "calibrate it under such a load (enginebench calibrate --loads), give it more --processes, or keep the engine "
        "off its cores",
    ),
    RunRule(
        "recovery",
        recovery.recovery,
        "compare it with what users accept; if TTFT did not return, test for longer after it, or with more capacity",
    ),
)


def findings_of_stage(view: StageView, run: RunMeta) -> tuple[Finding, ...]:
    """The gravest first."""
    findings = []
    for rule in STAGE_RULES:
        evidence = rule.check(view) if rule.given(run) else None
        if evidence is not None:
            findings.append(Finding(rule.kind, evidence.severity, evidence.words, rule.remedy, view.key, run.label))
    return in_order(findings)


def findings_of_run(run: RunData, stages: Sequence[StageView]) -> tuple[Finding, ...]:
    """All of a run, those of its stages too, the gravest first."""
    findings = [
        Finding(rule.kind, evidence.severity, evidence.words, rule.remedy, evidence.stage, run.meta.label)
        for rule in RUN_RULES
        for evidence in rule.check(run, stages)
    ]
    for view in stages:
        findings += findings_of_stage(view, run.meta)
    return in_order(findings)
