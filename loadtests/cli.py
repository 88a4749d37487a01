"""The commands of the load tests."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadtests.harness.answers.command import answers
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run import RESULTS, RunSettings
from settings.flags import AsJson, EngineSettings, given_texts, with_flags
from settings.schema import UserMistake

if TYPE_CHECKING:
    from rich.console import Console

    from loadtests.harness.command.drive import Job, Subject

app = typer.Typer()
app.command()(answers)

ENGINE = typer.Option(metavar="NAME", help="Serve this engine and test it; may be repeated, to compare.")
URL = typer.Option(metavar="URL", help="Test the OpenAI-compatible server at this URL.")
MODEL = typer.Option(
    metavar="NAME",
    help="Model that the engines load, or to request from --url; may be repeated, to compare models.",
)
REPEAT = typer.Option(metavar="N", min=1, help="Runs of each engine, interleaved; a winner needs several.")
Processes = Annotated[int, typer.Option(metavar="N", min=1, help="Client processes that share the load.")]
NOT_OFFERED = {"model", "run_id", "repeat_index", "prompt_set"}  # `run` sets them itself


@app.command(context_settings={"allow_extra_args": True})
@with_flags(Scenario, RunSettings, leave_out=NOT_OFFERED)
def run(
    context: typer.Context,
    scenario: Annotated[str, typer.Argument(help="Name of a scenario, such as concurrent, or a locustfile.")],
    engine: Annotated[list[str] | None, ENGINE] = None,
    url: Annotated[str | None, URL] = None,
    option: EngineSettings = None,
    model: Annotated[list[str] | None, MODEL] = None,
    repeat: Annotated[int, REPEAT] = 1,
    processes: Processes = 1,
    allow_invalid: Annotated[
        bool,
        typer.Option(
            "--allow-invalid", help="Name a winner and exit with 0 despite invalid findings.", rich_help_panel=RESULTS
        ),
    ] = False,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Test engines or a server under load, and report.

    Each engine is served behind the identical server, tested, and stopped. Arguments after -- are passed to Locust.
    The defaults shown are those of `concurrent`; other scenarios have their own.

    Exit code: 0 good, 1 an objective (--slo) was missed or not shown to be met, 2 a usage error, a run that failed, or
    one that a finding makes invalid.

    Examples:

      enginebench run concurrent --engine transformers --engine mistralrs --stages 10,20,40 --repeat 5

      enginebench run single --url http://127.0.0.1:8000 --output-tokens 64
    """
    from rich.console import Console

    from loadtests.harness.client.address import Address
    from loadtests.harness.command import drive
    from loadtests.harness.command.formats import same_format

    console = Console(stderr=True, highlight=False, markup=False)
    if bool(engine) == bool(url):
        raise UserMistake("say what to test: --engine NAME to serve an engine, or --url URL of a running server.")
    options = drive.engine_options(option or [], engine or [])
    texts = given_texts(Scenario, given) | given_texts(RunSettings, given)
    tested = drive.subjects(engine or [""], model or [])
    job = drive.Job.of(drive.find_scenario(scenario), texts, processes, context.args)
    options, said = same_format(options)
    if url:
        Address.parse(url)
    if said is not None:
        console.print(said, soft_wrap=True)
    folders: list[Path] = []
    try:
        with drive.sigterm_is_ctrl_c():
            complete = _measure(job, options, tested, url, repeat, console, folders)
            code = _report(folders, allow_invalid, as_json) if folders else 2
    except KeyboardInterrupt:
        console.print(f"stopped; what was recorded is in {job.settings.runs}", soft_wrap=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code if complete else 2)


def _measure(
    job: Job,
    options: dict[str, list[str]],
    tested: list[Subject],
    url: str | None,
    repeats: int,
    console: Console,
    folders: list[Path],
) -> bool:
    """Add each run's folder to `folders`. False when one failed; the others go on and are reported."""
    from loadtests.harness.command.drive import RunFailed, measure_engine, measure_url, rounds
    from loadtests.harness.command.server_process import ServerFailed

    complete = True
    for this_round, order in rounds(tested, repeats):
        if repeats > 1:
            console.print(f"round {this_round.index + 1} of {repeats}")
        for subject in order:
            try:
                if url is not None:
                    done = measure_url(job, url, subject, this_round, console)
                else:
                    done = measure_engine(job, subject, options[subject.engine], this_round, console)
                folders.append(done.folder)
                complete = complete and done.complete
            except (ServerFailed, RunFailed) as failure:
                console.print(str(failure), style="red", soft_wrap=True)
                complete = False
    return complete


def _report(folders: list[Path], allow_invalid: bool, as_json: bool) -> int:
    """Have the runs analysed; the table, the sentence and the report's path go to standard output."""
    command = [sys.executable, "-P", "-m", "enginebench", "report", *map(str, folders)]
    command += ["--allow-invalid"] * allow_invalid + ["--json"] * as_json
    # In a session of its own: Ctrl-C in the terminal goes to this process, which ends it.
    return subprocess.run(command, start_new_session=True).returncode


@app.command()
def collect(
    run: Annotated[Path, typer.Argument(help="The run's folder on the master's host.")],
    parts: Annotated[list[Path], typer.Argument(help="Copies of the folders that workers on other hosts wrote.")],
) -> None:
    """Collect the records of workers on several hosts into one run.

    Example:  scp -r worker1:runs/RUN /tmp/worker1 && enginebench collect runs/RUN /tmp/worker1
    """
    from loadtests.harness.recording.collect import collect as gather

    new = gather(run, parts)
    print(f"{len(new)} files added to {run}" + (": " + ", ".join(path.name for path in new) if new else ""))


@app.command()
def calibrate(
    seconds: Annotated[
        float, typer.Option(metavar="S", min=1, help="Seconds of each load, once all users are active.")
    ] = 6.0,
    processes: Processes = 1,
    loads: Annotated[
        str,
        typer.Option(
            help="Users x tokens per second for each, such as 100x50,400x50. Default: six loads, three of them also on "
            "a busy machine."
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Measure how accurate this machine's load generator is, against a scripted server of known timing.

    Takes about three minutes. Reports use the result, and say when a test exceeded the calibrated load.

    Example:  enginebench calibrate --loads 100x50,400x50
    """
    from rich.console import Console

    from loadtests.harness.calibration.calibrate import calibrate, parse_grid
    from loadtests.harness.calibration.result import Cell, path_here, save
    from loadtests.harness.calibration.table import WIDTH, sentence, table
    from loadtests.harness.command.drive import sigterm_is_ctrl_c

    log = Console(stderr=True, highlight=False, markup=False)

    def progress(cell: Cell) -> None:
        load = f"{cell.users} users × {cell.rate:g} tokens/s, {cell.condition} machine"
        error = f"TTFT p99 error {cell.ttft.p99 * 1e3:.3f} ms, {cell.cpu_per_token * 1e6:.1f} µs of CPU per token"
        log.print(f"{load}: {error}", soft_wrap=True)

    try:
        grid = parse_grid(loads) if loads else None
        with sigterm_is_ctrl_c():
            calibration = calibrate(grid, seconds, processes, progress)
    except KeyboardInterrupt:
        log.print("stopped; nothing was saved")
        raise typer.Exit(2) from None
    if as_json:
        sys.stdout.write(json.dumps(asdict(calibration)) + "\n")
    else:
        console = Console(highlight=False, width=WIDTH)
        console.print(table(calibration))
        console.print(sentence(calibration))
    path = path_here(processes)
    save(calibration, path)  # last: what was measured is shown also where this fails
    log.print(f"Saved in {path}", soft_wrap=True)
