"""The command `engines`: what there is, what can run here, and environments for those that need one of their own."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from engines.command.terminal import AsJson, console_of, escape, fail, print_json, table_of

SHOW = "show"


class NamesToo(TyperGroup):
    """`engines NAME` is short for `engines show NAME`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            args = [SHOW, *args]
        return super().resolve_command(ctx, args)


engines_app = typer.Typer(cls=NamesToo, invoke_without_command=True, subcommand_metavar="[NAME | COMMAND NAME]")


@engines_app.callback()
def engines(context: typer.Context, as_json: AsJson = False) -> None:
    """List the engines and which of them can run on this machine, or the options of one.

    Examples:

      enginebench engines transformers

      enginebench engines install vllm
    """
    if context.invoked_subcommand is not None:
        return
    rows = _rows()
    if as_json:
        print_json(list(rows.values()))
        return
    here = {name: row for name, row in rows.items() if row["why_not_here"] is None}
    table = table_of("runs here", "version", "batching", "what it is")
    for name, row in here.items():
        table.add_row(f"[bold]{name}[/]", row["version"] or "", row["batching"], escape(row["title"]))
    missing = table_of("not here", "what it is, and what it lacks")
    for name, row in rows.items():
        if name in here:
            continue
        missing.add_row(f"[bold]{name}[/]", f"{escape(row['title'])}\n[dim]{escape(row['why_not_here'])}[/]")
    console = console_of()
    console.print(table)
    if len(here) < len(rows):
        console.print()
        console.print(missing)
    console.print(f"\n{len(here)} of {len(rows)} engines can run here; `enginebench engines NAME` shows options.")


@engines_app.command(SHOW, hidden=True)
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="An engine.", show_default=False)],
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", metavar="NAME=VALUE", help="Check this option's value.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the options of one engine."""
    rows = _rows(name)
    _check(name, option or [])
    if as_json or (context.parent is not None and context.parent.params.get("as_json")):
        print_json(list(rows.values()))
        return
    table = table_of("option", "default", "what it sets")
    for one in rows[name]["options"]:
        choices = f" ({', '.join(one['choices'])})" if one["choices"] else ""
        table.add_row(f"[bold]{one['name']}[/]", str(one["default"]), escape(one["help"] + choices))
    console = console_of()
    console.print(table)
    if (reason := rows[name]["why_not_here"]) is not None:
        console.print(f"\n[bold]{name}[/] cannot run here: {escape(reason)}")
    console.print(f"\nSet them like this: enginebench serve --engine {name} -o option=value")


@engines_app.command()
def install(
    name: Annotated[str, typer.Argument(help="An engine that needs an environment of its own.", show_default=False)],
    device: Annotated[
        Literal["auto", "cpu", "cuda"], typer.Option(help="Which packages: auto takes cuda where there is a GPU.")
    ] = "auto",
) -> None:
    """Make the environment of an engine in the user's cache, or continue an interrupted installation.

    enginebench's own environment is not changed. UV_TORCH_BACKEND=cpu takes the small build of torch from PyTorch's
    own index.

    Example:  enginebench engines install vllm
    """
    from engines.contract.base import EngineUnavailable
    from engines.models.progress import terminal_progress

    environment = _environment(name)
    began = time.monotonic()
    try:
        # Lines, not bars: uv draws its own.
        with terminal_progress(bars=False) as progress:
            folder = environment.install(None if device == "auto" else device, progress)
    except EngineUnavailable as error:
        fail(f"{name} cannot be installed: {error}")
    typer.echo(f"{name} is installed in {folder} ({time.monotonic() - began:.0f} s).")


@engines_app.command()
def uninstall(name: Annotated[str, typer.Argument(help="An installed engine.", show_default=False)]) -> None:
    """Remove the environment that `install` made.

    Example:  enginebench engines uninstall vllm
    """
    from engines.models.progress import terminal_progress

    environment = _environment(name)
    with terminal_progress(bars=False) as progress:
        removed = environment.uninstall(progress)
    typer.echo(f"{environment.folder} is removed." if removed else f"{name} is not installed.")


def _rows(name: str | None = None) -> dict[str, dict[str, Any]]:
    """What is known of every engine, or of one, by name."""
    from engines.contract.registry import engine_class, names, settings, spec

    try:
        specs = {one: spec(one) for one in (names() if name is None else [name])}
    except ValueError as error:
        fail(str(error))
    return {
        one: asdict(known)
        | {
            "name": one,
            "version": engine_class(one).version_here(),
            "why_not_here": engine_class(one).why_not_here(),
            "options": [
                {"name": each.name, "default": each.default, "choices": each.choices, "help": each.help}
                for each in settings(one)
            ],
        }
        for one, known in specs.items()
    }


def _check(name: str, given: list[str]) -> None:
    from engines.contract.registry import check_options
    from settings_schema import options_by_engine

    try:
        check_options(name, options_by_engine(given, [name])[name])
    except ValueError as error:
        fail(f"{name}: {error}")


def _environment(name: str) -> Any:
    from engines.contract.registry import engine_class, names
    from engines.process.installed import InstalledEngine

    try:
        kind = engine_class(name)
    except ValueError as error:
        fail(str(error))
    if not issubclass(kind, InstalledEngine):
        own = [one for one in names() if issubclass(engine_class(one), InstalledEngine)]
        fail(f"{name} needs no environment of its own; these do: {', '.join(own)}.")
    return kind.environment
