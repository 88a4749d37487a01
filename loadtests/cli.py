"""The commands of the load tests."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from enginebench.records.exit_codes import GOOD, NOT_ENOUGH
from enginebench.settings.flags import (
    AllowInvalid,
    AsJson,
    Engines,
    EngineSettings,
    Models,
    Processes,
    Urls,
    typed_texts,
    with_flags,
)
from enginebench.settings.schema import UserMistake
from loadtests.harness.command.run_help import RunCommand, show_all
from loadtests.harness.command.scenarios import find_scenario, scenario_list
from loadtests.harness.scenario import Scenario
from loadtests.harness.settings.run_settings import RunSettings

if TYPE_CHECKING:
    from loadtests.harness.command.command_terminal import Terminal
    from loadtests.harness.command.contenders import Contender
    from loadtests.harness.command.job import Job
    from loadtests.harness.profiler import Profiler

app = typer.Typer()

REPEAT = typer.Option(metavar="N", min=1, help="Runs of each contender, interleaved; a winner needs several.")
KEEP_LOADED = typer.Option(
    "--keep-loaded",
    help="Start each engine once and keep it loaded through all repeats: saves time, needs memory for all of them.",
)
RESTART = typer.Option(
    metavar="[NAME=]COMMAND",
    help="Start the server at --url with this command before each run, and end what it started after it.",
)
DROP_CACHE = typer.Option(
    metavar="[NAME=]PATH",
    help="Drop this file or folder, such as a model's, from the file cache before each start; may be repeated.",
)
PROFILE = typer.Option(
    metavar="COMMAND",
    help="After all measurements, run a profiler against each engine under load: py-spy, nsys, or a command with "
    "{pid}, the engine's process id.",
)
HelpAll = Annotated[
    bool, typer.Option("--help-all", is_eager=True, callback=show_all, help="Show every option, and exit.")
]
NOT_OFFERED = {"model"}  # `run` declares its own


@app.command(cls=RunCommand)
@with_flags(Scenario, RunSettings, leave_out=NOT_OFFERED)
def run(
    context: typer.Context,
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="Name of a scenario, such as concurrent, or a locustfile.")
    ],
    address: Annotated[str | None, typer.Argument(metavar="URL", help="Test this server, as --url does.")] = None,
    engine: Engines = None,
    url: Urls = None,
    option: EngineSettings = None,
    model: Models = None,
    repeat: Annotated[int, REPEAT] = 1,
    keep_loaded: Annotated[bool, KEEP_LOADED] = False,
    restart: Annotated[list[str] | None, RESTART] = None,
    drop_cache: Annotated[list[str] | None, DROP_CACHE] = None,
    processes: Processes = 1,
    profile: Annotated[str | None, PROFILE] = None,
    allow_invalid: AllowInvalid = False,
    as_json: AsJson = False,
    help_all: HelpAll = False,
    **options: Any,
) -> None:
    """Test engines or servers under load, and report.

    Each engine is served behind the identical server, tested, and stopped. To name a contender, write NAME= before its
    engine, URL or model, and NAME. before an option or header that applies only to it. Arguments after -- are passed
    to Locust. --users, -u and --concurrency are other names of --stages. The defaults shown are those of `concurrent`;
    other scenarios have their own.

    Exit code: 0 good, 1 an objective was missed, 2 a usage error, a run that failed or is invalid, or an engine whose
    runs differ too much to be compared, 3 too little was measured to judge an objective.

    Examples:

      enginebench run concurrent --engine transformers --engine mistralrs --stages 10,20,40 --repeat 5

      enginebench run concurrent --engine few=vllm -o few.concurrency=16 --engine many=vllm --repeat 5

      enginebench run single http://127.0.0.1:8000 --output-tokens 64
    """
    from loadtests.harness.command import run_order
    from loadtests.harness.command.command_terminal import Terminal, sigterm_is_ctrl_c
    from loadtests.harness.command.contenders import contenders
    from loadtests.harness.command.engine_checks import checked
    from loadtests.harness.command.job import Job
    from loadtests.harness.profiler import Profiler

    terminal = Terminal()
    path = find_scenario(scenario)
    headers = options.pop("header") or []
    if address is not None and address != "localhost" and not set(":./") & set(address):
        raise UserMistake(f"`{address}` is not the address of a server; to serve an engine: --engine {address}")
    urls = [*([] if address is None else [address]), *(url or [])]
    tested = contenders(
        engine or [], urls, option or [], model or [], headers, restarts=restart or [], uncached=drop_cache or []
    )
    if keep_loaded:
        run_order.check_kept(tested, repeat)
    texts = typed_texts(Scenario, options) | typed_texts(RunSettings, options)
    job = Job.of(path, texts, processes, context.args)
    profiler = None if profile is None else Profiler.of(profile)
    if profiler is not None and not engine:
        raise UserMistake("--profile is for engines that --engine serves: it needs their processes.")
    tested, sentence = checked(tested)
    tested = run_order.prepared(job, tested, repeat)
    if sentence is not None:
        terminal.say(sentence)
    if job.planned is not None:
        terminal.say(job.planned.duration.sentence(repeat * len(tested)))
    folders: list[Path] = []
    try:
        with sigterm_is_ctrl_c():
            complete = _measure(job, tested, repeat, terminal, folders, keep_loaded)
            if profiler is not None:
                complete = _profile(job, tested, profiler, terminal, folders) and complete
            code = _report(folders, allow_invalid, as_json, "slo" in texts) if folders else 2
    except KeyboardInterrupt:
        report = (
            f". To report on the finished runs: enginebench report {' '.join(map(str, folders))}" if folders else ""
        )
        terminal.say(f"stopped; what was recorded is in {job.settings.runs}{report}")
        raise typer.Exit(2) from None
    raise typer.Exit(code if complete else 2)


def _measure(
    job: Job,
    tested: list[Contender],
    repeats: int,
    terminal: Terminal,
    folders: list[Path],
    keep_loaded: bool = False,
) -> bool:
    """Add each run's folder to `folders`, and return whether all runs were complete. Go on after a failed run."""
    from loadtests.harness.command.loaded_servers import LoadedServers
    from loadtests.harness.command.measured_run import RunFailed, measure
    from loadtests.harness.command.run_order import rounds
    from loadtests.harness.command.server_process import ServerFailed

    complete = True
    with LoadedServers(terminal, keep=True) if keep_loaded else nullcontext() as kept:
        for this_round, order in rounds(tested, repeats):
            if repeats > 1:
                terminal.say(f"round {this_round.index + 1} of {repeats}")
            for contender in order:
                try:
                    measured = measure(job, contender, this_round, terminal, kept)
                    folders.append(measured.folder)
                    complete = complete and measured.complete
                except (ServerFailed, RunFailed) as failure:
                    terminal.say(str(failure), style="red")
                    complete = False
    return complete


def _profile(job: Job, tested: list[Contender], profiler: Profiler, terminal: Terminal, folders: list[Path]) -> bool:
    """Profile each measured engine into the folder of its last run. Return whether all profiles succeeded."""
    from enginebench.records.files import read_meta
    from loadtests.harness.command.profile import profile

    last = {read_meta(folder).label: folder for folder in folders}
    measured = [contender for contender in tested if contender.engine and contender.name in last]
    worked = [profile(job, contender, last[contender.name], profiler, terminal) for contender in measured]
    return all(worked)


def _report(folders: list[Path], allow_invalid: bool, as_json: bool, has_slo: bool) -> int:
    """Analyse the runs in a separate process, and return its exit code. Without the analysis (`make bundle`), list the
    runs: no objective can be judged."""
    if find_spec("polars") is None:
        listed = "\n".join(f"  {folder}" for folder in folders)
        print(f"The records, for `enginebench report` in a complete installation:\n{listed}")
        return NOT_ENOUGH if has_slo else GOOD
    command = [sys.executable, "-P", "-m", "enginebench", "report", *map(str, folders)]
    command += ["--allow-invalid"] * allow_invalid + ["--json"] * as_json
    # In its own session: Ctrl-C in the terminal goes to this process, which ends it.
    return subprocess.run(command, start_new_session=True).returncode


@app.command()
def scenarios() -> None:
    """List the scenarios of `enginebench run`, and the question that each of them answers."""
    print(scenario_list(), end="")
