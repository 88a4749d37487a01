"""`enginebench calibrate`: how accurate the load generator is on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from enginebench.analysis.commands.output import Output
from enginebench.settings.flags import AsJson, Processes


def calibrate(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter loads, in less than a minute.")] = False,
    processes: Processes = 1,
    loads: Annotated[
        str,
        typer.Option(
            help="Users x tokens per second for each, such as 100x50,400x50. Default: six loads, three of "
            "them also on a busy machine."
        ),
    ] = "",
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Measure how accurate this machine's load generator is, against a scripted server of known timing.

    Takes about three minutes, with --quick less than one. Reports use the result, and say when a test exceeded the
    calibrated load.

    Examples:

      enginebench calibrate --quick

      enginebench calibrate --loads 100x50,400x50
    """
    from enginebench.analysis.commands.output import check_formats, deliver
    from enginebench.settings.console import stderr
    from enginebench.studies.calibrate.report import document_of
    from loadtests.harness.calibration import calibrate as calibration
    from loadtests.harness.command.command_terminal import sigterm_is_ctrl_c
    from loadtests.harness.run.saved_calibration import Cell, keep, path_here

    check_formats(output or ())
    log = stderr()

    def progress(cell: Cell) -> None:
        load = f"{cell.users} users × {cell.rate:g} tokens/s, {cell.condition} machine"
        error = f"TTFT p99 error {cell.ttft.p99 * 1e3:.3f} ms, {cell.cpu_per_token * 1e6:.1f} µs of CPU per token"
        log.print(f"{load}: {error}", soft_wrap=not log.is_terminal)

    own = calibration.parse_grid(loads) if loads else None
    quiet, busy = (own, own) if own else calibration.QUICK_GRIDS if quick else (calibration.GRID, calibration.BUSY_GRID)
    seconds = calibration.QUICK_SECONDS if quick else calibration.SECONDS
    try:
        with sigterm_is_ctrl_c():
            measured = calibration.calibrate(quiet, busy, seconds, processes, progress)
    except KeyboardInterrupt:
        log.print("stopped; nothing was saved")
        raise typer.Exit(2) from None
    path = path_here(processes)
    try:
        outcome = f"Saved in {path}" if keep(measured, path) else f"Not saved: {path} has a calibration of more loads."
    except OSError as error:
        outcome = f"Not saved: {path} cannot be written ({error.strerror})."
    deliver(document_of(measured), output or (), as_json)
    log.print(outcome, soft_wrap=True)
