"""The brief's criteria on studies of which the truth is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from enginebench.studies.report.contents import study_report
from enginebench.studies.report.criteria import CRITERIA, judged
from enginebench.studies.report.criterion import UNKNOWN, Judged
from enginebench.studies.report.expected import brief
from enginebench.studies.report.source import StudySource
from tests.support.studies import BASELINE, NOISE, QUICK, SLOW, over_users, source, users_part, whole


def answer(of: StudySource, key: str) -> Judged:
    return next(found for criterion, _, found in judged(study_report(of)) if criterion.key == key)


def test_every_criterion_of_the_brief_is_judged_once() -> None:
    assert [criterion.key for criterion in CRITERIA] == list(brief().criteria)


def test_what_one_run_of_each_shows_is_no_speed_up() -> None:
    """The table of the same page says that a winner needs three repeats."""
    once = source(users_part(over_users(BASELINE, SLOW, NOISE[:1]), over_users("candle", QUICK, NOISE[:1])))
    for key in ("faster", "speed_up", "scaling"):
        found = answer(once, key)
        assert found.answer == "not measurable here", (key, found)
    assert "undecided is candle 3.25×" in answer(once, "faster").evidence.replace("3.2×", "3.25×").replace(
        "3.3×", "3.25×"
    )


def test_the_made_up_study_meets_what_it_was_made_to_meet() -> None:
    """Candle serves 3.25 times the baseline's tokens, and its repeats are 1 % apart."""
    found = {criterion.key: each for criterion, _, each in judged(study_report(whole()))}
    met = [
        "spread_over_repeats",
        "spread_within_a_run",
        "samples",
        "statistics",
        "faster",
        "speed_up",
        "memory",
        "scaling",
    ]
    assert {key: each.answer for key, each in found.items()} == {
        **dict.fromkeys(met, "met"),
        **dict.fromkeys(("gpu_utilisation", "logits", "perplexity"), "not measurable here"),
    }
    assert "candle 3.2× [3.2, 3.3]" in found["speed_up"].evidence
    assert "transformers 1.01×" in found["faster"].evidence.partition("not ")[2]


@pytest.mark.parametrize(
    ("noise", "expected", "share"),
    [
        pytest.param((-0.04, 0.0, 0.04), "met", "4 %", id="4 % apart"),
        pytest.param((-0.06, 0.0, 0.06), "missed", "6 %", id="6 % apart"),
        pytest.param((0.0,), "not measurable here", "3 repeats", id="one run has no spread"),
    ],
)
def test_the_spread_over_repeats(noise: tuple[float, ...], expected: str, share: str) -> None:
    found = answer(source(users_part(over_users(BASELINE, SLOW, noise))), "spread_over_repeats")
    assert found.answer == expected
    assert share in found.evidence


@pytest.mark.parametrize(
    ("ratio", "noise", "expected"),
    [
        pytest.param(2.5, (-0.01, 0.0, 0.012), "met", id="2.5 times"),
        pytest.param(1.5, (-0.01, 0.0, 0.012), "missed", id="1.5 times"),
        pytest.param(2.05, (-0.2, 0.0, 0.2), "not measurable here", id="an interval across the limit decides nothing"),
    ],
)
def test_a_rust_engine_serves_twice_the_baseline(ratio: float, noise: tuple[float, ...], expected: str) -> None:
    quick = over_users("candle", {load: ratio * rate for load, rate in SLOW.items()}, noise)
    found = answer(source(users_part(over_users(BASELINE, SLOW), quick)), "speed_up")
    assert found.answer == expected


def test_without_the_baseline_nothing_is_as_fast_as_it() -> None:
    of = source(users_part(over_users("transformers", SLOW), over_users("candle", QUICK)))
    for key in ("faster", "speed_up", "memory"):
        assert answer(of, key).answer == "not measurable here"


@pytest.mark.parametrize(
    ("memory", "expected"), [pytest.param(1040, "met", id="4 % more"), pytest.param(1100, "missed", id="10 % more")]
)
def test_memory_is_compared_at_equal_performance(memory: float, expected: str) -> None:
    """An engine that is slower than the baseline is left out, however much it takes."""
    slow = over_users("transformers", {load: 0.5 * rate for load, rate in SLOW.items()}, memory=9000)
    of = source(users_part(over_users(BASELINE, SLOW), over_users("candle", QUICK, memory=memory), slow))
    assert answer(of, "memory").answer == expected


def test_the_gpu_is_busy_or_not() -> None:
    busy, idle = (source(users_part(over_users(BASELINE, SLOW, gpu=share))) for share in (0.82, 0.41))
    assert answer(busy, "gpu_utilisation") == Judged("met", f"{BASELINE} at 100 users 82 %")
    assert answer(idle, "gpu_utilisation").answer == "missed"


def test_of_two_models_neither_hides_the_other() -> None:
    shares = {"a": 0.4, "b": 0.8}
    parts = [users_part(over_users(BASELINE, SLOW, gpu=share), model=model) for model, share in shares.items()]
    found = answer(source(*parts), "gpu_utilisation")
    assert found == Judged("missed", f"a: {BASELINE} at 100 users 40 %; 1 of 2 keep it")


def test_one_that_is_undecided_may_still_count_as_faster() -> None:
    slow = over_users("transformers", {load: 0.5 * rate for load, rate in SLOW.items()})
    open_one = over_users("candle", {load: 1.3 * rate for load, rate in SLOW.items()}, (-0.3, 0.0, 0.3))
    assert answer(source(users_part(over_users(BASELINE, SLOW), slow)), "faster").answer == "missed"
    assert answer(source(users_part(over_users(BASELINE, SLOW), slow, open_one)), "faster").answer == UNKNOWN


def test_scaling_is_judged_up_to_the_knee() -> None:
    """The knee of 40 tokens/s for one and 400 at most is at 10 users: 5 users are below it, 100 beyond."""
    linear = over_users(BASELINE, {1: 40, 5: 198, 100: 400})
    poor = over_users(BASELINE, {1: 40, 5: 100, 100: 400})
    assert answer(source(users_part(linear)), "scaling").answer == "met"
    assert answer(source(users_part(poor)), "scaling").answer == "missed"
    assert answer(source(users_part(over_users(BASELINE, {1: 40, 100: 42}))), "scaling").answer == "not measurable here"


def test_few_samples_are_missed() -> None:
    part = users_part(over_users(BASELINE, SLOW))
    few = tuple(
        replace(run, stages=tuple(replace(stage, outcomes={"ok": 30}) for stage in run.stages)) for run in part.runs
    )
    found = answer(source(replace(part, runs=few)), "samples")
    assert found == Judged(
        "missed",
        "0 of 3 tests keep it; the worst is pytorch-baseline at 1 user 90 (requests answered, over all repeats)",
    )
