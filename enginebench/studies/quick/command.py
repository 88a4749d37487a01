"""The command `quick`: test a server for one minute, and report."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from enginebench.records.files import META
from enginebench.records.slo import SLO_HELP
from enginebench.records.stage import SECOND
from enginebench.settings.flags import duration
from enginebench.settings.schema import UserMistake
from loadtests.harness.command.contenders import Contender, contenders
from loadtests.harness.run.options import GROWS_SINCE
from loadtests.harness.settings.run_settings import runs_here

if TYPE_CHECKING:
    from enginebench.records.load import Load
    from loadtests.harness.command.command_terminal import Terminal

RUNS = runs_here()
SCENARIO = "quick"
REPORT = 5.0  # seconds for the last answers, the verdict and the report's page
SCRIPTED = Contender("scripted engine", engine="fake", options=("ttft=0.04", "tpot=0.01", "concurrency=8"))


def quick(
    url: Annotated[
        str | None, typer.Argument(help="An OpenAI-compatible server. Default: the first one that listens here.")
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(metavar="SLO", help=f"{SLO_HELP} Default: ttft_p95=1s,tpot_p95=100ms."),
    ] = None,
    budget: Annotated[
        float, typer.Option(metavar="TIME", parser=duration(20), help="Stop and report after about this time.")
    ] = 60.0,
    peak: Annotated[
        str | None,
        typer.Option(
            metavar="LOAD",
            help="Also say how many replicas this load needs: a number of users, or a rate such as 40/s.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Model to request. Default: the first one that the server lists.")
    ] = None,
    runs: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the run.")] = RUNS,
) -> None:
    """How many users can a server handle? One minute, then the answer.

    Users double until an objective is missed; the rest of the minute is spent on the two loads around the crossing.
    Without a URL, the first server on this machine that listens at a usual port of vLLM, SGLang, llama.cpp, TGI, Ollama
    or LM Studio is tested, else a scripted engine, which only waits. Ctrl-C gives the answer so far.

    Exit code: 0 the run was measured, 2 a usage error, a run that failed or was stopped.

    Example:  enginebench quick http://127.0.0.1:8000 --slo ttft_p95=500ms
    """
    from enginebench.analysis.settings import parse_peak
    from loadtests.harness.command.command_terminal import Terminal, sigterm_is_ctrl_c

    if find_spec("polars") is None:  # missing from `make bundle`
        raise UserMistake("`quick` ends with a report, whose packages are not installed: use `enginebench run`.")
    load = None if peak is None else parse_peak(peak)
    began = time.monotonic()
    terminal = Terminal()
    folder = runs / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-quick-{secrets.token_hex(2)}"
    try:
        with sigterm_is_ctrl_c():
            contender, sentence = _chosen(url, model)
            terminal.say(sentence)
            try:
                complete = _measured(folder, contender, slo or (), began + budget, terminal)
            except KeyboardInterrupt:
                if not (folder / META).exists():
                    raise
                complete = False
                terminal.say("stopped: this is the result so far")
            _tell(folder, contender, load)
    except KeyboardInterrupt:
        begun = (folder / META).exists()
        terminal.say(f"stopped; see {folder}" if begun else "stopped before the first result")
        raise typer.Exit(2) from None
    if not complete:
        raise typer.Exit(2)


def _chosen(url: str | None, model: str | None) -> tuple[Contender, str]:
    """Return the server to test, and a sentence that names it."""
    from enginebench.studies.quick.discovery import PORTS, find_server

    if url is not None:
        (named,) = contenders([], [url], models=[model] if model else [])
        return named, f"Testing {named.url}."
    server = find_server()
    if server is None:
        ports = ", ".join(map(str, PORTS))
        return SCRIPTED, (
            f"No server at this machine's ports {ports}, so this tests the scripted engine, which only waits. "
            "To test yours: enginebench quick URL"
        )
    (listening,) = contenders([], [server.url], models=[model] if model else [])
    asked = listening.model or server.models[0]
    among = f", the first of {len(server.models)} models" if listening.model is None and len(server.models) > 1 else ""
    return listening, f"Testing {server.url} ({server.port}), model {asked}{among}."


def _measured(folder: Path, contender: Contender, slo: Sequence[str], ends: float, terminal: Terminal) -> bool:
    """Run until just before `ends`, with time for the report. Return whether it was completed. Raises `UserMistake`."""
    from loadtests.harness.command.job import Job
    from loadtests.harness.command.measured_run import RunFailed, measure
    from loadtests.harness.command.run_order import Repeat, prepared
    from loadtests.harness.command.scenarios import find_scenario
    from loadtests.harness.command.server_process import ServerFailed

    began = time.monotonic_ns()
    seconds = f"{ends - REPORT - began / SECOND:.1f}"
    typed = {"search_seconds": seconds, "runs": str(folder.parent), "run_id": folder.name}
    job = Job.of(find_scenario(SCENARIO), typed | ({"slo": "\n".join(slo)} if slo else {}), 1, ())
    job = replace(job, variables={GROWS_SINCE: str(began)})  # count starting the server and Locust
    (contender,) = prepared(job, [contender], 1)
    try:
        return measure(job, contender, Repeat(0, secrets.token_hex(4)), terminal).complete
    except (RunFailed, ServerFailed) as failure:
        raise UserMistake(str(failure)) from None


def _tell(folder: Path, contender: Contender, peak: Load | None) -> None:
    """Print the report's first screen on standard output, and write its page."""
    from enginebench.analysis.commands.output import PAGE, deliver
    from enginebench.analysis.data.run_data import NotARun
    from enginebench.analysis.frame import frame_of
    from enginebench.analysis.plan.replicas import replicas_of
    from enginebench.analysis.reports import quick_document
    from enginebench.analysis.settings import PlanSettings
    from enginebench.analysis.summary.loading import summaries_of

    try:
        summaries = summaries_of([str(folder)], folder.parent)
    except NotARun as error:
        raise UserMistake(str(error)) from None
    frame = frame_of(summaries)
    plan = PlanSettings(peak=peak, slo=frame.objectives)
    replicas = replicas_of(frame, plan) if peak is not None else ()
    target = ["--url", contender.url] if contender.url else ["--engine", contender.engine]
    target += [word for option in contender.options for word in ("-o", option)]
    target += ["--model", contender.model] if contender.model else []
    deliver(quick_document(frame, target, replicas, peak), page=folder / PAGE, brief=True)
