"""Capacity: the highest load that is met with no lower one missed, the lowest that is missed, and certificates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from enginebench.analysis.engine_runs import EngineRuns
from enginebench.analysis.frame import frame_of
from enginebench.analysis.verdict.capacity import Capacity, capacities_of, capacity_of
from enginebench.analysis.verdict.slo_verdict import Status
from enginebench.records.search import SearchRecord
from enginebench.records.slo import parse_objectives
from enginebench.records.view import Judgement, StageView
from tests.support.analysis.compared import judged_view, run, view
from tests.support.present import present

SLO = parse_objectives(["ttft_p95=0.5"])
MET, MISSED, PROBABLY, HARDLY = (1.0, 2000.0), (0.5, 2000.0), (0.96, 100.0), (0.94, 100.0)
"""The share within and of how many effective requests: the last two are not confirmed."""
Loads = Mapping[float, tuple[float, float]]


def engine(*loads: Loads, label: str = "vllm", **changes: Any) -> EngineRuns:
    """A run for each of `loads`."""
    runs = [
        run(label, [judged_view(load, SLO[0], *share) for load, share in shares.items()], k, objectives=SLO, **changes)
        for k, shares in enumerate(loads)
    ]
    return EngineRuns(label, tuple(runs))


def capacity(*loads: Loads, **changes: Any) -> Capacity:
    return present(capacity_of(engine(*loads, **changes), SLO))


@pytest.mark.parametrize(
    ("loads", "load", "beyond", "confirmed"),
    [
        pytest.param({1: MET, 8: MET, 16: MISSED}, 8, 16, True, id="between two loads"),
        pytest.param({1: MET, 8: MET}, 8, None, True, id="nothing higher was tested"),
        pytest.param({1: MISSED, 8: MISSED}, None, 1, True, id="missed at the lowest load"),
        pytest.param({1: MET, 8: PROBABLY, 16: MISSED}, 8, 16, False, id="met, not confirmed"),
        pytest.param({1: MET, 8: MET, 16: HARDLY}, 8, 16, False, id="missed, not confirmed"),
        pytest.param({1: PROBABLY, 8: MET, 16: MISSED}, 8, 16, True, id="a lower load is not confirmed"),
        pytest.param({1: MET, 4: MISSED, 8: MET}, 1, 4, True, id="a load above one that is missed does not count"),
        pytest.param({16: MISSED, 8: MET, 1: MET}, 8, 16, True, id="measured from the heaviest on"),
    ],
)
def test_capacity_is_the_highest_load_met_with_no_lower_one_missed(
    loads: Loads, load: float | None, beyond: float | None, confirmed: bool
) -> None:
    found = capacity(loads)
    assert (found.load, found.beyond, found.confirmed, found.certified) == (load, beyond, confirmed, False)
    assert found.unit == "users"


def unknown(load: float) -> StageView:
    return view(load, {}, judgements=(Judgement.not_measured(SLO[0]),))


@pytest.mark.parametrize(
    ("stages", "ends", "load"),
    [
        pytest.param([judged_view(8, SLO[0], *MET), unknown(16), unknown(32)], (8, None), 16, id="above"),
        pytest.param([unknown(2), unknown(4), judged_view(8, SLO[0], *MISSED)], (None, 8), 4, id="below"),
        pytest.param([unknown(2), judged_view(8, SLO[0], *MET)], (8, None), None, id="below one that is met"),
    ],
)
def test_the_nearest_load_whose_outcome_is_unknown(
    stages: Sequence[StageView], ends: tuple[float | None, ...], load: float | None
) -> None:
    found = present(capacity_of(EngineRuns("vllm", (run("vllm", stages, objectives=SLO),)), SLO))
    assert (found.load, found.beyond) == ends
    assert found.unknown == load


def test_a_confirmed_load_confirms_lighter_ones_as_met_and_heavier_ones_as_missed() -> None:
    verdicts = capacity({1: PROBABLY, 4: MET, 8: PROBABLY, 16: HARDLY, 24: MISSED, 32: HARDLY}).verdicts
    assert [verdict.load for verdict in verdicts if verdict.slo.confirmed] == [1, 4, 24, 32]


@pytest.mark.parametrize(
    ("loads", "bounds"),
    [
        pytest.param({1: MET, 8: MET, 16: MISSED}, (8, 16), id="both confirmed"),
        pytest.param({4: MET, 8: PROBABLY, 16: HARDLY, 32: MISSED}, (4, 32), id="the next loads that are"),
        pytest.param({8: PROBABLY, 16: HARDLY, 32: MET}, (8, 16), id="as measured if nothing is"),
        pytest.param({8: MET}, None, id="open-ended"),
    ],
)
def test_the_bounds_of_a_capacity_are_confirmed_if_any_load_is(
    loads: Loads, bounds: tuple[float, float] | None
) -> None:
    assert capacity(loads).bounds == bounds


def test_loads_are_judged_over_all_repeats() -> None:
    """By itself the second run misses the objective at 8 users."""
    found = capacity({8: (0.99, 300), 16: MISSED}, {8: (0.94, 100), 16: MISSED})
    verdict = present(found.at(8))
    assert (found.load, verdict.slo.status, verdict.slo.runs, verdict.slo.agreeing) == (8, Status.MET, 2, 1)


def test_there_is_no_capacity_without_objectives_or_with_stages_that_differ_in_more() -> None:
    measured = engine({1: MET, 8: MET})
    assert capacity_of(measured, ()) is None
    named = [replace(judged_view(load, SLO[0], *MET), label=f"prompt {load}", named=True) for load in (1, 8)]
    assert capacity_of(EngineRuns("vllm", (run("vllm", named, objectives=SLO),)), SLO) is None
    assert [found.engine for found in capacities_of([measured, engine({8: MET}, label="candle")])] == ["vllm", "candle"]


def search(met: float | None, missed: float | None, state: Any = "found", estimate: float | None = 10) -> SearchRecord:
    objectives = tuple(map(str, SLO))
    return SearchRecord("users", "users", objectives, 0.2, state, estimate, met, missed)


@pytest.mark.parametrize(
    ("searches", "load", "beyond", "confirmed", "certified"),
    [
        pytest.param([search(9, 12)], 9, 12, True, True, id="certified on both sides"),
        pytest.param([search(9, 12), search(8, 11)], 8, 12, True, True, id="the bracket that holds both"),
        pytest.param([search(9, None, "undecided")], 9, 16, False, False, id="one end is as measured"),
        pytest.param([search(None, 12, "undecided")], 8, 12, False, False, id="the other end is"),
        pytest.param([search(None, None, "undecided", None)], 8, 16, False, False, id="nothing is certified"),
        pytest.param([search(9, 12), search(None, 12, "undecided")], 8, 12, False, False, id="one of two searches"),
        pytest.param([search(None, 4, "undecided")], None, 4, True, False, id="what is measured contradicts it"),
    ],
)
def test_a_search_has_its_own_certificate(
    searches: Sequence[SearchRecord], load: float | None, beyond: float | None, confirmed: bool, certified: bool
) -> None:
    runs = [engine({8: MET, 16: MISSED}, search=each).runs[0] for each in searches]
    found = present(capacity_of(EngineRuns("vllm", tuple(runs)), SLO))
    assert (found.load, found.beyond, found.confirmed, found.certified) == (load, beyond, confirmed, certified)
    assert found.estimate == (None if searches[0].estimate is None else 10)


def test_probes_are_confirmed_by_the_certificate_alone() -> None:
    found = capacity({4: PROBABLY, 8: MET, 16: MISSED, 32: MISSED}, search=search(4, 32))
    assert [verdict.load for verdict in found.verdicts if verdict.slo.confirmed] == [4, 32]


def test_a_search_for_other_objectives_is_judged_by_its_stages() -> None:
    other = SearchRecord("users", "users", ("ttft_p99=1",), 0.2, "found", 10, 9, 12)
    assert capacity({8: MET, 16: MISSED}, search=other).load == 8


def test_probes_of_one_load_are_judged_together() -> None:
    stages = [
        replace(judged_view(8, SLO[0], *share), index=k, label=f"probe {k + 1}: 8 users", named=True)
        for k, share in enumerate(((0.99, 300), (0.94, 100)))
    ]
    runs = (run("vllm", stages, objectives=SLO, search=search(8, 12)),)
    found = present(capacity_of(EngineRuns("vllm", runs), SLO))
    assert [(verdict.load, verdict.slo.status, verdict.slo.runs) for verdict in found.verdicts] == [(8, Status.MET, 2)]
    frame = frame_of(runs)
    assert {frame.verdict("vllm", stage.label) for stage in stages} == {found.verdicts[0].slo}
