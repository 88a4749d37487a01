"""The commands of the load tests."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadtests.harness.run.options import GROUPS, Option

if TYPE_CHECKING:
    from rich.console import Console

    from loadtests.harness.run.drive import Job, Measured

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def about() -> None:
    """Load tests."""


NOT_OFFERED = {"--model", "--run-id"}  # `run` has a --model of its own, and names the runs itself
NOT_PASSED_ON = {"--api-key"}  # others on this machine can read a command line: it goes through the environment


def _load_options() -> Iterator[tuple[str, Option]]:
    for title, options in GROUPS.items():
        yield from ((title, option) for option in options if option.flag not in NOT_OFFERED)


def _with_load_options(command: Callable[..., None]) -> Callable[..., None]:
    """Typer reads signatures: in place of `**load` comes an option for each of the harness's, in the same words."""
    signature = inspect.signature(command, eval_str=True)
    parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for title, option in _load_options():
        hint: Any = bool
        default: bool | None = False
        metavar = None
        text = option.help
        if not isinstance(option.default, bool):
            hint, default = str | None, None
            metavar = option.metavar or "|".join(option.choices or ())
            text += f" Default: {option.default}." if option.default != "" else ""
        hint = Annotated[hint, typer.Option(option.flag, help=text, metavar=metavar, rich_help_panel=title)]
        parameters.append(
            inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
        )
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


@app.command(context_settings={"allow_extra_args": True})
@_with_load_options
def run(
    context: typer.Context,
    scenario: Annotated[str, typer.Argument(help="Its name, such as concurrent, or a locustfile of your own.")],
    engine: Annotated[
        list[str] | None, typer.Option(help="Serve this engine and test it; may be repeated, to compare.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="Test the OpenAI-compatible server that is there.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", "-o", metavar="[ENGINE.]NAME=VALUE", help="A setting of the engines, or of one."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="What the engines load; with --url, the model to ask for.", show_default=False)
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Client processes that share the load.")] = 1,
    allow_invalid: Annotated[
        bool, typer.Option("--allow-invalid", help="Name a winner and exit with 0 in spite of invalid findings.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of the table.")] = False,
    **load: Any,
) -> None:
    """Test engines or a server under load, and report.

    Each engine is served in turn behind the identical server, tested, and stopped. What stands after -- goes to Locust.

    Exit code: 0 good, 2 a usage error, a run that failed, or one that a finding makes invalid.

    Examples:

      enginebench run concurrent --engine transformers --engine mistralrs --steps 10,20,40

      enginebench run concurrent --url http://127.0.0.1:8000 --prompt-tokens uniform:64-512 --output-tokens 128
    """
    from rich.console import Console

    from loadtests.harness.run.drive import Mistake, engine_options, sigterm_is_ctrl_c

    console = Console(stderr=True)
    try:
        if bool(engine) == bool(url):
            raise Mistake("say what to test: --engine NAME to serve one here, or --url of a server that is there.")
        options = engine_options(option or [], engine or [])
        job = _job(scenario, load, model if url else None, processes, context.args)
    except Mistake as mistake:
        console.print(str(mistake), style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    measured: list[Measured] = []
    try:
        with sigterm_is_ctrl_c():
            whole = _measure(job, options, model, url, console, measured)
            _warn_beyond_calibration(measured, console)
            code = _report([one.folder for one in measured], allow_invalid, as_json) if measured else 2
    except KeyboardInterrupt:
        console.print(f"stopped; what was measured is kept in {job.settings.runs}", highlight=False)
        raise typer.Exit(2) from None
    raise typer.Exit(code if whole else 2)


def _job(scenario: str, load: dict[str, Any], model: str | None, processes: int, for_locust: list[str]) -> Job:
    """Raises `Mistake`."""
    from loadtests.harness.run.drive import Job, find_scenario, read_settings

    words = [f"--model={model}"] if model else []
    secrets: list[str] = []
    for _, option in _load_options():
        value = load[option.name]
        if value is None or value is False:
            continue
        word = option.flag if value is True else f"{option.flag}={value}"
        (secrets if option.flag in NOT_PASSED_ON else words).append(word)
    settings = read_settings([*words, *secrets])
    if processes > 1:
        for_locust = ["--processes", str(processes), *for_locust]
    return Job(find_scenario(scenario), settings, tuple(words), tuple(for_locust))


def _measure(
    job: Job, options: dict[str, list[str]], model: str | None, url: str | None, console: Console, done: list[Measured]
) -> bool:
    """Add each run to `done`. False when one failed; the others go on, so that no hour of measurement is in vain."""
    from loadtests.harness.run.drive import RunFailed, measure_engine, measure_url
    from loadtests.harness.run.server_process import ServerFailed

    stages = job.settings.stages
    seconds = stages[-1].end / 1e9 * max(1, len(options))
    length = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    console.print(
        f"{job.scenario.stem}: {', '.join(str(s.users) for s in stages)} users, about {length} of load",
        highlight=False,
    )
    whole = True
    for engine in options or [None]:
        try:
            if engine is None:
                assert url is not None
                done.append(measure_url(job, url, console))
            else:
                done.append(measure_engine(job, engine, options[engine], model, console))
        except (ServerFailed, RunFailed) as failure:
            console.print(str(failure), style="red", highlight=False, markup=False, soft_wrap=True)
            whole = False
    return whole


def _warn_beyond_calibration(measured: list[Measured], console: Console) -> None:
    from records.record import read_meta

    for one in measured:
        meta = read_meta(one.folder)
        if meta.client_error and meta.client_error_at(one.peak) is None:
            console.print(
                f"{one.label}: {one.peak:,.0f} chunks/s are more than this machine's client was calibrated for "
                f"({max(meta.client_error)[0]:,.0f}/s): the report says what to do.",
                style="yellow",
                highlight=False,
                soft_wrap=True,
            )


def _report(folders: list[Path], allow_invalid: bool, as_json: bool) -> int:
    """Have the runs analysed; the table, the sentence and the report's path go to standard output."""
    command = [sys.executable, "-P", "-m", "enginebench", "report", *map(str, folders)]
    command += ["--allow-invalid"] * allow_invalid + ["--json"] * as_json
    return subprocess.run(command).returncode


@app.command()
def collect(
    run: Annotated[Path, typer.Argument(help="The run's folder on the master's host.")],
    parts: Annotated[list[Path], typer.Argument(help="Copies of the folder that workers on other hosts have written.")],
) -> None:
    """Gather what workers on several hosts have recorded into one run.

    Example:  scp -r worker1:runs/RUN /tmp/worker1 && enginebench collect runs/RUN /tmp/worker1
    """
    from loadtests.harness.run.collect import NotThisRun
    from loadtests.harness.run.collect import collect as gather

    try:
        new = gather(run, parts)
    except NotThisRun as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    print(f"{len(new)} files added to {run}" + (": " + ", ".join(path.name for path in new) if new else ""))


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

    from loadtests.harness.calibration.calibrate import GRID, CalibrationFailed, calibrate, parse_grid
    from loadtests.harness.calibration.result import Cell, path_here, save
    from loadtests.harness.calibration.table import WIDTH, sentence, table

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
