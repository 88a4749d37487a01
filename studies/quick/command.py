"""The command `quick`: one minute with a server, and what it has shown."""

from __future__ import annotations

import secrets
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from loadtests.harness.command.contenders import Contender, contenders
from loadtests.harness.command.server_process import PYTHON
from loadtests.harness.settings.run import RunSettings
from records.slo import GRAMMAR
from settings.schema import UserMistake

app = typer.Typer()

RUNS = RunSettings().runs
AROUND = 9.0  # seconds of a minute that starting, the last answers and the report take
SCRIPTED = Contender("scripted engine", engine="fake", options=("ttft=0.04", "tpot=0.005", "concurrency=16"))


@app.command()
def quick(
    url: Annotated[
        str | None, typer.Argument(help="An OpenAI-compatible server. Default: the first one that listens here.")
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(metavar="SLO", help=f"Objective: {GRAMMAR}; may be repeated. Default: ttft_p95=1,tpot_p95=0.1."),
    ] = None,
    seconds: Annotated[float, typer.Option(metavar="S", min=20, help="How long it takes, about.")] = 60.0,
    peak: Annotated[int, typer.Option(metavar="N", min=1, help="Users for which replicas are counted.")] = 80,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Model to request. Default: the first.")] = None,
    runs: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the run.")] = RUNS,
) -> None:
    """How many users does a server hold? One minute, then the answer.

    Users double until an objective is missed; the rest of the minute is spent on the two loads around that. Without a
    URL the first server is taken that listens on this machine at one of the usual ports: 8000 (vLLM, enginebench),
    30000 (SGLang), 8080 (llama.cpp, TGI), 11434 (Ollama), 1234 (LM Studio). Where there is none, the scripted engine is
    served, which only waits. Ctrl-C gives the answer so far.

    Exit code: 0 the run was measured, 2 a usage error or a run that failed.

    Example:  enginebench quick http://127.0.0.1:8000 --slo ttft_p95=0.5
    """
    from rich.console import Console

    from loadtests.harness.command.drive import RunFailed, measure
    from loadtests.harness.command.job import Job, find_scenario
    from loadtests.harness.command.rounds import Repeat, prepared
    from loadtests.harness.command.server_process import ServerFailed
    from loadtests.harness.command.terminal import Terminal, sigterm_is_ctrl_c

    terminal = Terminal(Console(stderr=True, highlight=False, markup=False))
    contender, sentence = _chosen(url, model)
    terminal.say(sentence)
    folder = runs / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-quick-{secrets.token_hex(2)}"
    given = {"grow_seconds": f"{seconds - AROUND:g}", "runs": str(runs), "run_id": folder.name}
    job = Job.of(find_scenario("quick"), given | ({"slo": "\n".join(slo)} if slo else {}), 1, ())
    (contender,) = prepared(job, [contender], 1)
    try:
        with sigterm_is_ctrl_c():
            measure(job, contender, Repeat(0, secrets.token_hex(4)), None, terminal)
    except KeyboardInterrupt:
        terminal.say("stopped: this is what there is so far")
    except (RunFailed, ServerFailed) as failure:
        raise UserMistake(str(failure)) from None
    _tell(folder, contender, slo or (), peak)


def _chosen(url: str | None, model: str | None) -> tuple[Contender, str]:
    """What is tested, and a sentence that says so."""
    from studies.quick.discovery import PORTS, find_server

    if url is not None:
        (named,) = contenders([], [url], models=[model] if model else [])
        return named, f"Testing {named.url}."
    server = find_server()
    if server is None:
        ports = ", ".join(map(str, PORTS))
        return SCRIPTED, (
            f"No server listens on this machine at the ports {ports}, so this tests the scripted engine, which only "
            "waits: enginebench quick URL tests yours."
        )
    (found,) = contenders([], [server.url], models=[model] if model else [])
    asked = model or server.models[0]
    among = f", the first of {len(server.models)} models" if model is None and len(server.models) > 1 else ""
    return found, f"Testing {server.url} ({server.port}), model {asked}{among}."


def _tell(folder: Path, contender: Contender, slo: Sequence[str], peak: int) -> None:
    """The verdict, the chart, the report and the next command, on standard output."""
    from rich.console import Console

    from analysis.data.load import NotARun
    from analysis.summary.loading import summaries_of
    from loadtests.harness.command.chart import chart_of
    from records.slo import of_tier
    from studies.quick.verdict import verdict_of

    console = Console(highlight=False, markup=False)
    try:
        (summary,) = summaries_of([str(folder)], folder.parent)
    except NotARun as error:
        raise UserMistake(str(error)) from None
    command = _next(contender, slo or [str(objective) for objective in summary.objectives])
    console.print()
    for sentence in verdict_of(summary, peak, command).sentences:
        console.print(sentence, soft_wrap=True)
    for finding in (finding for finding in summary.findings if finding.severity == "invalid"):
        where = f" at {finding.stage.label}" if finding.stage is not None else ""
        console.print(f"Not to be relied on{where}: {finding.evidence} → {finding.remedy}", style="red", soft_wrap=True)
    console.print()
    for line in chart_of(summary.stages, of_tier(summary.objectives), min(console.width, 80)):
        console.print(line, no_wrap=True, crop=True)
    console.print()
    report = folder / "report.html"
    done = subprocess.run(
        [*PYTHON, "-m", "enginebench", "report", str(folder), "-o", str(report), "--allow-invalid"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if not report.exists():
        print(done.stderr, file=sys.stderr)
    caveats = len({finding.kind for finding in summary.findings if finding.severity != "invalid"})
    console.print(f"Report: {report}" + (f" ({caveats} caveats)" if caveats else ""), soft_wrap=True)
    console.print(f"Next: {command}", soft_wrap=True)


def _next(contender: Contender, slo: Sequence[str]) -> str:
    """The search that certifies what a minute can only bracket."""
    target = ["--url", contender.url] if contender.url else ["--engine", contender.engine]
    target += [word for option in contender.options for word in ("-o", option)]
    target += ["--model", contender.model] if contender.model else []
    limits = [word for objective in slo for word in ("--slo", objective)]
    return shlex.join(["enginebench", "run", "capacity", "--by", "users", *target, *limits])
