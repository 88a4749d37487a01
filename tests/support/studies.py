"""Studies to report on: of given numbers without records, and a folder with the records of simulated engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from enginebench.analysis.plan.settings import PlanSettings
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.slo import parse_objectives
from enginebench.records.view import Level, StageView
from enginebench.studies.source import PartRuns, StudySource
from enginebench.studies.study.cells import Cell, cells_of
from enginebench.studies.study.folder import (
    CELLS,
    RUNS,
    SITTINGS,
    CellRecord,
    Sitting,
    StudyFacts,
    append_line,
    write_facts,
)
from enginebench.studies.study.grid import Grid, NotMeasured, Price, StudyEngine, StudyModel, StudyPart
from tests.support.analysis.compared import judged, run, view
from tests.support.analysis.synthetic import Engine, simulate

BASELINE = "pytorch-baseline"
REPEATS = 3
NOISE = (-0.01, 0.0, 0.012)  # of the repeats, as shares
(SLO,) = parse_objectives(["ttft_p95=0.5"])
LANGUAGES = {"candle": "rust", "burn": "rust"}
MIB = 1 << 20


def stage(
    load: int, tokens: float, ttft: float = 0.1, tpot: float = 0.02, memory: float = 1000, gpu: float | None = None
) -> StageView:
    """`memory` in MiB; the objective is met by all requests where TTFT is within it, and by none beyond."""
    gauges = {"engine_memory_bytes": Level(memory * MIB, memory * MIB)}
    gauges |= {} if gpu is None else {"gpu_utilisation": Level(gpu, gpu)}
    numbers = {"throughput": tokens, "ttft p50": ttft, "ttft p95": ttft, "ttft p99": ttft, "tpot p50": tpot}
    numbers |= {"tpot p95": tpot, "tpot p99": tpot, "e2e p50": ttft + 16 * tpot, "output_tokens": 16.0}
    numbers |= {"user_throughput": 1 / tpot, "achieved_rate": tokens / 16}
    made = view(load, numbers, judgements=(judged(SLO, 1.0 if ttft <= SLO.limit else 0.2, 400),), gauges=gauges)
    spread = {name: replace(of, deviation=0.05 * (of.mean or 0)) for name, of in made.metrics.items()}
    return replace(made, metrics=spread)


def runs(label: str, stages: Sequence[StageView], noise: Sequence[float] = NOISE, **changes: Any) -> list[RunSummary]:
    """A run for each of the noises, by which its throughput is apart from that of `stages`."""
    engine = {"name": label, "dtype": "float32", "device": "cpu", "language": LANGUAGES.get(label, "python")}
    return [
        run(label, [_apart(each, share) for each in stages], index, engine=engine, objectives=(SLO,), **changes)
        for index, share in enumerate(noise)
    ]


def _apart(of: StageView, share: float) -> StageView:
    throughput = of.quantities["throughput"]
    return replace(of, quantities={**of.quantities, "throughput": throughput.scaled(1 + share)})


def over_users(
    label: str, rates: Mapping[int, float], noise: Sequence[float] = NOISE, **of_stage: Any
) -> list[RunSummary]:
    """Users to output tokens/s; TTFT misses the objective from 100 users on."""
    stages = [stage(load, rate, **{"ttft": 0.9 if load >= 100 else 0.1} | of_stage) for load, rate in rates.items()]
    return runs(label, stages, noise)


SLOW, QUICK = {1: 40.0, 10: 200.0, 100: 210.0}, {1: 130.0, 10: 1250.0, 100: 1300.0}


def source(*parts: PartRuns, missing: Sequence[NotMeasured] = (), **changes: Any) -> StudySource:
    made = StudySource(
        name="brief",
        title="Which engine, by how much, at what cost",
        question="",
        baseline=BASELINE,
        plan=PlanSettings(slo=(SLO,), price=(("", 0.1),)),
        parts=parts,
        benches=(),
        missing=tuple(missing),
    )
    return replace(made, **changes)


def users_part(*engines: Sequence[RunSummary], **changes: Any) -> PartRuns:
    made = PartRuns("users", "1 to 100 users", "smollm2-135m", tuple(run for engine in engines for run in engine))
    return replace(made, **changes)


def whole() -> StudySource:
    """Candle serves 3.25 times the tokens of the baseline to one user, transformers about as many."""
    return source(
        users_part(
            over_users(BASELINE, SLOW),
            over_users("transformers", {load: 1.01 * rate for load, rate in SLOW.items()}, NOISE[::-1]),
            over_users("candle", QUICK, memory=900),
        )
    )


FOLDER_ENGINES = {  # label → its slots, prefill and time per token
    BASELINE: Engine(BASELINE, slots=1, prefill=0.06, tpot=0.016),
    "candle": Engine("candle", slots=8, prefill=0.03, tpot=0.006),
    "vllm": Engine("vllm", slots=16, prefill=0.025, tpot=0.008),
    "vllm-own-server": Engine("vllm-own-server", slots=16, prefill=0.024, tpot=0.0078),
}
SLO_TEXTS = ("ttft_p95=0.3", "tpot_p95=0.05")
GRID = Grid(
    title="Which engine, by how much, at what cost",
    question="Three engines over users and prompt lengths.",
    baseline=BASELINE,
    models=(StudyModel("smollm2-135m", "smollm2-135m"), StudyModel("random:llama-3.2-1b", "llama-3.2-1b")),
    engines=(
        StudyEngine(BASELINE, BASELINE),
        StudyEngine("candle", "candle"),
        StudyEngine("vllm", "vllm"),
        StudyEngine("vllm-own-server", "vllm", own_server=True),
    ),
    parts=(
        StudyPart("users", "load", "concurrent", "1 to 16 users"),
        StudyPart("lengths", "load", "long_context", "Long prompts, one user", engines=(BASELINE, "candle", "vllm")),
    ),
    slo=SLO_TEXTS,
    price=Price(0.1, "a list price, 2026-11-20"),
    not_measured=(NotMeasured("GPU engines", "this machine has no GPU"),),
)
LENGTHS = (1000, 4000, 8000)
BROKEN = "the server ended while it loaded (exit code 1)."
NO_ROOM = "it needs 6.2 GiB and 4.1 GiB are free."


def write_study(folder: Path, grid: Grid = GRID, loads: tuple[int, ...] = (1, 4, 16), seconds: float = 8.0) -> Path:
    """A study of the first model; every cell of the second one is skipped, and one failed."""
    folder.mkdir(parents=True)
    host = {"cpu": "Test CPU", "cores": 2, "memory": 8 << 30, "os": "Linux"}
    command = ("enginebench", "study", "brief")
    facts = StudyFacts(
        name="brief",
        variants=(),
        grid=grid,
        command=command,
        commit="0" * 40,
        started_at="2026-11-21T10:00:00+00:00",
        host=host,
    )
    write_facts(folder, facts)
    sitting = Sitting(
        started_at=facts.started_at, command=command, commit=facts.commit, host=host, versions={"locust": "2.47"}
    )
    append_line(folder / SITTINGS, sitting)
    for cell in cells_of(grid):
        append_line(folder / CELLS, _cell(folder, cell, loads, seconds, grid.seed))
    return folder


def _cell(folder: Path, cell: Cell, loads: tuple[int, ...], seconds: float, seed: int) -> CellRecord:
    ended = partial(CellRecord, cell=cell.id, started_at="2026-11-21T10:00:00+00:00", seconds=seconds * len(loads))
    if cell.model != "smollm2-135m":
        return ended(outcome="skipped", reason=NO_ROOM)
    if (cell.part, cell.engine) == ("lengths", "vllm"):
        return ended(outcome="failed", reason=BROKEN)
    path = f"{RUNS}/{cell.id}"
    workload = {"prompt_set": cell.prompt_set(seed), "temperature": 0.0}
    place: dict[str, Any] = {"repeat": cell.repeat, "run_id": cell.id, "workload": workload}
    engine, names = FOLDER_ENGINES[cell.engine], tuple[str, ...]()
    if cell.part == "lengths":
        loads, names = (1, 1, 1), tuple(f"{length} prompt tokens" for length in LENGTHS)
        place |= {"scenario": "long_context"}
    simulate(folder / path, engine, loads, seconds, cell.repeat, names, **place)
    return ended(outcome="done", path=path)
