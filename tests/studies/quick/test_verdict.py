"""The sentences of a minute's verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.summary.run_summary import RunSummary
from records.slo import Objective
from records.view import Estimate, StageView
from studies.quick.verdict import verdict_of
from tests.support.analysis.compared import judged_view, run

SLO = Objective("ttft", 0.95, 0.5)
COMMAND = "enginebench run capacity --by users"


def stage(users: float, share: float, p95: float, effective: float = 1000) -> StageView:
    view = judged_view(users, SLO, share, effective, ttft_p50=0.043, ttft_p95=p95, user_throughput=203.0)
    return replace(view, label="1 user" if users == 1 else f"{users:g} users")


def summary(*stages: StageView) -> RunSummary:
    return run("a", stages, objectives=(SLO,))


def test_a_bracket_between_two_measured_loads() -> None:
    measured = summary(stage(1, 1.0, 0.045), stage(16, 0.99, 0.3), stage(20, 0.4, 1.9))
    verdict = verdict_of(measured, 80, COMMAND)
    assert verdict.decided
    assert verdict.sentences[0].startswith("One user: first token after 43.0 ms")
    assert "then 203 tokens/s" in verdict.sentences[0]
    assert verdict.sentences[1] == "16 users get their first token within 500 ms (p95), 20 no longer (1.90 s)."
    assert verdict.sentences[2] == "80 users: about 5 replicas."


def test_what_the_intervals_leave_open_is_undecided_with_the_command_that_decides_it() -> None:
    measured = summary(stage(1, 1.0, 0.045), stage(16, 0.96, 0.48, effective=60), stage(20, 0.4, 1.9))
    verdict = verdict_of(measured, 80, COMMAND)
    assert f"A minute does not decide 16 users; this does: {COMMAND}" in verdict.sentences
    assert verdict.sentences[1].startswith("1 user gets the first token within 500 ms (p95), 20 no longer (1.90 s)")


def test_never_missed() -> None:
    verdict = verdict_of(summary(stage(1, 1.0, 0.045), stage(100, 1.0, 0.06)), 80, COMMAND)
    assert not verdict.decided
    assert "100 users get their first token within 500 ms (p95), the most that was decided." in verdict.sentences
    assert "80 users: 1 replica." in verdict.sentences


def test_missed_by_the_first_user() -> None:
    verdict = verdict_of(summary(stage(1, 0.1, 1.2)), 80, COMMAND)
    assert verdict.sentences[1] == "Already 1 user misses TTFT p95 ≤ 500 ms (1.20 s)."
    assert not any("replica" in sentence for sentence in verdict.sentences)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(0.0432, 0.0412, 0.0449, 100), "43.2 ms [41.2, 44.9]"),
        (Estimate(0.0432, n=12, why="12 < 28"), "43.2 ms (rough)"),
    ],
)
def test_every_number_has_its_interval_or_is_marked_as_rough(estimate: Estimate, text: str) -> None:
    view = stage(1, 1.0, 0.045)
    ttft = replace(view.metrics["ttft_user"], percentiles={**view.metrics["ttft_user"].percentiles, "p50": estimate})
    measured = summary(replace(view, metrics={**view.metrics, "ttft_user": ttft}))
    assert text in verdict_of(measured, 80, COMMAND).sentences[0]
