"""`enginebench gate`: fail a build when a server has become slower than its baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def gate(
    runs: Annotated[list[str], typer.Argument(help="Runs, or folders of runs, of the version to judge: 5 of them.")],
    baseline: Annotated[Path, typer.Option(help="Folder of the runs, or saved summaries, to compare with.")],
    save_baseline: Annotated[
        bool, typer.Option("--save-baseline", help="Save the runs as the baseline; nothing is judged.")
    ] = False,
    fail_at: Annotated[
        float, typer.Option(min=0, help="Fail when something is worse by more than this many per cent.")
    ] = 20,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML for the CI server.", metavar="FILE")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write a comment for the pull request.", metavar="FILE")] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            help="Objective in seconds, such as ttft_p99=0.5, to judge attainment.", metavar="METRIC_pN=SECONDS"
        ),
    ] = None,
    runs_folder: Annotated[
        Path, typer.Option("--runs", help="Where runs are looked for.", envvar="ENGINEBENCH_RUNS", metavar="FOLDER")
    ] = Path("runs"),
    allow_different: Annotated[
        bool, typer.Option("--allow-different", help="Judge even where host, model or workload differ.")
    ] = False,
    allow_invalid: Annotated[bool, typer.Option("--allow-invalid", help="Judge despite invalid findings.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the table.")] = False,
) -> None:
    """Compare runs with a baseline, and fail when something has become worse.

    Worse by more than 20 % with an interval that excludes chance is critical and fails; 10 to 20 % is a warning, which
    --fail-at 10 makes fail too. Between identical versions at most one gate in a hundred fails, whatever is measured.

    Exit code: 0 passed, 1 a regression, 2 a usage error, or runs that cannot be judged by this baseline.

    Examples:

      enginebench gate --baseline baseline --save-baseline runs

      enginebench gate --baseline baseline --junit gate.xml --markdown gate.md runs
    """
    from rich.console import Console

    from analysis.gate import outputs
    from analysis.gate.baseline import save_baseline as save
    from analysis.gate.gate import GateRefused, judge
    from analysis.run.load import NotARun
    from analysis.verdict.loading import summaries_of
    from records.slo import parse_objectives

    log = Console(stderr=True, highlight=False)
    try:
        objectives = parse_objectives(slo or ())
        with log.status("Reading the runs …"):
            current = summaries_of(runs, runs_folder, objectives, tell_apart=False)
        if save_baseline:
            written = save(baseline, current)
            typer.echo(f"{len(written)} runs saved in {baseline}")
            return
        if not baseline.is_dir():
            raise GateRefused(f"there is no baseline at {baseline}: make one with --save-baseline.")
        with log.status("Reading the baseline …"):
            before = summaries_of([str(baseline)], baseline, objectives)
        found = judge(before, current, fail_at / 100, allow_different, allow_invalid)
        for path, text in ((junit, outputs.junit), (markdown, outputs.markdown)):
            if path is not None:
                path.write_text(text(found), encoding="utf-8")
    except (NotARun, GateRefused, ValueError) as error:
        log.print(str(error), style="red", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except OSError as error:
        log.print(f"{error.filename} cannot be written ({error.strerror}).", style="red", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps(outputs.document(found), allow_nan=False))
    else:
        outputs.print_gate(found)
    if not found.passed:
        raise typer.Exit(1)
