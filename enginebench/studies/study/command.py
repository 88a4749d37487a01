"""The command `study`: a declared grid of load tests and benches, completed in one or more sittings."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enginebench.settings.flags import Budget
from enginebench.settings.schema import UserMistake
from enginebench.studies.study.grid import Chosen
from loadtests.harness.settings.run_settings import runs_here

if TYPE_CHECKING:
    from loadtests.harness.command.command_terminal import Terminal

RUNS = runs_here()
STATUS, REPORT = "status", "report"
REPORTING = 20.0  # seconds of a budget that are reserved for the report and the archive
SHORT = 30 * 60.0  # seconds: default budget of a short form

NAME = typer.Argument(
    metavar="[status|report] NAME|FILE|FOLDER",
    help="An included study, a grid's file (.toml), a study's folder or its archive. status: show its progress. "
    "report: rebuild its report.",
    show_default=False,
)
QUICK = typer.Option("--quick", help="The grid's short form, in at most half an hour; --budget sets another time.")
ARCHIVE = typer.Option(metavar="FILE", help="Pack the study into this file at the end: .tar.gz, .tar.xz or .tar.")
FOLDER = typer.Option(metavar="FOLDER", help="Folder of the study. Default: runs/NAME with the chosen options.")
MODEL = typer.Option(
    metavar="LABEL", help="Measure only with this model of the grid, which may be optional; may be repeated."
)
ENGINE = typer.Option(metavar="LABEL", help="Measure only this engine of the grid; may be repeated.")
PART = typer.Option(metavar="LABEL", help="Measure only this part of the grid; may be repeated.")
REPEAT = typer.Option(
    metavar="N",
    min=1,
    help="Repeats instead of the grid's; more repeats narrow the intervals, even of a finished study.",
)
ANY_COMMIT = typer.Option("--any-commit", help="Continue with a different commit of enginebench.")


def study(
    name: Annotated[list[str] | None, NAME] = None,
    quick: Annotated[bool, QUICK] = False,
    budget: Budget = None,
    archive: Annotated[Path | None, ARCHIVE] = None,
    folder: Annotated[Path | None, FOLDER] = None,
    model: Annotated[list[str] | None, MODEL] = None,
    engine: Annotated[list[str] | None, ENGINE] = None,
    part: Annotated[list[str] | None, PART] = None,
    repeat: Annotated[int | None, REPEAT] = None,
    any_commit: Annotated[bool, ANY_COMMIT] = False,
) -> None:
    """Measure a declared grid of engines, models and loads, and write one report.

    Repeats are interleaved. An interruption, even a power cut, costs only the cell that was running: the same command
    resumes, and retries once what was skipped or has failed. Without a NAME, the studies are listed.

    Exit code: 0 every cell that could be tried is done, or the budget is used up, 2 a usage error, a failed cell, or
    Ctrl-C.

    Examples:

      enginebench study baseline --quick

      enginebench study baseline --budget 8m --archive baseline.tar.gz

      enginebench study status
    """
    from loadtests.harness.command.command_terminal import Terminal

    words = name or []
    measuring = {
        "--quick": quick,
        "--budget": budget,
        "--archive": archive,
        "--model": model,
        "--engine": engine,
        "--part": part,
        "--repeat": repeat,
        "--any-commit": any_commit,
    }
    typed = [flag for flag, value in measuring.items() if value]
    if typed and (not words or words[0] in {STATUS, REPORT}):
        raise UserMistake(f"{typed[0]} is for measuring: `enginebench study NAME {typed[0]} …`.")
    if not words:
        return _list()
    if words[0] == STATUS:
        return _status(words[1:], folder)
    terminal = Terminal()
    if words[0] == REPORT:
        return _report_of(_one(words[1:]), folder, terminal)
    from enginebench.studies.study.archive import check_archive, check_replaces, pack
    from enginebench.studies.study.folder import load_study, set_repeats
    from enginebench.studies.study.runner import only_here
    from enginebench.studies.study.sitting import check_commit, measure, open_study
    from enginebench.studies.study.terminal import summary
    from loadtests.harness.command.command_terminal import sigterm_is_ctrl_c

    began = time.monotonic()
    if quick and budget is None:
        budget = SHORT
    if archive is not None:
        check_archive(archive)
    chosen = Chosen(tuple(model or ()), tuple(engine or ()), tuple(part or ()))
    place = open_study(_one(words), quick, folder, chosen, terminal)
    stopped = False
    with only_here(place), sigterm_is_ctrl_c():
        if archive is not None:
            check_replaces(archive, place)
        if not any_commit:
            check_commit(place)
        if repeat is not None:
            set_repeats(place, repeat)
        try:
            measure(place, math.inf if budget is None else began + budget - REPORTING, terminal)
        except KeyboardInterrupt:
            stopped = True
            terminal.say("stopped: what was measured is kept")
        after = load_study(place)
        terminal.say(summary(after))
        try:
            _report(place, terminal)
        except UserMistake as mistake:
            terminal.say(str(mistake), style="red")
        finally:  # even if the report failed
            if archive is not None:
                pack(place, archive)
                terminal.say(
                    f"Archive: {archive}; `enginebench study {shlex.quote(archive.name)}` goes on with it elsewhere."
                )
    if after.with_outcome("left"):
        terminal.say(f"Go on with: enginebench study {shlex.quote(str(place))}")
    if stopped or after.with_outcome("failed"):
        raise typer.Exit(2)
    return None


def _one(words: Sequence[str]) -> str:
    if len(words) != 1:
        raise UserMistake(f"name one study, not {len(words)}: its name, a grid's file, a folder or an archive.")
    return words[0]


def _report_of(name: str, folder: Path | None, terminal: Terminal) -> None:
    """Report on a study's folder, or on an archive after unpacking it."""
    from enginebench.studies.study.archive import is_archive
    from enginebench.studies.study.sitting import unpacked

    if is_archive(name):
        return _report(unpacked(name, folder), terminal)
    if folder is not None:
        raise UserMistake("--folder is where an archive is unpacked: name the study's folder alone.")
    return _report(_place(name), terminal)


def _place(word: str) -> Path:
    """Return the study's folder, by its path or its name among the runs."""
    from enginebench.studies.study.folder import STUDY

    return Path(word) if (Path(word) / STUDY).is_file() else RUNS / word


def _report(folder: Path, terminal: Terminal) -> None:
    """Rebuild the report's files from the study's folder."""
    if find_spec("polars") is None:  # missing from `make bundle`
        return terminal.say(f"The report: `enginebench study report {folder}` where all packages are installed.")
    from enginebench.records.plain_text import plain
    from enginebench.studies.report import write_report

    _, paths = write_report(folder, terminal.say)
    for path in paths:
        print(plain(str(path)))
    return None


def _list() -> None:
    from enginebench.studies.study.grid import cells_of
    from enginebench.studies.study.grid_file import find_grid, grid_names, read_grid
    from enginebench.studies.study.sitting import variants

    for name in grid_names():
        grid, _ = read_grid(find_grid(name), variants(False))
        print(f"{name:10} {grid.title} ({len(cells_of(grid))} cells here)")
        print(f"{'':10} {grid.question}")
    print("\nenginebench study NAME runs one; --quick makes it short.")


def _status(words: Sequence[str], folder: Path | None) -> None:
    from enginebench.studies.study.folder import STUDY, load_study
    from enginebench.studies.study.terminal import show

    places = list(map(_place, words))
    places += [folder] if folder is not None else []
    places = places or sorted(path.parent for path in RUNS.glob(f"*/{STUDY}"))
    if not places:
        raise UserMistake(f"there is no study in {RUNS}: start one with `enginebench study baseline --quick`.")
    for study in [load_study(place) for place in places]:
        show(study)
