"""Status by nearest rank, share and n, and when a status is confirmed."""

from collections.abc import Sequence

import pytest

from enginebench.analysis.verdict.slo_verdict import SloVerdict, Status, judge, status_of_class
from enginebench.records.rules import SloAnswer
from enginebench.records.slo import parse_objectives
from enginebench.records.view import ClassView, Estimate, Judgement, Missing, StageView
from tests.support.analysis.compared import judged, view

TTFT, TPOT = parse_objectives(["ttft_p95=0.5", "tpot_p95=0.05"])
OPEN: SloAnswer = "not confirmed"


def stage(good: int, n: int, unknown: int = 0, answer: SloAnswer = OPEN) -> StageView:
    """`good` of `n` requests are within, and the outcome of `unknown` more is not known. There is no interval."""
    share = Estimate(good / n if n else None, n=n)
    outcomes = {"ok": n, "cut_off": unknown}
    attained = share if n else None
    return view(8, {}, outcomes=outcomes, judgements=(Judgement(TTFT, share, answer, unknown),), attained=attained)


def certain(share: float, effective: float) -> StageView:
    """With the interval of that many effective requests."""
    judgement = judged(TTFT, share, effective)
    return view(8, {}, outcomes={"ok": judgement.share.n}, judgements=(judgement,), attained=judgement.share)


def verdict_of(*stages: StageView) -> SloVerdict:
    return judge(stages, [TTFT])


@pytest.mark.parametrize(
    ("stages", "status"),
    [
        pytest.param([stage(19, 20)], Status.MET, id="19 of 20 are a p95 within the limit"),
        pytest.param([stage(18, 20)], Status.MISSED, id="18 of 20 are not"),
        pytest.param([stage(96, 101)], Status.MET, id="rank 96 of 101"),
        pytest.param([stage(95, 101)], Status.MISSED, id="rank 96 of 101 is beyond"),
        pytest.param([stage(1, 1)], Status.MET, id="a single request"),
        pytest.param([stage(18, 20), stage(20, 20)], Status.MET, id="the requests of both runs together"),
        pytest.param([stage(18, 20), stage(19, 20)], Status.MISSED, id="37 of 40"),
        pytest.param([stage(20, 20, unknown=1)], Status.MET, id="a request cut off changes nothing"),
        pytest.param([stage(19, 20, unknown=1)], Status.NOT_MEASURED, id="a request cut off decides"),
        pytest.param([stage(10, 20, unknown=3)], Status.MISSED, id="missed whatever becomes of three"),
        pytest.param([stage(0, 0, unknown=5)], Status.NOT_MEASURED, id="all cut off"),
        pytest.param([stage(0, 0)], Status.NOT_MEASURED, id="no request"),
        pytest.param([stage(20, 20), stage(0, 0)], Status.MET, id="one run without requests"),
    ],
)
def test_status_is_the_nearest_rank_of_the_pooled_requests(stages: Sequence[StageView], status: Status) -> None:
    assert judge(stages, [TTFT]).status is status


def test_share_and_n_are_of_all_runs() -> None:
    verdict = verdict_of(stage(90, 100), stage(300, 300))
    assert (verdict.share, verdict.n, verdict.runs) == (0.975, 400, 2)


UNCOUNTED = view(
    8,
    {},
    outcomes={"ok": 20},
    judgements=(Judgement(TTFT, Estimate(None, missing=Missing.UNCOUNTED), OPEN, unknown=20),),
)


@pytest.mark.parametrize(
    ("stages", "missing"),
    [
        pytest.param([stage(0, 0)], Missing.NOT_OBSERVED, id="no request"),
        pytest.param([stage(19, 20, unknown=1)], Missing.CUT_OFF, id="cut off"),
        pytest.param([stage(19, 20), UNCOUNTED], Missing.UNCOUNTED, id="tokens that are unknown"),
        pytest.param([stage(19, 20)], None, id="measured"),
    ],
)
def test_the_reason_why_nothing_was_measured(stages: Sequence[StageView], missing: Missing | None) -> None:
    assert judge(stages, [TTFT]).missing is missing


@pytest.mark.parametrize(
    ("stages", "status", "confirmed"),
    [
        pytest.param([certain(0.99, 1000)], Status.MET, True, id="the interval lies above 95 %"),
        pytest.param([certain(0.96, 100)], Status.MET, False, id="it reaches below"),
        pytest.param([certain(0.5, 100)], Status.MISSED, True, id="it lies below 95 %"),
        pytest.param([certain(0.94, 100)], Status.MISSED, False, id="it reaches above"),
        pytest.param([certain(0.97, 250)] * 2, Status.MET, True, id="effective requests of two runs add up"),
        pytest.param([certain(0.99, 1000), stage(0, 0)], Status.MET, False, id="a run hung: met is not confirmed"),
        pytest.param([certain(0.5, 1000), stage(0, 0)], Status.MISSED, True, id="a run hung: missed is"),
    ],
)
def test_an_interval_on_the_side_of_the_status_confirms_it(
    stages: Sequence[StageView], status: Status, confirmed: bool
) -> None:
    verdict = judge(stages, [TTFT])
    assert (verdict.status, verdict.confirmed) == (status, confirmed)


@pytest.mark.parametrize(
    ("goods", "agreeing", "confirmed"),
    [
        pytest.param((20, 20, 20, 20), 4, False, id="four runs"),
        pytest.param((20, 20, 20, 20, 19), 5, True, id="five runs that all meet it"),
        pytest.param((20, 20, 20, 20, 20, 18), 5, False, id="one of six does not"),
        pytest.param((10, 10, 10, 10, 10), 5, True, id="five runs that all miss it"),
    ],
)
def test_five_runs_that_agree_confirm_a_status(goods: Sequence[int], agreeing: int, confirmed: bool) -> None:
    verdict = verdict_of(*(stage(good, 20) for good in goods))
    assert (verdict.agreeing, verdict.confirmed, verdict.by_runs) == (agreeing, confirmed, confirmed)


def test_a_run_without_requests_agrees_with_no_status() -> None:
    verdict = verdict_of(*(stage(20, 20) for _ in range(5)), stage(0, 0))
    assert (verdict.status, verdict.runs, verdict.agreeing, verdict.confirmed) == (Status.MET, 6, 5, False)


def test_of_several_objectives_one_that_is_missed_decides() -> None:
    met, missed = judged(TTFT, 0.99, 1000), judged(TPOT, 0.5, 1000)
    verdict = judge([view(8, {}, outcomes={"ok": 1000}, judgements=(met, missed))], [TTFT, TPOT])
    assert (verdict.status, verdict.confirmed) == (Status.MISSED, True)
    assert [objective.status for objective in verdict.objectives] == [Status.MET, Status.MISSED]
    unclear = judged(TPOT, 0.96, 100)
    verdict = judge([view(8, {}, outcomes={"ok": 1000}, judgements=(met, unclear))], [TTFT, TPOT])
    assert (verdict.status, verdict.confirmed) == (Status.MET, False)


@pytest.mark.parametrize(
    ("judgements", "status"),
    [
        pytest.param([(judged(TTFT, share, 100),) for share in (0.5, 0.5, 1.0)], Status.MISSED, id="all repeats"),
        pytest.param([(judged(TTFT, 1.0, 100),)] * 2, Status.MET, id="met in each"),
        pytest.param([(Judgement.not_measured(TTFT),)], Status.NOT_MEASURED, id="no request in any"),
        pytest.param([()], None, id="without an SLO of its own"),
    ],
)
def test_a_class_of_requests_is_judged_over_all_repeats(
    judgements: Sequence[tuple[Judgement, ...]], status: Status | None
) -> None:
    assert status_of_class([ClassView("chat", 100, 0, {}, own) for own in judgements]) is status
