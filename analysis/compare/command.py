"""`enginebench compare`: is an engine better than the baseline, in what, by how much, and may that be claimed?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from analysis.settings import ClaimSettings, ReadSettings
from settings.flags import AsJson, read_settings, with_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.compare.contrasts import Contrasts
    from analysis.summary.run_summary import RunSummary


@with_flags(ReadSettings, ClaimSettings)
def compare(
    names: Annotated[
        list[str],
        typer.Argument(help="Runs, or folders of runs; those with the same label are repeats.", metavar="RUNS"),
    ],
    baseline: Annotated[
        str | None,
        typer.Option(help="The label to compare with. Default: transformers, else the first.", show_default=False),
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(help="The stage to show, such as '8 users'. Default: the heaviest common.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Compare engines with a baseline: every measure, with tests and effect sizes.

    The runs are the samples: three of each engine or more, best interleaved by `enginebench run … --repeat 5`.
    `enginebench report` has the same comparison as a section of its page.

    Exit code: 0 good, 2 a usage error, or nothing may be claimed (the runs differ, or are invalid).

    Examples:

      enginebench compare runs --baseline transformers

      enginebench compare runs/before runs/after --stage "40 users" --allow-different
    """
    from analysis.compare.contrasts import contrast
    from analysis.console import stderr
    from analysis.summary.loading import summaries_of

    log = stderr()
    with log.status("Reading the runs …") as status:
        reading: ReadSettings = read_settings(ReadSettings, given)
        claims: ClaimSettings = read_settings(ClaimSettings, given)
        summaries = summaries_of(
            names,
            reading.runs,
            reading.slo,
            reading.tokenizer,
            reading=lambda name: status.update(f"Reading {name} …"),
        )
        contrasts = contrast(summaries, baseline, stage, claims.allow_different, claims.allow_invalid, claims.margin)
    _show(contrasts, summaries, as_json)
    if contrasts.blocked:
        raise typer.Exit(2)


def _show(contrasts: Contrasts, summaries: Sequence[RunSummary], as_json: bool) -> None:
    from analysis.compare.terminal import print_contrasts
    from analysis.console import stdout

    if as_json:
        typer.echo(json.dumps(document(contrasts, summaries), allow_nan=False))
    else:
        print_contrasts(stdout(), contrasts)


def document(contrasts: Contrasts, summaries: Sequence[RunSummary]) -> dict[str, Any]:
    """What `--json` prints: all stages, and what differs."""
    from dataclasses import asdict

    from analysis.compare.engine_runs import contenders_of
    from analysis.summary.run_summary import SCHEMA_VERSION, without_infinities

    labels = [one.label for one in contenders_of(summaries)]
    found: dict[str, Any] = without_infinities(
        {"schema": SCHEMA_VERSION}
        | asdict(contrasts)
        | {
            "sentence": contrasts.sentence,
            "runs": {label: [str(s.folder) for s in summaries if s.label == label] for label in labels},
        }
    )
    return found
