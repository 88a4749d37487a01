"""One sitting of a study: open or make its folder, name missing engines, measure the remaining cells."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from msgspec import structs

from enginebench.settings.console import CAUTION
from enginebench.settings.schema import UserMistake
from enginebench.studies.study.archive import is_archive, split_name, unpack
from enginebench.studies.study.folder import (
    SITTINGS,
    STUDY,
    Sitting,
    StudyFacts,
    append_line,
    holds_results,
    load_study,
    write_facts,
)
from enginebench.studies.study.grid import Chosen
from enginebench.studies.study.grid_file import find_grid, read_grid
from enginebench.studies.study.lacking import Lacking
from enginebench.studies.study.runner import Runner, jobs_of, only_here
from enginebench.studies.study.terminal import summary
from engines.machine.devices import amd_gpus, gpu_facts, visible_gpus
from loadtests.harness.command.command_terminal import Terminal
from loadtests.harness.run.host import commit_here, host_facts, versions
from loadtests.harness.run.options import command_of_run
from loadtests.harness.settings.run_settings import runs_here

RUNS = runs_here()
IMAGE = "ENGINEBENCH_IMAGE"  # variable with the digest of the container's image


def open_study(name: str, quick: bool, folder: Path | None, chosen: Chosen, terminal: Terminal) -> Path:
    """Return the study's folder; make it if it is new. Raises `UserMistake`."""
    if chosen.labels and (is_archive(name) or (Path(name) / STUDY).is_file()):
        raise UserMistake(
            f"{name} goes on with what was chosen: leave out --model, --engine and --part. To add to a study, name its "
            "grid and its --folder."
        )
    if is_archive(name):
        return unpacked(name, folder)
    if (Path(name) / STUDY).is_file():
        if quick and "quick" not in load_study(Path(name)).facts.variants:
            raise UserMistake(f"{name} is not in the short form: leave out --quick; --budget limits its time.")
        if folder is not None and folder.absolute() != Path(name).absolute():
            raise UserMistake(f"{name} is a study that goes on where it is: leave out --folder.")
        return Path(name).absolute()
    path = find_grid(name)
    place = (folder or RUNS / "-".join([path.stem, *(["quick"] if quick else []), *chosen.labels])).absolute()
    if (place / STUDY).is_file():
        _grow(place, path, quick, chosen, terminal)
        return place
    if holds_results(place):  # a study would move them away
        raise UserMistake(f"{place} holds runs that are not of this study: name another --folder.")
    grid, applied = read_grid(path, variants(quick), chosen)
    if quick and "quick" not in applied:
        raise UserMistake(f"{path} has no table [quick]: leave out --quick.")
    facts = StudyFacts(
        name=path.stem,
        variants=applied,
        chosen=chosen,
        grid=grid,
        command=command_of_run(),
        commit=commit_here(),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        host=host_facts(),
    )
    jobs_of(grid)  # its settings are checked before a folder is made
    place.mkdir(parents=True, exist_ok=True)
    write_facts(place, facts)
    if "cpu" in applied:
        terminal.say("There is no GPU: the grid's smaller form for CPUs is measured ([cpu] in its file).")
    return place


def unpacked(name: str, folder: Path | None) -> Path:
    """Unpack an archive, and return the study's folder. Raises `UserMistake`."""
    place = (folder or RUNS / split_name(Path(name))[0]).absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    unpack(Path(name), place)
    return place


def _grow(place: Path, path: Path, quick: bool, chosen: Chosen, terminal: Terminal) -> None:
    """Add the chosen rows to the study in `place`, in the study's form, although the machine may be another one by now.
    Raises `UserMistake` if the file's rows are no longer the study's, or lack a chosen label."""
    study = load_study(place)
    facts, grid = study.facts, study.grid
    before, _ = read_grid(path, facts.variants, facts.chosen)
    kept = {"repeats": grid.repeats, "not_measured": grid.not_measured}
    if quick != ("quick" in facts.variants) or structs.replace(before, **kept) != grid:
        raise UserMistake(
            f"{place} is a study of another grid than {path} is now: `enginebench study {place}` goes on with its "
            "own; for the new one name another --folder."
        )
    models = facts.chosen.models or tuple(model.label for model in grid.models)  # without the optional ones
    here = structs.replace(facts.chosen, models=models)
    wanted = here.with_more(chosen)
    added = [label for label in wanted.labels if label not in here.labels]
    if not added:
        return
    larger, _ = read_grid(path, facts.variants, wanted)
    larger = structs.replace(larger, repeats=grid.repeats)
    jobs_of(larger)  # its settings are checked before anything is changed
    with only_here(place):  # a process at work there has read the smaller grid
        write_facts(place, structs.replace(facts, grid=larger, chosen=wanted))
    terminal.say(f"Added to the study: {', '.join(added)}")


def variants(quick: bool) -> tuple[str, ...]:
    """Return the names of a grid's variants for this machine."""
    on_gpu = bool(visible_gpus() or amd_gpus())
    chosen = {"cpu": not on_gpu, "quick": quick, "gpu_quick": quick and on_gpu}
    return tuple(name for name, wanted in chosen.items() if wanted)


def check_commit(place: Path) -> None:
    """Raise `UserMistake` if done cells were measured with another commit."""
    study, commit = load_study(place), commit_here()
    before = {sitting.commit for sitting in study.sittings} - {commit, None}
    if before and commit is not None and study.with_outcome("done"):
        raise UserMistake(
            f"{place} was measured with the commit {min(filter(None, before))}, and this is {commit}: check that out, "
            "start again in another --folder, or mix them with --any-commit."
        )


def measure(place: Path, deadline: float, terminal: Terminal) -> None:
    """Name missing engines once, and run the remaining cells up to the instant `deadline` of the monotonic clock."""
    study = load_study(place)
    terminal.say(f"{study.grid.title}: {place}")
    terminal.say(summary(study))
    lacking = Lacking()
    for engine, reason in lacking.engines(study.grid).items():
        terminal.say(f"{engine} is skipped: {reason}", style=CAUTION)
    sitting = Sitting(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        command=command_of_run(),
        commit=commit_here(),
        host=host_facts(),
        versions=versions("enginebench", "locust", "torch", "transformers") | lacking.versions(study.grid),
        gpus=tuple(gpu_facts()),
        image=os.environ.get(IMAGE),
    )
    append_line(place / SITTINGS, sitting)
    Runner(study, lacking, terminal, deadline).run()
