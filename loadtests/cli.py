"""The commands of the load tests."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def about() -> None:
    """Load tests."""


@app.command()
def calibrate(
    seconds: Annotated[float, typer.Option(min=1, help="How long each load lasts once all users are there.")] = 6.0,
    processes: Annotated[int, typer.Option(min=1, help="Client processes that share each load.")] = 1,
    loads: Annotated[
        str, typer.Option(help="Users x tokens per second for each, as in 100x50,400x50; else a grid of seven loads.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the table.")] = False,
) -> None:
    """Measure how true this machine's client is, against a scripted server of known truth.

    Takes about a minute. `run` looks at the result and says when a test goes beyond it.

    Example:  enginebench calibrate --loads 100x50,400x50
    """
    from rich.console import Console

    from loadtests.harness.calibrate import GRID, CalibrationFailed, calibrate, parse_grid
    from loadtests.harness.calibration import Cell, path_here, save
    from loadtests.harness.calibration_table import WIDTH, sentence, table

    log = Console(stderr=True)

    def progress(cell: Cell) -> None:
        load = f"{cell.users} users × {cell.rate:g} tokens/s"
        log.print(f"{load}: TTFT p99 error {cell.ttft.p99 * 1e3:.3f} ms, {cell.cpu_per_token * 1e6:.1f} µs CPU a token")

    try:
        grid = parse_grid(loads) if loads else GRID
        calibration = calibrate(grid, seconds, processes, progress)
    except (CalibrationFailed, ValueError) as error:
        log.print(str(error), style="red", highlight=False)
        raise typer.Exit(2) from None
    path = path_here(processes)
    save(calibration, path)
    if as_json:
        sys.stdout.write(json.dumps(asdict(calibration)) + "\n")
    else:
        console = Console(width=WIDTH)
        console.print(table(calibration))
        console.print(sentence(calibration))
    log.print(f"Kept in {path}", highlight=False)
