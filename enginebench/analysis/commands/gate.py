"""`enginebench gate`: fail a build if a server has become slower than its baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enginebench.analysis.commands.output import Output, check_formats, deliver
from enginebench.analysis.settings import GateSettings, ReadSettings
from enginebench.records.formatting import counted, in_words
from enginebench.settings.flags import AllowInvalid, AsJson, read_settings, with_flags
from enginebench.settings.schema import UserMistake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enginebench.analysis.document import Document
    from enginebench.analysis.summary.run_summary import RunSummary


@with_flags(ReadSettings, GateSettings)
def gate(
    names: Annotated[
        list[str],
        typer.Argument(help="At least 5 runs of the version to judge, or folders of runs.", metavar="RUNS"),
    ],
    baseline: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of the runs, or saved summaries, to compare with.")
    ],
    save_baseline: Annotated[
        bool, typer.Option("--save-baseline", help="Save the runs as the baseline, without judging them.")
    ] = False,
    output: Output = None,
    as_json: AsJson = False,
    allow_invalid: AllowInvalid = False,
    **flags: Any,
) -> None:
    """Compare runs with a baseline, and fail if something has become worse.

    A metric that is significantly worse by more than 20 % is a regression and fails the gate; more than 10 % is a
    warning, which also fails the gate with --fail-at 10. Between identical versions at most about one gate in a hundred
    fails, for any number of metrics.

    Exit code: 0 passed, 1 a regression, 2 a usage error, invalid or different runs, 3 the runs
    lack something that the baseline has, or there are too few runs to tell a change from chance.

    Examples:

      enginebench gate --baseline baseline --save-baseline runs

      enginebench gate --baseline baseline --output gate.xml --output gate.md runs
    """
    from enginebench.analysis.summary.loading import summaries_of
    from enginebench.analysis.summary.run_summary import save_baseline as save
    from enginebench.settings.console import stderr

    reading: ReadSettings = read_settings(ReadSettings, flags)
    settings: GateSettings = read_settings(GateSettings, flags)
    check_formats(output or ())
    with stderr().status("Reading the runs …"):
        current = summaries_of(names, reading.runs, reading.slo, reading.tokenizer, tell_apart=False)
        saved = list(map(str, save(baseline, current))) if save_baseline else []
    if save_baseline:
        typer.echo(json.dumps({"saved": saved}) if as_json else f"{counted(len(saved), 'run')} saved in {baseline}.")
        return
    if not baseline.is_dir() or not any(baseline.iterdir()):
        raise UserMistake(f"there is no baseline at {baseline}: make one with --save-baseline.")
    with stderr().status("Reading the baseline …"):
        before = summaries_of([str(baseline)], baseline, reading.slo, reading.tokenizer)
        document = judge_runs(before, current, settings, allow_invalid)
    deliver(document, output or (), as_json)


def judge_runs(
    before: Sequence[RunSummary], current: Sequence[RunSummary], settings: GateSettings, allow_invalid: bool
) -> Document:
    """Judge the current runs. Raises `UserMistake` if they cannot be compared with the baseline."""
    from enginebench.analysis.engine_runs import engine_runs_of, since_due
    from enginebench.analysis.frame import frame_of
    from enginebench.analysis.sections.gate import gate_document
    from enginebench.analysis.sections.warnings import warnings
    from enginebench.analysis.verdict.differences import version_differences
    from enginebench.analysis.verdict.gate import judge
    from enginebench.records.metrics import columns

    baseline, now = engine_runs_of(before), engine_runs_of(current)
    labels = [engine.label for engine in baseline]
    new = [engine.label for engine in now if engine.label not in labels]
    if new:
        raise UserMistake(f"the baseline has no runs of {in_words(new)}; it has {', '.join(labels)}: save a new one.")
    invalid = dict.fromkeys(run.label for run in (*before, *current) if run.invalid)
    if invalid and not allow_invalid:
        raise UserMistake(
            f"a run of {in_words(list(invalid))} is invalid: see `enginebench report`; --allow-invalid accepts it."
        )
    if {run.objectives for run in before} != {run.objectives for run in current}:
        raise UserMistake("the baseline was saved with other objectives: give the same --slo, or save a new baseline.")
    differ = list(dict.fromkeys(difference.kind.value for difference in version_differences(baseline, now)))
    if differ and not settings.allow_different:
        raise UserMistake(
            f"the runs and the baseline differ in {in_words(differ)}: save a new baseline, or judge them anyway with "
            "--allow-different."
        )
    compared = columns("compared", since_due([*before, *current]))
    gate = judge(baseline, now, compared, settings.fail_at / 100, settings.allow_missing)
    frame = frame_of(current)
    return gate_document(gate, frame.tested, warnings(frame))
