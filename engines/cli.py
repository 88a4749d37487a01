"""The commands `engines`, `models` and `doctor`. Tables on standard output, progress on standard error."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer()
models_app = typer.Typer(invoke_without_command=True)
app.add_typer(models_app, name="models")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]


@app.command()
def engines(
    name: Annotated[str | None, typer.Argument(help="Show the options of this engine.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """List the engines and which of them can run on this machine, or the options of one.

    Example:  enginebench engines transformers
    """
    from engines.contract.registry import engine_class, names
    from engines.contract.registry import spec as spec_of

    try:
        chosen = names() if name is None else [name]
        specs = {one: spec_of(one) for one in chosen}
    except ValueError as error:
        _fail(str(error))
    reasons = {one: engine_class(one).why_not_here() for one in specs}
    versions = {one: engine_class(one).version_here() for one in specs}
    if as_json:
        _print_json(
            [
                asdict(spec)
                | {
                    "name": one,
                    "version": versions[one],
                    "why_not_here": reasons[one],
                    "options": _options(one),
                }
                for one, spec in specs.items()
            ]
        )
        return
    console = _console()
    if name is None:
        table = _table("engine", "version", "what it is", "language", "batching", "here")
        for one, spec in specs.items():
            here = _mark(reasons[one] is None)
            table.add_row(f"[bold]{one}[/]", versions[one] or "", spec.title, spec.language, spec.batching, here)
    else:
        table = _table("option", "default", "what it sets")
        for option in _options(name):
            choices = f" ({', '.join(option['choices'])})" if option["choices"] else ""
            table.add_row(f"[bold]{option['name']}[/]", str(option["default"]), _escape(option["help"] + choices))
    console.print(table)
    for one, reason in reasons.items():
        if reason is not None:
            console.print(f"\n[bold]{one}[/] cannot run here: {_escape(reason)}")
    if name is None:
        runnable = sum(reason is None for reason in reasons.values())
        console.print(f"\n{runnable} of {len(reasons)} engines can run here; `enginebench engines NAME` shows options.")
    else:
        console.print(f"\nSet them like this: enginebench serve --engine {name} -o option=value")


def _options(name: str) -> list[dict[str, Any]]:
    from engines.contract.registry import engine_class
    from settings_schema import settings_of

    declared = settings_of(engine_class(name).Options, flags=False)
    return [{"name": one.name, "default": one.default, "choices": one.choices, "help": one.help} for one in declared]


@models_app.callback()
def models(context: typer.Context, as_json: AsJson = False) -> None:
    """List the named models, or fetch one.

    Other models: a folder, a .gguf file, owner/name on the Hugging Face hub, or random:NAME (random weights).

    Example:  enginebench models fetch smollm2-135m
    """
    if context.invoked_subcommand is not None:
        return
    from engines.models.presets import PRESETS, WEIGHT_BYTES

    if as_json:
        _print_json(
            [
                {name: value for name, value in asdict(preset).items() if name != "config"}
                | {"architecture": preset.architecture, "context_length": preset.context_length}
                | {"memory_bytes": {dtype: preset.memory_bytes(dtype) for dtype in WEIGHT_BYTES}}
                for preset in PRESETS.values()
            ]
        )
        return
    table = _table("model\nsource", "licence\narchitecture")
    for column in ("params (M)\ncontext", "f32, f16 GB\n8, 4-bit GB"):
        table.add_column(column, justify="right", no_wrap=True)
    for preset in PRESETS.values():
        f32, f16, eight, four = (f"{preset.memory_bytes(dtype) / 1e9:5.1f}" for dtype in WEIGHT_BYTES)
        table.add_row(
            f"[bold]{preset.name}[/]\n[dim]{preset.source}[/]",
            f"{preset.licence}\n[dim]{preset.architecture}[/]",
            f"{preset.parameters / 1e6:,.0f}\n[dim]{preset.context_length:,}[/]",
            f"{f32}{f16}\n[dim]{eight}{four}[/]",
        )
    console = _console()
    console.print(table)
    console.print(
        "\nGB are weights plus the cache of one sequence of 4096 tokens; context is in tokens. smollm2-135m is the "
        "default; random:NAME has a model's shape and random weights."
    )


@models_app.command()
def fetch(
    spec: Annotated[str, typer.Argument(help="A preset, a .gguf file, owner/name on the hub, or random:NAME.")],
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Run Python code that comes with the model."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Download and convert a model, and print its folder.

    Example:  enginebench models fetch Qwen/Qwen2.5-0.5B-Instruct
    """
    from engines.contract.base import EngineUnavailable
    from engines.models.fetch import fetch_model
    from engines.models.progress import terminal_progress

    try:
        with terminal_progress() as progress:
            model = fetch_model(spec, trust_remote_code=trust_remote_code, progress=progress)
    except (ValueError, EngineUnavailable) as error:
        _fail(str(error))
    if as_json:
        gguf = None if model.gguf is None else str(model.gguf)
        _print_json(
            {
                "name": model.name,
                "folder": str(model.folder),
                "gguf": gguf,
                "random_weights": model.random_weights,
                "trust_remote_code": model.trust_remote_code,
            }
        )
    else:
        typer.echo(model.folder)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check this machine: what is installed, what is missing, and how to fix it.

    Exits with 2 only if enginebench cannot work at all.
    """
    from engines.doctor import examine

    checks = examine()
    broken = [check for check in checks if check.required and not check.ok]
    if as_json:
        _print_json([asdict(check) for check in checks])
    else:
        table = _table("check", "", "found")
        for check in checks:
            remedy = "" if check.ok else f"\n[dim]{_escape(check.remedy)}[/]"
            table.add_row(check.name, _mark(check.ok, check.required), _escape(check.found) + remedy)
        console = _console()
        console.print(table)
        optional = sum(not check.ok for check in checks) - len(broken)
        console.print(
            f"\nenginebench cannot work here until this is fixed: {', '.join(check.name for check in broken)}."
            if broken
            else f"\nenginebench works here; {optional} optional {'item' if optional == 1 else 'items'} missing."
        )
    if broken:
        raise typer.Exit(2)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False)


def _table(*columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _mark(ok: bool, required: bool = False) -> str:
    if ok:
        return "[green]ok[/]"
    return "[bold red]missing[/]" if required else "[yellow]missing[/]"


def _escape(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _print_json(document: Any) -> None:
    json.dump(document, sys.stdout, indent=2, ensure_ascii=False)
    sys.stdout.write("\n")


def _fail(sentence: str) -> NoReturn:
    typer.echo(sentence, err=True)
    raise typer.Exit(2)
