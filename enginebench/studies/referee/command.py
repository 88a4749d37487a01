"""`enginebench referee`: a load generator's error, against a scripted server of known timing."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from enginebench.analysis.commands.output import Output
from enginebench.settings.flags import AsJson, duration
from enginebench.settings.schema import UserMistake

TOKENS = 100  # per answer, if a request sets no limit


def referee(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND",
            help="Load generator with its options, in which {url}, {port} and {folder} are replaced.",
        ),
    ],
    ttft: Annotated[float, typer.Option(metavar="S", parser=duration(0), help="Time to first token.")] = 0.2,
    itl: Annotated[float, typer.Option(metavar="S", parser=duration(0), help="Time between two tokens.")] = 0.02,
    skip: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Leave out the first N requests, such as a test before the measurement."),
    ] = 0,
    runs: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep both observations as runs here, and {folder}.")
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Run any load generator against a scripted server, and show the error of what it reports.

    The server stamps the arrival of each request and the write of each token on this machine's clock, so it knows the
    true TTFT, TPOT, E2E, throughput and arrivals. The reported numbers are computed with the same formulas from the
    requests in the results that the command writes into {folder}: a run of enginebench, or a file that `enginebench
    import` reads. The command's own output goes to standard error.

    Exit code: 0 the load generator was measured, however large its error, 2 a usage error or no answered request.

    Examples:

      enginebench referee --skip 1 -- enginebench run concurrent {url} --stages 10 --runs {folder}

      enginebench referee -- aiperf profile -m scripted --url {url} --output-artifact-dir {folder}
    """
    from enginebench.analysis.commands.output import check_formats, deliver
    from enginebench.analysis.tested import Tested
    from enginebench.settings.console import stderr
    from enginebench.settings.system import raise_descriptor_limit
    from enginebench.studies.referee.observation import observe, reported_results, true_results
    from enginebench.studies.referee.report import document_of
    from enginebench.studies.referee.tool import check_command, fill, run_tool, tool_name
    from loadtests.harness.calibration.calibrate import scripted_server
    from loadtests.harness.command.command_terminal import sigterm_is_ctrl_c
    from loadtests.harness.run.host import host_facts

    check_formats(output or ())
    check_command(command)
    raise_descriptor_limit()  # the server has one connection per request in flight
    log, tool, started_at = stderr(), tool_name(command), datetime.now(UTC)
    with ExitStack() as until_the_end:
        place = runs or Path(until_the_end.enter_context(tempfile.TemporaryDirectory()))
        folder, truth = place / "tool", place / "truth.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with sigterm_is_ctrl_c(), scripted_server(itl, TOKENS, truth, ttft, spread=0) as port:
                url = f"http://127.0.0.1:{port}"
                blanks = {"url": url, "port": str(port), "folder": str(folder.absolute())}
                exit_code = run_tool([fill(word, blanks) for word in command])
        except KeyboardInterrupt:
            log.print("stopped; nothing was compared")
            raise typer.Exit(2) from None
        true = observe(true_results(truth, url, started_at, {"output_tokens": TOKENS}, skip), truth, place, "true")
        if true is None:
            raise UserMistake(
                f"{tool} ended with exit code {exit_code} and no request was answered: it must stream "
                f"/v1/chat/completions or /v1/completions at {url}."
            )
        load = reported_results(folder, started_at.timestamp())
        reported = None if load is None else observe(*load, place, "reported")
    tested = Tested.from_benches((), (tool,), host_facts(), started_at.isoformat(), 1)
    deliver(document_of(tool, exit_code, true, reported, tested), output or (), as_json)
