"""One objective over several runs: the interval of the pooled share."""

from dataclasses import replace

import pytest

from enginebench.analysis.stats.intervals import clopper_pearson
from enginebench.analysis.verdict.pooling import pooled
from enginebench.records.rules import SloAnswer
from enginebench.records.slo import parse_objectives
from enginebench.records.view import Judgement, Missing
from tests.support.analysis.compared import judged

(TTFT,) = parse_objectives(["ttft_p95=0.5"])


def without_interval(share: float, answer: SloAnswer = "not confirmed") -> Judgement:
    judgement = judged(TTFT, share, 100, answer)
    bare = replace(judgement.share, low=None, high=None, effective=None, missing=Missing.CYCLIC)
    return replace(judgement, share=bare)


def test_a_single_run_is_judged_by_itself() -> None:
    alone = judged(TTFT, 0.97, 300)
    assert pooled([alone]) is alone


def test_effective_requests_add_up() -> None:
    together = pooled([judged(TTFT, 0.96, 100), judged(TTFT, 0.98, 300)])
    low, high = clopper_pearson(0.975, 400)
    assert together.share.low == pytest.approx(low)
    assert together.share.high == pytest.approx(high)
    assert together.share.n == together.share.effective == 400


def test_runs_that_differ_by_more_than_their_requests_explain_widen_the_interval() -> None:
    """Three runs of 99, 97 and 92 % of 1,000 requests: 96 % with a standard error of 2.08 points."""
    together = pooled([judged(TTFT, share, 1000) for share in (0.99, 0.97, 0.92)])
    assert together.share.value == pytest.approx(0.96)
    assert together.share.effective == pytest.approx(0.96 * 0.04 / 0.000433, rel=0.01)
    assert together.answer == "not confirmed"
    alike = pooled([judged(TTFT, share, 1000) for share in (0.985, 0.99, 0.988)])
    assert alike.answer == "met"


def test_two_runs_that_contradict_each_other_decide_nothing() -> None:
    together = pooled([judged(TTFT, 0.999, 2000), judged(TTFT, 0.5, 100)])
    assert (together.answer, together.share.missing) == ("not confirmed", Missing.FEW_REPEATS)


@pytest.mark.parametrize(
    ("judgements", "answer"),
    [
        pytest.param([without_interval(0.99)] * 2, "not confirmed", id="two runs, nothing known"),
        pytest.param([without_interval(0.99, "met")] * 2, "met", id="two runs that are decided"),
        pytest.param([without_interval(share) for share in (0.99, 0.985, 0.988)], "met", id="three runs: their spread"),
        pytest.param([without_interval(share) for share in (0.99, 0.9, 0.97)], "not confirmed", id="a wide one"),
        pytest.param([without_interval(share) for share in (0.4, 0.5, 0.45)], "missed", id="far below"),
    ],
)
def test_without_intervals_the_spread_of_the_runs_decides(judgements: list[Judgement], answer: SloAnswer) -> None:
    assert pooled(judgements).answer == answer


def test_requests_that_were_cut_off_count_as_misses_and_as_hits() -> None:
    sure, unsure = judged(TTFT, 0.99, 1000), replace(judged(TTFT, 0.99, 1000), unknown=200)
    assert pooled([sure, sure]).answer == "met"
    together = pooled([sure, unsure])
    assert (together.answer, together.share.missing, together.unknown) == ("not confirmed", Missing.CUT_OFF, 200)
    assert pooled([judged(TTFT, 0.5, 1000), replace(judged(TTFT, 0.5, 1000), unknown=20)]).answer == "missed"
