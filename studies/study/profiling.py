"""`enginebench study --profile KIND`: each engine once more, after all cells, with a profiler.

What it saw lies in the folder of the engine's last run (`profile/`), of which nothing else changes.
"""

from __future__ import annotations

from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.profile import profile
from loadtests.harness.command.terminal import Terminal
from loadtests.harness.profiling.profilers import Profiler
from records.profile import read_profiles
from settings.schema import UserMistake
from studies.study.folder import StudyFolder
from studies.study.grid import Grid
from studies.study.lacking import Lacking
from studies.study.runner import jobs_of


def check_parts(grid: Grid) -> None:
    """Raises `UserMistake`."""
    if all(part.kind == "bench" for part in grid.parts):
        raise UserMistake("--profile needs a part under load, and this study has none: `enginebench bench --profile`.")


def profile_engines(study: StudyFolder, lacking: Lacking, chosen: Profiler, seconds: float, terminal: Terminal) -> bool:
    """Under the heaviest load of the engine's last run. Whether it could, with each engine that suits the profiler and
    has no such profile yet."""
    jobs, complete = jobs_of(study.grid), True
    for engine in study.grid.engines:
        cells = [state for state in study.with_outcome("done") if state.cell.engine == engine.label]
        runs = [(state.cell, study.result(state)) for state in cells if state.cell.part in jobs]
        cell, folder = runs[-1] if runs else (None, None)
        if engine.own_server or cell is None or folder is None:
            continue
        if any(found.profiler == chosen.name for found in read_profiles(folder)):
            continue
        if (unfit := lacking.unfit(engine, chosen)) is not None:
            terminal.say(f"{engine.label} is not profiled: {unfit}", style="yellow")
            continue
        model = study.grid.model(cell.model).name
        served = Contender(engine.label, engine=engine.engine, model=model, options=engine.option_texts)
        complete = profile(jobs[cell.part], served, folder, chosen, seconds, terminal) and complete
    return complete
