"""What speaks against the numbers of a run: the rules of `records/findings/table.py`, those that need statistics, and
those that look at the whole run.

A rule that is added to its table appears on every surface: terminal, page, Markdown, CSV, JSON, compare and gate. The
checks stand in `load_generator.py`, `stability.py`, and `answers.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from enginebench.analysis.data.load import RunData
from enginebench.analysis.summary import answers, load_generator, stability
from enginebench.records.findings.table import FIND_OUT, Rule, findings_of_view
from enginebench.records.run import RunMeta
from enginebench.records.view import Evidence, Finding, StageView, in_order


@dataclass(frozen=True, slots=True)
class RunRule:
    """Looks at a whole run and the views of its stages; it may find its kind several times."""

    kind: str
    check: Callable[[RunData, Sequence[StageView]], Iterable[Evidence]]
    remedy: str


STATISTICAL_RULES: tuple[Rule, ...] = (
    Rule(
        "never_steady",
        stability.never_steady,
        "make the stages and their warm-up longer",
    ),
)
"""Of a stage whose window is over, by tests of its series and by how many requests an interval needs."""

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
    RunRule(
        "series_missing",
        load_generator.series_missing,
        "see whether the server has to be started with an option for it, or publishes it under another name by now",
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
        "unknown_text",
        answers.unknown_text,
        "look at an answer of the server: if a model did not generate that text, TTFT and tokens per chunk count too "
        "much, and TTFO is the time to the first token",
    ),
    RunRule(
        "answers_under_load",
        answers.answers_under_load,
        "see docs/answers.md: a few late differences are rounding, many early ones a bug in cache or masks",
    ),
    RunRule(
        "workers_missing",
        load_generator.workers_missing,
        "copy requests-*.jsonl of every worker into the run's folder",
    ),
    RunRule("process_lost", load_generator.process_lost, FIND_OUT),
    RunRule(
        "several_hosts",
        load_generator.several_hosts,
        "nothing to do: no duration mixes their clocks; `enginebench calibrate` measures the error of each of them",
    ),
    RunRule(
        "not_calibrated",
        load_generator.not_calibrated,
        "run `enginebench calibrate` there once, with the same --processes",
    ),
    RunRule(
        "past_calibration",
        load_generator.past_calibration,
        "calibrate it under such a load (enginebench calibrate --loads), give it more --processes, or keep the engine "
        "off its cores",
    ),
)


def findings_of_stage(view: StageView, run: RunMeta) -> tuple[Finding, ...]:
    """The gravest first."""
    return findings_of_view(view, run, STATISTICAL_RULES)


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
