"""Documents built by hand: one server under load, two contenders, a burst and a gate."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import polars as pl

from enginebench.analysis.answer import Answer, BestAnswer, BurstAnswer, CapacityAnswer, Contender, GateAnswer
from enginebench.analysis.document import (
    Axis,
    Cell,
    Code,
    Column,
    Document,
    Figure,
    NextStep,
    Number,
    Point,
    Section,
    Series,
    Span,
    Table,
    Tone,
    Warning,
    Word,
)
from enginebench.analysis.frame import SCHEMA
from enginebench.analysis.tested import Hardware, Tested
from enginebench.analysis.verdict.capacity import Capacity, LoadVerdict
from enginebench.analysis.verdict.gate import Check
from enginebench.analysis.verdict.slo_verdict import SloVerdict, Status
from enginebench.records.metrics import BY_NAME, QUANTITY_BY_NAME, TTFT
from enginebench.records.metrics import Column as MetricColumn
from enginebench.records.slo import Objective, parse_objectives
from enginebench.records.view import Estimate

SLO = parse_objectives(["ttft_p95=0.6,tpot_p95=0.06"])
ONE_OBJECTIVE = parse_objectives(["ttft_p95=0.5"])
DATE = datetime(2026, 11, 28, 10, tzinfo=UTC)
TESTED = Tested(
    models=("mock",),
    engines=("mock",),
    scenario="concurrent",
    target="http://127.0.0.1:8300",
    prompt_tokens=32.0,
    output_tokens=48.0,
    unit="users",
    loads=(1.0, 4.0, 8.0, 16.0),
    seconds=(6.0, 20.0),
    repeats=(1, 1),
    interleaved=False,
    hardware=(Hardware("AMD EPYC", 2, 25e9, None),),
    dates=(DATE, DATE),
)


def verdict(within: int, n: int, met: bool = True, confirmed: bool = True) -> SloVerdict:
    status = Status.MET if met else Status.MISSED
    return SloVerdict(status, confirmed, within / n, n, 1, 1, ())


UNKNOWN = SloVerdict(Status.NOT_MEASURED, False, None, 0, 0, 0, ())


def capacity(
    loads: dict[float, SloVerdict],
    load: float | None,
    beyond: float | None,
    objectives: tuple[Objective, ...] = SLO,
    unit: str = "users",
    engine: str = "mock",
) -> Capacity:
    """Return a capacity, which is confirmed if the verdicts at its ends are."""
    verdicts = tuple(LoadVerdict((f"{at:g} {unit}",), at, slo) for at, slo in loads.items())
    ends = [slo.confirmed for at, slo in loads.items() if at in {load, beyond}]
    return Capacity(engine, unit, objectives, verdicts, load, beyond, bool(ends) and all(ends))


LADDER = {1.0: verdict(9, 9), 4.0: verdict(31, 31), 8.0: verdict(46, 46, confirmed=False), 16.0: verdict(3, 52, False)}


def document(answer: Answer, candidates: Table | None = None, figure: Figure | None = None, **more: Any) -> Document:
    usual: dict[str, Any] = {"tested": TESTED, "objectives": SLO, "frame": pl.DataFrame(schema=SCHEMA)}
    return Document(answer=answer, candidates=candidates, figure=figure, **usual | {"title": "Load test"} | more)


def seconds(value: float | None, low: float | None = None, high: float | None = None) -> Number:
    return Number(Estimate(value, low, high), "s")


def share(slo: SloVerdict) -> Number:
    return Number(Estimate(slo.share, n=slo.n), "share", "part", approximate=not slo.confirmed)


def quick() -> Document:
    """Return a document of one server: 8 users meet the SLO and 16 do not."""
    ttft, tpot, output = (0.048, 0.063, 0.0803, 1.5), (0.0165, 0.0212, 0.0271, 0.0302), (60.1, 183, 277, 279)
    rows: list[tuple[Cell, ...]] = [
        (Number(Estimate(at), "", "count"), slo, share(slo), seconds(a), seconds(b), Number(Estimate(c), "tokens/s"))
        for (at, slo), a, b, c in zip(LADDER.items(), ttft, tpot, output, strict=True)
    ]
    titles = [("users", ""), ("status", ""), ("within the SLO", ""), ("TTFT p95", ""), ("TPOT p95", "")]
    columns = tuple(Column(title, unit, rank) for rank, (title, unit) in enumerate([*titles, ("output", "tokens/s")]))
    points = tuple(
        Point(at, y, label=f"{at:g} users", status=slo.status, confirmed=slo.confirmed)
        for (at, slo), y in zip(LADDER.items(), ttft, strict=True)
    )
    return document(
        CapacityAnswer(capacity(LADDER, 8.0, 16.0), (0.0803, 0.0271), (1.5, 0.0302), QUANTITY_BY_NAME["ttft_queue"]),
        Table("candidates", "", columns, tuple(rows)),
        load_figure((Series("mock", points),)),
        warnings=(
            Warning("few_requests", "warn", "only 46 requests at 8 users", "measure longer", ("mock",), ("8 users",)),
        ),
        next=NextStep(
            "bracket",
            ("enginebench", "run", "capacity", "http://127.0.0.1:8300", "--slo", "ttft_p95=600ms,tpot_p95=60ms"),
            {"engine": "mock", "load": "8", "beyond": "16 users"},
        ),
        sections=(
            Section("repeat", "To repeat it", (Code(("enginebench quick http://127.0.0.1:8300",)),)),
            Section("how", "How it was measured", (Code(("uname -a",)),), True),
        ),
    )


def load_figure(series: tuple[Series, ...], limit: float | None = 0.6) -> Figure:
    users, ttft = Axis("load", "users"), Axis("TTFT p95", "s")
    return Figure("ttft", "TTFT p95 by load", "load", users, ttft, series, limit)


def contenders() -> Document:
    """Two servers: b sustains 24 users, and a sustains 10, which is not confirmed."""
    b = capacity({8.0: verdict(98, 98), 24.0: verdict(403, 403), 28.0: verdict(20, 400, False)}, 24.0, 28.0, engine="b")
    a_loads = {10.0: verdict(141, 143, confirmed=False), 12.0: verdict(30, 140, False), 24.0: verdict(0, 279, False)}
    a = capacity(a_loads, 10.0, 12.0, engine="a")
    tokens = Estimate(408, 405, 411, 3), Estimate(279, 278, 280, 3)
    ratio = Estimate(1.46, 1.45, 1.47, 3)
    rows: tuple[tuple[Cell, ...], ...] = (
        (Word("b"), b, share(b.verdicts[1].slo), Number(tokens[0], "tokens/s"),
         Number(ratio, style="ratio", significant=True, over="a"), seconds(0.21),
         Number(Estimate(5), style="count", simulated=6),
         Number(Estimate(6570), style="money")),
        (Word("a"), a, share(a.verdicts[0].slo), Number(tokens[1], "tokens/s"), None, seconds(2.97),
         Number(Estimate(12), style="count", approximate=True),
         Number(Estimate(15768), style="money", approximate=True)),
    )  # fmt: skip
    columns = (
        Column("engine", text=True), Column("users within the SLO"), Column("share at that load"),
        Column("tokens/s", "at 24 users"), Column("compared with the next row", rank=3),
        Column("TTFT p95", "at 24 users", 1), Column("replicas", "for 120 users"), Column("a month", rank=2),
    )  # fmt: skip
    series = tuple(
        Series(
            c.engine,
            tuple(
                Point(v.load, y, 0.9 * y, 1.1 * y, f"{v.load:g} users", v.slo.status, v.slo.confirmed)
                for v, y in zip(c.verdicts, ys, strict=True)
            ),
        )
        for c, ys in ((b, (0.1, 0.21, 0.9)), (a, (0.5, 0.8, 2.97)))
    )
    best = BestAnswer(
        Contender("b", b, tokens[0], b.verdicts[1].slo),
        Contender("a", a, tokens[1], a.verdicts[2].slo),
        stage="24 users",
        load=24.0,
        unit="users",
        ratio=ratio,
        significant=True,
        repeats=3,
        candidates=2,
    )
    tested = replace(
        TESTED, engines=("a", "b"), target=None, loads=(8.0, 10.0, 12.0, 24.0, 28.0), seconds=(16.0, 16.0),
        repeats=(3, 3), interleaved=True,
    )  # fmt: skip
    return document(best, Table("candidates", "", columns, rows, engines=0), load_figure(series), tested=tested)


def burst() -> Document:
    """Return a document of a burst that is not absorbed."""
    points = tuple(
        Point(float(t), 0.05 if t < 30 or t > 150 else 0.05 + 0.3 * min(t - 30, 150 - t)) for t in range(200)
    )
    figure = Figure(
        "flow",
        "TTFT of each request",
        "time",
        Axis("time", "s"),
        Axis("TTFT", "s"),
        (Series("mock", points),),
        0.6,
        spans=(Span(30.0, 60.0, "burst", Tone.CAUTION),),
        marks=(Point(151.0, None, label="SLO met again"),),
    )
    answer = BurstAnswer("mock", "", False, 30.1, 91.0, True, 0)
    tested = replace(TESTED, open_loop=True, unit="req/s", loads=(4.0, 12.0))
    return document(answer, None, figure, tested=tested, objectives=ONE_OBJECTIVE, exit_code=1)


def gate() -> Document:
    """Return a document of a gate in which one of three checks failed."""
    rows: list[tuple[Cell, ...]] = []
    for result, metric, change in (
        ("regression", "TTFT p95", Estimate(1.21, 1.15, 1.28, 5)),
        ("unclear", "TTFT p99", Estimate(1.3, 0.9, 1.7, 5)),
        ("ok", "TPOT p50", Estimate(0.98, 0.97, 0.99, 5)),
    ):
        cells = (Word(result), Word("fake"), Word("8 users"), Word(metric), seconds(0.1), seconds(0.121))
        rows.append((*cells, Number(change, style="change")))
    titles = ("result", "engine", "load", "metric", "baseline", "now", "change")
    columns = tuple(Column(title, text=k < 4) for k, title in enumerate(titles))
    change = Estimate(1.21, 1.15, 1.28, 5)
    ttft = MetricColumn(BY_NAME[TTFT], "p95")
    regression = Check("", "8 users", ttft, Estimate(0.1), Estimate(0.121), change)
    answer = GateAnswer(False, 0.1, (regression,), 12, 1)
    checks = Table("checks", "", columns, tuple(rows), engines=1)
    return document(answer, sections=(Section("checks", "Checks", (checks,)),), exit_code=1, title="Gate")
