"""A capacity meeting, acted out: two servers of known laws, an SLO of two objectives, a peak and a price. Every number
of the plan is checked against the laws."""

import math
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from enginebench.analysis.answer import ReplicasAnswer
from enginebench.analysis.data.run_data import load_run
from enginebench.analysis.document import Document, Number, Table
from enginebench.analysis.frame import frame_of
from enginebench.analysis.plan.accuracy import MAX_ERROR
from enginebench.analysis.plan.replicas import Plan, plans_of
from enginebench.analysis.plan.report import plan_document
from enginebench.analysis.settings import PlanSettings
from enginebench.analysis.summary.run_summary import summarise
from enginebench.analysis.write.sentence import sentence
from enginebench.records.load import Rate, Users
from enginebench.records.slo import parse_objectives
from tests.support.present import present
from validation.plan.batching_server import Asked, BatchingServer, rates, serve, users, write_run

TTFT_LIMIT, TPOT_LIMIT = 0.6, 0.06
SLO = f"ttft_p95={TTFT_LIMIT},tpot_p95={TPOT_LIMIT}"
ASKED = Asked(prompt=(32, 32), output=(48, 48))
PRICE, HOURS = 1.8, 730


@dataclass(frozen=True)
class Law:
    """`sustained` is the most users of one replica within the SLO."""

    server: BatchingServer
    loads: tuple[int, ...]
    sustained: int


def law(slots: int, base: float, per_running: float, prefill: float) -> BatchingServer:
    return BatchingServer(base, per_running, per_token=0.0, per_prompt=prefill, slots=slots, jitter=0.05)


A = Law(law(10, 0.015, 0.0015, 0.030), (4, 8, 10, 12, 24), 10)
B = Law(law(24, 0.020, 0.0011, 0.025), (4, 8, 10, 12, 24, 28), 25)
SLOW = Law(law(16, 0.030, 0.0040, 0.010), (2, 4, 6, 7, 8, 10), 7)  # TPOT is missed before the slots are taken


@dataclass(frozen=True)
class Meeting:
    plans: dict[str, Plan]
    document: Document


def meet(folder: Path, servers: dict[str, Law], peak: int, seconds: float = 16.0) -> Meeting:
    for name, one_law in servers.items():
        write_run(folder / name, one_law.server, users(*one_law.loads), ASKED, window=seconds, warm_up=4.0, label=name)
    objectives = parse_objectives([SLO])
    frame = frame_of([summarise(load_run(folder / name), objectives) for name in servers])
    settings = PlanSettings(peak=Users(peak), slo=objectives, price=(("", PRICE),), peak_seconds=30.0)
    plans = plans_of(frame, settings)
    return Meeting({plan.name: plan for plan in plans}, plan_document(frame, settings, plans))


@pytest.fixture(scope="module")
def meeting(tmp_path_factory: pytest.TempPathFactory) -> Meeting:
    return meet(tmp_path_factory.mktemp("meeting"), {"a": A, "b": B}, 120)


def sustains(server: BatchingServer, count: int) -> bool:
    """By the law, token by token, over two minutes."""
    rng = Random(7)
    due = [(rng.uniform(0, 5), user) for user in range(count)]
    requests = [each for each in serve(server, due, ASKED, rng, 150.0) if 30 <= each.sched < 150]
    first = sum(each.stamps[0] - each.sched <= TTFT_LIMIT for each in requests)
    later = sum((each.stamps[-1] - each.stamps[0]) / (each.output - 1) <= TPOT_LIMIT for each in requests)
    return min(first, later) >= 0.95 * len(requests)


@pytest.mark.parametrize("known", [A, B, SLOW], ids=["a", "b", "slow"])
def test_the_truth_is_that_of_the_law(known: Law) -> None:
    assert [sustains(known.server, known.sustained + more) for more in (0, 2)] == [True, False]


def test_the_director_buys_the_right_server(meeting: Meeting) -> None:
    answer = meeting.document.answer
    assert isinstance(answer, ReplicasAnswer)
    assert [(each.name, each.count, each.simulated) for each in answer.candidates] == [("b", 5, 5), ("a", 12, 12)]
    assert [each.month for each in answer.candidates] == pytest.approx([6570, 15768])
    assert sentence(answer).replace(" (not confirmed)", "").replace(", which is not confirmed", "") == (
        "Plan 5 replicas of b for 120 users, $6,570 a month; a needs 12, $15,768."
    )
    assert meeting.document.exit_code == 0


@pytest.mark.parametrize(("name", "known", "measured", "beyond"), [("a", A, 10, 12), ("b", B, 24, 28)])
def test_measured_and_simulated_capacity_are_those_of_the_law(
    meeting: Meeting, name: str, known: Law, measured: int, beyond: int
) -> None:
    plan = meeting.plans[name]
    capacity, simulation = plan.replicas.capacity, plan.simulation
    assert capacity is not None
    assert (capacity.load, capacity.beyond) == (measured, beyond)
    assert simulation is not None
    assert present(simulation.replicas).capacity == known.sustained
    model, cost = present(simulation.model), present(simulation.model).fit.cost
    assert model.slots == known.server.slots
    assert cost.base == pytest.approx(known.server.base, rel=0.03)
    assert cost.per_running == pytest.approx(known.server.per_running, rel=0.03)
    assert cost.per_prompt + 32 * cost.per_token == pytest.approx(known.server.per_prompt, rel=0.05)


def table(document: Document, key: str) -> Table:
    blocks = [block for section in document.sections for block in section.blocks]
    return next(block for block in blocks if isinstance(block, Table) and block.key == key)


def test_there_is_one_hold_out_error(meeting: Meeting) -> None:
    """The largest is that of the table, and no load is missing from it."""
    rows = table(meeting.document, "errors").rows
    assert len(rows) == len(A.loads) + len(B.loads)
    shown = [
        abs(cell.estimate.value - 1) for row in rows for cell in row if isinstance(cell, Number) and cell.estimate.value
    ]
    held = [each for plan in meeting.plans.values() if plan.simulation for each in plan.simulation.held_out]
    assert max(shown) == pytest.approx(max(each.largest_error for each in held))
    assert max(shown) < MAX_ERROR


def test_every_number_of_the_plan_is_in_its_frame(meeting: Meeting) -> None:
    rows = meeting.document.frame.filter(metric="replicas").sort("engine", "statistic")
    assert rows["engine"].to_list() == ["a", "a", "b", "b"]
    assert rows["statistic"].to_list() == ["measured", "simulated"] * 2
    assert rows["value"].to_list() == [12, 12, 5, 5]
    months = meeting.document.frame.filter(metric="cost", statistic="a month").sort("engine")["value"].to_list()
    assert months == pytest.approx([12 * PRICE * HOURS, 5 * PRICE * HOURS])
    bill = table(meeting.document, "bill")
    assert [number(row[4]) for row in bill.rows] == pytest.approx([6570, 15768])


def number(cell: object) -> float | None:
    assert isinstance(cell, Number)
    return cell.estimate.value


def test_other_laws_and_peaks(tmp_path: Path) -> None:
    peak = 30
    found = meet(tmp_path, {"slow": SLOW, "a": A}, peak)
    for name, sustained in (("slow", SLOW.sustained), ("a", A.sustained)):
        replicas = found.plans[name].replicas
        assert replicas.count == math.ceil(peak / sustained)
        assert replicas.count - 1 <= present(replicas.simulated) <= replicas.count, (
            "one user more may go on some of them"
        )
    assert isinstance(found.document.answer, ReplicasAnswer)
    assert found.document.answer.candidates[0].name == "a"


def test_a_peak_of_arrivals(tmp_path: Path) -> None:
    """By the law, token by token, a replica of B sustains 6 req/s and not 9: it takes two for 10 req/s."""
    write_run(tmp_path / "b", B.server, rates(3, 6, 9), ASKED, window=60.0, warm_up=8.0, label="b")
    objectives = parse_objectives([SLO])
    settings = PlanSettings(peak=Rate(10.0), slo=objectives, price=(("", PRICE),), peak_seconds=60.0)
    (plan,) = plans_of(frame_of([summarise(load_run(tmp_path / "b"), objectives)]), settings)
    assert (present(plan.replicas.capacity).load, present(plan.replicas.capacity).unit) == (6.0, "req/s")
    assert (plan.replicas.count, plan.replicas.simulated) == (2, 2)
    assert plan.replicas.month == pytest.approx(2 * PRICE * HOURS)
