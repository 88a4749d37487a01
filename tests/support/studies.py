"""A study's folder with the records of simulated engines."""

from functools import partial
from pathlib import Path
from typing import Any

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
from enginebench.studies.study.grid import Cell, Grid, NotMeasured, Price, StudyEngine, StudyModel, StudyPart, cells_of
from tests.support.analysis.synthetic import Engine, simulate

BASELINE = "pytorch-baseline"
FOLDER_ENGINES = {  # label → its slots, prefill and time per token
    BASELINE: Engine(BASELINE, slots=1, prefill=0.06, tpot=0.016),
    "candle": Engine("candle", slots=8, prefill=0.03, tpot=0.006),
    "vllm": Engine("vllm", slots=16, prefill=0.025, tpot=0.008),
    "vllm-own-server": Engine("vllm-own-server", slots=16, prefill=0.024, tpot=0.0078),
}
SLO_TEXTS = ("ttft_p95=0.3", "tpot_p95=0.05")
GRID = Grid(
    title="The engines compared",
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
DAY = "2026-11-21T10:00:00+00:00"
LENGTHS = (1000, 4000, 8000)
BROKEN = "the server ended while it loaded (exit code 1)."
NO_ROOM = "it needs 6.2 GiB and 4.1 GiB are free."


def write_study(folder: Path, grid: Grid = GRID, loads: tuple[int, ...] = (1, 4, 16), seconds: float = 8.0) -> Path:
    """Write a study of the first model; every cell of the second one is skipped, and one cell failed."""
    folder.mkdir(parents=True)
    host = {"cpu": "Test CPU", "cores": 2, "memory": 8 << 30, "os": "Linux"}
    command = ("enginebench", "study", "baseline")
    begun: dict[str, Any] = {"command": command, "commit": "0" * 40, "started_at": DAY, "host": host}
    write_facts(folder, StudyFacts(name="baseline", variants=(), grid=grid, **begun))
    append_line(folder / SITTINGS, Sitting(versions={"locust": "2.47"}, **begun))
    for cell in cells_of(grid):
        append_line(folder / CELLS, _cell(folder, cell, loads, seconds, grid.seed))
    return folder


def _cell(folder: Path, cell: Cell, loads: tuple[int, ...], seconds: float, seed: int) -> CellRecord:
    ended = partial(CellRecord, cell=cell.id, started_at=DAY, seconds=seconds * len(loads))
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
