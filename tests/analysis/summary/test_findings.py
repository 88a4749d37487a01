"""The table of kinds: what is added to it is found, and what was not observed is no fault."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.summary.run_summary import RunSummary, summarise
from enginebench.records.findings import kinds
from enginebench.records.findings.kinds import findings_of, findings_of_view
from enginebench.records.search import SearchRecord
from enginebench.records.view import Evidence, Finding, Level, StageKey, StageView
from tests.support.analysis.found import STAGES, changed, every_100_ms, findings, samples
from tests.support.analysis.synthetic import meta_of, plan_of, stages_of, write_run


def view(**changes: Any) -> StageView:
    """One of which nothing was observed but that a hundred requests were answered."""
    nothing = StageView(
        index=0, label="4 users", load=4, load_unit="users", start=0, end=10, outcomes={"ok": 100}, metrics={},
        quantities={},
    )  # fmt: skip
    return dataclasses.replace(nothing, **changes)


@pytest.mark.parametrize("is_open", [False, True])
def test_what_was_not_observed_is_no_fault(is_open: bool) -> None:
    assert findings_of_view(view(is_open=is_open), meta_of(())) == ()


def test_a_stage_that_has_only_begun_can_be_judged() -> None:
    assert findings_of_view(view(outcomes={}, end=0.0), meta_of(())) == ()


def test_a_throttled_gpu_is_a_warning() -> None:
    """In a third of the window; one sample of a hundred is none."""
    long, short = (
        findings_of_view(view(gauges={"gpu_throttled": Level(share, 1.0)}), meta_of(())) for share in (0.34, 0.01)
    )
    assert [(finding.kind, finding.severity, finding.evidence) for finding in long] == [
        ("gpu_throttled", "warn", "a GPU was throttled, by heat or by its power supply, in 34 % of the window")
    ]
    assert not short


@pytest.mark.parametrize(
    ("ignore_eos", "features", "severity", "remedy"),
    [
        pytest.param(False, [], "note", "--ignore-eos yes", id="lengths may vary"),
        pytest.param(True, None, "warn", "the server may not obey ignore_eos", id="asked of a server of unknown kind"),
        pytest.param(True, ["ignore_eos"], "warn", "the server's limit on tokens", id="and of one that supports it"),
    ],
)
def test_short_answers_have_a_remedy_that_can_help(
    tmp_path: Path, ignore_eos: bool, features: list[str] | None, severity: str, remedy: str
) -> None:
    meta = meta_of(STAGES)
    changes = {
        "workload": dict(meta.workload) | {"ignore_eos": ignore_eos},
        "engine": None if features is None else {"name": "fake", "features": features},
    }
    (short,) = findings(tmp_path, every_100_ms(changed(planned_output_tokens=16)), **changes)
    assert (short.kind, short.severity) == ("short_answers", severity)
    assert remedy in short.remedy
    assert ("--ignore-eos" in short.remedy) == (not ignore_eos)


def searched(tmp_path: Path, state: Any, seconds: float) -> RunSummary:
    """A search whose second probe was still warming up at 20 s, its last instant."""
    record = SearchRecord("users", "users", ("ttft_p95=1",), 0.2, state)
    (first,), warming = stages_of((1,), 20.0, names=("probe 1",)), plan_of(2, 5.0, 10.0, "probe 2")
    meta = meta_of((first,), plan=(first.plan, warming), search=record)
    meta = dataclasses.replace(meta, workload=dict(meta.workload) | {"search_seconds": seconds})
    return summarise(load_run(write_run(tmp_path, meta, every_100_ms(), samples())))


@pytest.mark.parametrize(
    ("state", "seconds", "stopped"),
    [
        pytest.param("undecided", 19.0, False, id="its time was up"),
        pytest.param("undecided", 60.0, True, id="it was interrupted before its time was up"),
        pytest.param("running", 19.0, True, id="it was killed"),
    ],
)
def test_a_search_whose_time_is_up_was_not_stopped_early(
    tmp_path: Path, state: str, seconds: float, stopped: bool
) -> None:
    evidence = [f.evidence for f in searched(tmp_path, state, seconds).findings if f.kind == "unfinished"]
    assert evidence == (["a run was stopped before it reached probe 2"] if stopped else [])


def test_the_evidence_of_a_kind_is_one_finding_with_the_remedy_of_the_worst() -> None:
    late, minor = kinds.KIND_BY_NAME["load_generator_late"], kinds.KIND_BY_NAME["prompts_cached"]
    first, second = StageKey(0, "1 user"), StageKey(1, "2 users")
    evidence = [
        (minor, Evidence("note", "some", stage=first)),
        (late, Evidence("note", "a little", stage=first)),
        (late, Evidence("invalid", "very", "wait", first)),
        (late, Evidence("warn", "rather", "hurry", first)),
        (late, Evidence("warn", "again", stage=second)),
    ]
    assert findings_of(evidence, "a") == (
        Finding("load_generator_late", "invalid", "a little; very; rather", "wait", first, "a"),
        Finding("load_generator_late", "warn", "again", late.remedy, second, "a"),
        Finding("prompts_cached", "note", "some", minor.remedy, first, "a"),
    )


def test_findings_of_one_kind_are_told_apart_by_stage(tmp_path: Path) -> None:
    """Every check of a stage gives its key, and every view has its own."""
    stages = stages_of((2, 3), 10.0)
    run = write_run(tmp_path, meta_of(stages), every_100_ms(), samples())
    summary = summarise(load_run(run))
    missing = [finding for finding in summary.findings if finding.kind == "load_missing"]
    assert [finding.stage for finding in missing] == [StageKey(0, "2 users"), StageKey(1, "3 users")]
    assert [stage.findings for stage in summary.stages] == [
        tuple(finding for finding in summary.findings if finding.stage == stage.key) for stage in summary.stages
    ]
