"""`enginebench gate`: fail a build when a server has become slower than its baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from enginebench.analysis.settings import ClaimSettings, GateSettings, ReadSettings
from enginebench.records.formatting import counted
from enginebench.settings.flags import AsJson, read_settings, with_flags


@with_flags(ReadSettings, GateSettings, ClaimSettings, leave_out={"margin"})
def gate(
    names: Annotated[
        list[str],
        typer.Argument(help="Runs, or folders of runs, of the version to judge: 5 of them.", metavar="RUNS"),
    ],
    baseline: Annotated[Path, typer.Option(help="Folder of the runs, or saved summaries, to compare with.")],
    save_baseline: Annotated[
        bool, typer.Option("--save-baseline", help="Save the runs as the baseline; nothing is judged.")
    ] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Compare runs with a baseline, and fail when something has become worse.

    Worse by more than 20 %, beyond chance, is critical and fails; 10 to 20 % is a warning, which --fail-at 10 makes
    fail too. Between identical versions at most about one gate in a hundred fails, whatever the number of metrics.

    Exit code: 0 passed, 1 a regression, 2 a usage error, or what cannot be judged: runs that lack something
    that the baseline has, or too few of them to tell a change from chance.

    Examples:

      enginebench gate --baseline baseline --save-baseline runs

      enginebench gate --baseline baseline --junit gate.xml --markdown gate.md runs
    """
    from enginebench.analysis.compare import gate_outputs as outputs
    from enginebench.analysis.compare.gate import GateRefused, judge
    from enginebench.analysis.compare.gate import save_baseline as save
    from enginebench.analysis.console import stderr
    from enginebench.analysis.summary.loading import summaries_of

    reading: ReadSettings = read_settings(ReadSettings, given)
    claims: ClaimSettings = read_settings(ClaimSettings, given)
    gating: GateSettings = read_settings(GateSettings, given)
    log = stderr()
    with log.status("Reading the runs …"):
        current = summaries_of(names, reading.runs, reading.slo, reading.tokenizer, tell_apart=False)
        saved = list(map(str, save(baseline, current))) if save_baseline else []
    if save_baseline:
        typer.echo(json.dumps({"saved": saved}) if as_json else f"{counted(len(saved), 'run')} saved in {baseline}.")
        return
    with log.status("Reading the baseline …"):
        if not baseline.is_dir() or not any(baseline.iterdir()):
            raise GateRefused(f"there is no baseline at {baseline}: make one with --save-baseline.")
        before = summaries_of([str(baseline)], baseline, reading.slo, reading.tokenizer)
        answer = judge(
            before,
            current,
            gating.fail_at / 100,
            claims.allow_different,
            claims.allow_invalid,
            gating.allow_missing,
        )
        outputs.write(answer, gating.junit, gating.markdown)
    outputs.show(answer, as_json)
    if not answer.passed:
        raise typer.Exit(1)
