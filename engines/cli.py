"""The commands `engines`, `models` and `doctor`. Tables on standard output, progress on standard error."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from engines.command.listing import engines_app
from engines.command.terminal import AsJson, console_of, escape, fail, mark, print_json, table_of

app = typer.Typer()
models_app = typer.Typer(invoke_without_command=True)
app.add_typer(engines_app, name="engines")
app.add_typer(models_app, name="models")


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
        print_json(
            [
                {name: value for name, value in asdict(preset).items() if name != "config"}
                | {"architecture": preset.architecture, "context_length": preset.context_length}
                | {"memory_bytes": {dtype: preset.memory_bytes(dtype) for dtype in WEIGHT_BYTES}}
                for preset in PRESETS.values()
            ]
        )
        return
    table = table_of("model\nsource", "licence\narchitecture")
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
    console = console_of()
    console.print(table)
    console.print(
        "\nGB are weights plus the cache of one sequence of 4096 tokens; context is in tokens. smollm2-135m is the "
        "default; random:NAME has a model's shape and random weights."
    )


@models_app.command()
def fetch(
    spec: Annotated[str, typer.Argument(help="A preset, a .gguf file, owner/name on the hub, or random:NAME.")],
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run Python code that comes with the model.")
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
        fail(str(error))
    if as_json:
        gguf = None if model.gguf is None else str(model.gguf)
        print_json(
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
    from engines.command.doctor import examine
    from engines.machine.cuda import by_outcome

    checks = examine()
    broken = [check for check in checks if check.required and not check.ok]
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        table = table_of("check", "", "found")
        for check in by_outcome(checks):
            remedy = "" if check.ok else f"\n[dim]{escape(check.remedy)}[/]"
            table.add_row(check.name, mark(check.ok, check.required), escape(check.found) + remedy)
        console = console_of()
        console.print(table)
        optional = sum(not check.ok for check in checks) - len(broken)
        console.print(
            f"\nenginebench cannot work here until this is fixed: {', '.join(check.name for check in broken)}."
            if broken
            else f"\nenginebench works here; {optional} optional {'item' if optional == 1 else 'items'} missing."
        )
    if broken:
        raise typer.Exit(2)
