"""The command line. A command is imported from its package only when it is used.

enginebench --help
"""

from __future__ import annotations

import errno
import gc
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_group

from enginebench.settings.schema import UserMistake, choose_from

# Command -> the module that defines it, in the order of `--help`.
COMMANDS = {
    "quick": "enginebench.studies.cli",
    "study": "enginebench.studies.cli",
    "tune": "enginebench.studies.cli",
    "run": "loadtests.cli",
    "scenarios": "loadtests.cli",
    "report": "enginebench.analysis.cli",
    "compare": "enginebench.analysis.cli",
    "plan": "enginebench.analysis.cli",
    "gate": "enginebench.analysis.cli",
    "runs": "enginebench.analysis.cli",
    "serve": "servers.cli",
    "engines": "engines.cli",
    "models": "engines.cli",
    "bench": "engines.bench.cli",
    "doctor": "enginebench.studies.cli",
    "calibrate": "enginebench.studies.cli",
    "referee": "enginebench.studies.cli",
    "import": "enginebench.analysis.cli",
}
ROOMS = {module.partition(".")[0] for module in COMMANDS.values()} | {"enginebench"}


class LazyCommands(TyperGroup):
    def list_commands(self, ctx: object) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: object, cmd_name: str) -> Any:  # typer keeps the type private
        if cmd_name not in COMMANDS:
            return None
        command = get_group(importlib.import_module(COMMANDS[cmd_name]).app).commands[cmd_name]
        # Typer keeps the line breaks of all paragraphs but the first, so a narrow terminal would break lines twice.
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or ""))
        command.get_params = partial(_without_types, command.get_params)  # type: ignore[method-assign]
        return command

    def get_params(self, ctx: Any) -> Any:
        return _without_types(super().get_params, ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS:
            raise UserMistake(f"no command called `{args[0]}`; {choose_from(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **options: Any) -> Any:
        """Print Typer's own errors in the form of ours."""
        standalone = options.get("standalone_mode", True)
        try:
            code = super().main(*args, **options | {"standalone_mode": False})
        except TyperException as error:
            _say(_usage_mistake(error))
            code = error.exit_code
        if not standalone:
            return code
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Turn a mistake that the user can correct into a sentence and exit code 2, here and nowhere else."""
        try:
            return super().invoke(ctx)
        except UserMistake as mistake:
            _say(str(mistake))
        except ModuleNotFoundError as missing:  # `make bundle` leaves out packages that only the analysis needs
            if missing.name is None or missing.name.partition(".")[0] in ROOMS:
                raise
            command = f"`{ctx.invoked_subcommand or 'enginebench'}`"
            _say(f"{command} needs the package {missing.name}, which is not here: use it where all packages are.")
        except OSError as error:  # for example, a read-only folder; exit code 1 would be a verdict
            if error.filename is None and error.errno != errno.EPIPE:  # an error of the output, which `main` handles
                raise
            if error.filename is None:  # the reader closed the pipe; buffered output would fail again
                for stream in (sys.stdout, sys.stderr):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
                raise typer.Exit(2) from None
            _say(f"{error.filename}: {error.strerror or error}.")
        except KeyboardInterrupt:  # if the command has no message of its own
            _say("stopped")
        raise typer.Exit(2)


def _without_types(get_params: Callable[[Any], list[Any]], ctx: Any) -> list[Any]:
    """Remove `<bool>` from the help of switches, because they take no value."""
    parameters = get_params(ctx)
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _usage_mistake(error: Any) -> str:
    """Return the sentence for an unknown option, a missing argument or a value that Typer cannot read."""
    context = getattr(error, "ctx", None)
    option = getattr(error, "option_name", None)
    if context is not None and option is not None and error.message.startswith("No such option"):
        flags = [name for parameter in context.command.get_params(context) for name in parameter.opts if name[0] == "-"]
        near = get_close_matches(option, flags, n=1)
        return f"no option called `{option}`; " + (
            f"did you mean `{near[0]}`?" if near else f"`{context.command_path} --help` lists them."
        )
    sentence = error.format_message().replace("'", "`").rstrip(".")
    command = "enginebench" if context is None else context.command_path
    return f"{sentence[0].lower()}{sentence[1:]}. See `{command} --help`."


def _say(sentence: str) -> None:
    from enginebench.records.plain_text import plain_lines
    from enginebench.settings.console import stderr

    console = stderr()
    console.print(plain_lines(sentence), style="red", soft_wrap=not console.is_terminal)


app = typer.Typer(
    cls=LazyCommands,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"enginebench {version('enginebench')}")
        raise typer.Exit


@app.callback()
def about(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Load-test served language models: which engine, how many GPUs, at what cost, and will p99 hold?

    [bold]One minute:[/bold]  enginebench quick

    [bold]A running server:[/bold]  enginebench run concurrent http://127.0.0.1:8000

    [bold]Engines:[/bold]  enginebench run concurrent --engine vllm --engine mistralrs

    [bold]A decision:[/bold]  enginebench report runs --slo ttft_p99=1s --peak 80
    """


def main() -> None:
    gc.set_threshold(50_000, 20, 50)  # modules stay: collecting them every 700 objects is a fifth of the start
    if sys.stdout is None:  # closed, as by `>&-`
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # until the process ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    # Write UTF-8 even if the locale is plain C, because tables have box characters.
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    try:
        try:
            app(sys.argv[1:] or ["--help"])
        finally:
            sys.stdout.flush()
    except OSError as error:  # a full disk
        print(f"the output cannot be written: {error.strerror or error}.", file=sys.stderr)
        # Buffered output would fail again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
