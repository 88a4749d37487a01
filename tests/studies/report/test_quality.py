"""Quality in a study's report: engines whose log-probabilities are apart by a known distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log

import pytest

from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.quality import NO_WEIGHTS, Quality
from enginebench.studies.report.contents import study_report
from enginebench.studies.report.criteria import judged
from enginebench.studies.report.criterion import Judged
from enginebench.studies.report.document import numbers
from enginebench.studies.report.page import sections_of
from enginebench.studies.report.quality import NOT_ASKED, quality
from enginebench.studies.report.source import StudySource
from tests.support.studies import BASELINE, SLOW, over_users, source, users_part


def apart(by: float, dtype: str = "float32") -> Quality:
    """Every log-probability is lower by so much."""
    return Quality(("a", "b"), (log(0.5) - by, log(0.125) - by), ({}, {}), dtype)


def engine(label: str, of: Quality | None) -> list[RunSummary]:
    return [replace(run, quality=of) for run in over_users(label, SLOW)]


def study(base: Quality | None, **others: Quality | None) -> StudySource:
    return source(users_part(engine(BASELINE, base), *(engine(label, of) for label, of in others.items())))


def answer(of: StudySource, key: str) -> Judged:
    return next(found for criterion, _, found in judged(study_report(of)) if criterion.key == key)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        pytest.param(0.8e-5, "met", id="logits that give it are 0.8e-5 apart at most"),
        pytest.param(1.6e-5, "not measurable here", id="logits are 0.8e-5 to 1.6e-5 apart"),
        pytest.param(2.4e-5, "missed", id="some logit is 1.2e-5 apart"),
    ],
)
def test_log_probabilities_bound_what_logits_differ_by(by: float, expected: str) -> None:
    found = answer(study(apart(0), candle=apart(by), burn=apart(0.2e-5)), "logits")
    assert found.answer == expected
    assert f"candle {by:.1e}" in found.evidence
    assert found.evidence.endswith("(of a log-probability: at most twice that of a logit)")


@pytest.mark.parametrize(
    ("base", "other", "why"),
    [
        pytest.param(None, None, NOT_ASKED, id="nobody asked"),
        pytest.param(Quality(why=NO_WEIGHTS), Quality(why=NO_WEIGHTS), NO_WEIGHTS, id="random weights"),
        pytest.param(
            apart(0, "bfloat16"), apart(0), f"{BASELINE} computed in bfloat16, not in float32", id="the baseline"
        ),
        pytest.param(apart(0), apart(0.1, "q8_0"), "no other engine in float32 gave", id="no other engine"),
        pytest.param(apart(0), Quality(why="it gives none"), "gave log-probabilities of the fixed text (it", id="none"),
    ],
)
def test_logits_are_compared_in_float32_or_the_reason_is_said(
    base: Quality | None, other: Quality | None, why: str
) -> None:
    found = answer(study(base, candle=other), "logits")
    assert found.answer == "not measurable here"
    assert why in found.evidence


@pytest.mark.parametrize(
    ("others", "expected", "evidence"),
    [
        pytest.param((0.01, 0.0), "missed", "candle +1.005 %; 1 of 2 keep it", id="1 % lost"),
        pytest.param((-0.01, 0.0), "met", "burn +0.000 % and candle −0.995 %", id="1 % gained"),
        pytest.param((-1e-7, 0.0), "met", "candle +0.000 %", id="a difference of rounding"),
    ],
)
def test_loss_in_perplexity_in_any_format(others: Sequence[float], expected: str, evidence: str) -> None:
    found = answer(study(apart(0), candle=apart(others[0], "q8_0"), burn=apart(others[1])), "perplexity")
    assert found.answer == expected
    assert evidence in found.evidence.replace("-", "−")


def test_engines_that_agree_are_not_said_to_be_far_from_the_baseline() -> None:
    section = quality(study_report(study(apart(0), candle=apart(-1e-7), burn=apart(2e-7))))
    assert section.sentences[0] == f"all 2 engines have the perplexity of {BASELINE} on the fixed text, within 0.001 %."
    assert [row[3] for row in section.tables[0].rows] == ["+0.000 %", "+0.000 %", "+0.000 %"]


def test_the_section_has_every_engine_beside_the_baseline() -> None:
    """Also one behind its own server, and one that gives nothing, with its reason."""
    of = study(apart(0), candle=apart(0.01, "q8_0"), vllm=Quality(dtype="bfloat16", why="it gives none"))
    (part,) = of.parts
    own = tuple(replace(run, label="vllm-own-server") for run in engine("vllm", apart(0.002, "bfloat16")))
    report = study_report(replace(of, parts=(replace(part, own={"vllm": own}),)))
    section = quality(report)
    assert section.sentences[0] == (
        f"of 2 engines candle is furthest from {BASELINE} in the perplexity of the fixed text, by +1.005 %."
    )
    table = section.tables[0]
    assert [(row[0], row[3], row[4], row[5]) for row in table.rows] == [
        (BASELINE, "+0.000 %", "0.0e+00", ""),
        ("candle", "+1.005 %", "1.0e-02", ""),
        ("vllm", "–", "–", "it gives none"),
        ("vllm-own-server", "+0.200 %", "2.0e-03", ""),
    ]
    frame = numbers(report).filter(metric="quality", label="candle")
    assert frame["statistic"].to_list() == [
        "perplexity",
        "perplexity over the baseline",
        "largest log-probability difference",
    ]
    assert frame["value"].to_list() == pytest.approx([4 * exp(0.01), exp(0.01) - 1, 0.01])


def test_without_any_quality_the_reason_is_among_what_was_not_measured() -> None:
    (part,) = study(None, candle=None).parts
    alone = study_report(source(replace(part, runs=part.runs[:1])))
    (table,) = next(each for each in sections_of(alone) if each.title == "What was not measured").tables
    assert NOT_ASKED in {row[0]: row[1] for row in table.rows}["Quality"]
