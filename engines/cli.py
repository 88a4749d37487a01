"""The commands `engines` and `models`. Tables on standard output, progress on standard error."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from enginebench.settings.console import small_table, stdout
from enginebench.settings.flags import AsJson, TrustRemoteCode
from enginebench.settings.schema import UserMistake

SHOW = "show"
SHOWN = ("name", "source", "licence", "parameters", "hub_id", "architecture", "context_length")  # for each model


class NamesToo(TyperGroup):
    """`engines NAME` is short for `engines show NAME`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            args = [SHOW, *args]
        return super().resolve_command(ctx, args)


app = typer.Typer()
engines_app = typer.Typer(cls=NamesToo, invoke_without_command=True, subcommand_metavar="[NAME | COMMAND NAME]")
models_app = typer.Typer(invoke_without_command=True)
app.add_typer(engines_app, name="engines")
app.add_typer(models_app, name="models")


@engines_app.callback()
def engines(context: typer.Context, as_json: AsJson = False) -> None:
    """List the engines and which of them can run on this machine, or the options of one.

    Examples:

      enginebench engines transformers

      enginebench engines install vllm
    """
    if context.invoked_subcommand is not None:
        return
    from rich.padding import Padding

    rows = _rows()
    if as_json:
        _print_json(list(rows.values()))
        return
    runnable = {name: row for name, row in rows.items() if row["why_not_here"] is None}
    table = small_table("runs here", "version", "batching", "what it is")
    for name, row in runnable.items():
        table.add_row(f"[bold]{name}[/]", row["version"] or "", row["batching"], _escape(row["title"]))
    reasons: dict[str, list[str]] = {}  # by the reason: the engines that cannot run here
    for name, row in rows.items():
        if name not in runnable:
            reasons.setdefault(row["why_not_here"], []).append(name)
    console = stdout(markup=True)
    console.print(table)
    if reasons:
        console.print("\nnot here")
    for reason, lacking in reasons.items():
        console.print(f"\n[bold]{', '.join(lacking)}[/]")
        console.print(Padding(_escape(reason), (0, 0, 0, 2)), style="dim")
    console.print(f"\n{len(runnable)} of {len(rows)} engines can run here; `enginebench engines NAME` shows options.")


@engines_app.command(SHOW, hidden=True)
def show(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="An engine.", show_default=False)],
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", metavar="NAME=VALUE", help="Check this option's value.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Check that there is such a model, and memory for it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the options of one engine."""
    rows = _rows(name)
    _check(name, option or [], model)  # for `run`, which does not import engines
    if as_json or (context.parent is not None and context.parent.params.get("as_json")):
        _print_json(list(rows.values()))
        return
    table = small_table("option", "default", "what it sets")
    for option_row in rows[name]["options"]:
        choices = f" ({', '.join(option_row['choices'])})" if option_row["choices"] else ""
        table.add_row(
            f"[bold]{option_row['name']}[/]", str(option_row["default"]), _escape(option_row["help"] + choices)
        )
    console = stdout(markup=True)
    console.print(table)
    if (reason := rows[name]["why_not_here"]) is not None:
        console.print(f"\n[bold]{name}[/] cannot run here: {_escape(reason)}")
    console.print(f"\nSet them like this: enginebench serve {name} -o option=value")


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
    from engines.contract.errors import EngineUnavailable
    from engines.models.progress import terminal_progress

    environment = _environment(name)
    began = time.monotonic()
    try:
        # Lines, not bars: uv draws its own.
        with terminal_progress(bars=False) as progress:
            folder = environment.install(None if device == "auto" else device, progress)
    except EngineUnavailable as error:
        raise UserMistake(f"{name} cannot be installed: {error}") from None
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
    """Return the facts about every engine, or about one, by name."""
    from engines.contract.registry import engine_class, names, settings, spec

    specs = {engine: spec(engine) for engine in (names() if name is None else [name])}
    kinds = {engine: engine_class(engine) for engine in specs}
    return {
        engine: asdict(facts)
        | {
            "name": engine,
            "language": kinds[engine].language,
            "version": kinds[engine].version_here(),
            "compiler": kinds[engine].compiler_here(),
            "why_not_here": kinds[engine].why_not_here(),
            "options": [
                {"name": option.name, "default": option.default, "choices": option.choices, "help": option.help}
                for option in settings(engine)
            ],
        }
        for engine, facts in specs.items()
    }


def _check(name: str, options: list[str], model: str | None) -> None:
    from enginebench.settings.schema import options_by_engine
    from engines.models.fetch import check_name
    from engines.process.engine_loading import check_before_download

    try:
        if model is not None:
            check_name(model)
        check_before_download(name, options_by_engine(options, [name])[name], model)
    except UserMistake as mistake:
        raise UserMistake(f"{name}: {mistake}") from None


def _environment(name: str) -> Any:
    from engines.contract.registry import engine_class, names
    from engines.process.environments import InstalledEngine

    kind = engine_class(name)
    if not issubclass(kind, InstalledEngine):
        own = [engine for engine in names() if issubclass(engine_class(engine), InstalledEngine)]
        raise UserMistake(f"{name} needs no environment of its own; these do: {', '.join(own)}.")
    return kind.environment


@models_app.callback()
def models(context: typer.Context, as_json: AsJson = False) -> None:
    """List the named models, or fetch one.

    Other models: a folder, a .gguf file, owner/name on the Hugging Face hub, or random:NAME (random weights).

    Example:  enginebench models fetch smollm2-135m
    """
    if context.invoked_subcommand is not None:
        return
    from engines.models.presets import PRESETS, SHOWN_FORMATS

    if as_json:
        _print_json(
            [
                {name: getattr(preset, name) for name in SHOWN}
                | {"memory_bytes": {format: preset.memory_bytes(format) for format in SHOWN_FORMATS}}
                for preset in PRESETS.values()
            ]
        )
        return
    table = small_table("model\nsource", "licence\narchitecture")
    for column in ("params (M)\ncontext", "f32, f16 GB\n8, 4-bit GB"):
        table.add_column(column, justify="right", no_wrap=True)
    for preset in PRESETS.values():
        f32, f16, eight, four = (f"{preset.memory_bytes(format) / 1e9:5.1f}" for format in SHOWN_FORMATS)
        table.add_row(
            f"[bold]{preset.name}[/]\n[dim]{preset.source}[/]",
            f"{preset.licence}\n[dim]{preset.architecture}[/]",
            f"{preset.parameters / 1e6:,.0f}\n[dim]{preset.context_length:,}[/]",
            f"{f32}{f16}\n[dim]{eight}{four}[/]",
        )
    console = stdout(markup=True)
    console.print(table)
    console.print(
        "\nGB are weights plus the cache of one sequence of 4096 tokens; context is in tokens. smollm2-135m is the "
        "default; random:NAME has a model's shape and random weights."
    )


@models_app.command()
def fetch(
    spec: Annotated[str, typer.Argument(help="A preset, a .gguf file, owner/name on the hub, or random:NAME.")],
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Download and convert a model, and print its folder.

    Example:  enginebench models fetch Qwen/Qwen2.5-0.5B-Instruct
    """
    from engines.models.fetch import fetch_and_show

    model = fetch_and_show(spec, trust_remote_code)
    if as_json:
        _print_json(asdict(model))
    else:
        typer.echo(model.folder)


def _escape(text: str) -> str:
    from rich import markup

    return markup.escape(text)


def _print_json(document: Any) -> None:
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False, default=str)
    sys.stdout.write("\n")
