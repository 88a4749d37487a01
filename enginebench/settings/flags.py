"""Declared settings as flags of a typer command.

    @app.command()
    @with_flags(ServerSettings)
    def serve(engine: str, **flags: Any) -> None:
        settings = read_settings(ServerSettings, flags)

A flag takes precedence over its environment variable, which takes precedence over the default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar

import typer

from enginebench.settings.schema import MOST_USED, Setting, from_environment, from_text, settings_of
from enginebench.settings.units import parse_seconds


def duration(least: float) -> Callable[[str], float]:
    """Return the parser of an option in seconds: `500ms`, `5s`, `2m`, `1h`, or a bare number."""

    def parse(text: str) -> float:
        try:
            seconds = parse_seconds(str(text))
        except ValueError:
            raise typer.BadParameter(f"it is a time such as 500ms, 5s, 2m or 1h, not `{text}`.") from None
        if not seconds >= least:
            raise typer.BadParameter(f"it is {least:g} s or more, not {text}.")
        return seconds

    return parse


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
MODEL_HELP = "Model to load: a preset, a folder, a .gguf file or a Hugging Face id. Default: smollm2-135m."
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")]
EngineSettings = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="[ENGINE.]NAME=VALUE", help="Set an option of all engines, or of one."),
]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine",
        metavar="[NAME=]ENGINE",
        help="Serve and test this engine; may be repeated, each as NAME=…, to compare.",
    ),
]
Urls = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        metavar="[NAME=]URL",
        help="Test the OpenAI-compatible server at this address; may be repeated, each as NAME=…, to compare.",
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        metavar="[NAME=]MODEL",
        help="Model that the engines load, or to request from --url; may be repeated, to compare models.",
    ),
]
Processes = Annotated[
    int, typer.Option("--processes", metavar="N", min=1, help="Client processes that share the load.")
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="TIME",
        parser=duration(60),
        help="Stop and report within this time: 90s, 8m, 2h. The same command resumes.",
    ),
]
AllowInvalid = Annotated[bool, typer.Option("--allow-invalid", help="Do not exit with 2 because of invalid runs.")]
"""Options of several commands."""

Command = TypeVar("Command", bound=Callable[..., None])
Flags = Mapping[str, str | bool | list[str] | None]  # values by setting; None or False: the flag was not used


def with_flags(*declared: type[Any], leave_out: Collection[str] = ()) -> Callable[[Command], Command]:
    """Replace a command's `**flags` by one flag for each setting of `declared` that is not in `leave_out`."""
    settings = [setting for declaration in declared for setting in settings_of(declaration)]
    flags = [_parameter(setting) for setting in settings if setting.flag and setting.name not in leave_out]

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)  # typer reads the signature
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        command.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
        return command

    return decorate


def typed_texts(declared: type[Any], flags: Flags) -> dict[str, str]:
    """Return the typed texts of settings of `declared`, by name."""
    names = {setting.name for setting in settings_of(declared)}
    texts = {}
    for name, value in flags.items():
        if name in names and value not in (None, False, []):
            texts[name] = "yes" if value is True else "\n".join(value) if isinstance(value, list) else str(value)
    return texts


def read_settings(declared: type[Any], flags: Flags) -> Any:
    """Make an instance of `declared` from flags, variables and defaults. Raises `ValueError` with a sentence."""
    return from_text(declared, from_environment(declared) | typed_texts(declared, flags), flags=True)


def _parameter(setting: Setting) -> inspect.Parameter:
    """Return a flag that takes plain text. The schema reads it, so flags, variables and web pages share a grammar."""
    default = setting.text(setting.default)
    option = typer.Option(
        setting.flag,
        help=f"{setting.help} Default: {default}." if default and not setting.is_switch else setting.help,
        metavar=None if setting.is_switch else setting.metavar or "|".join(setting.choices) or None,
        rich_help_panel=None if setting.group == MOST_USED else setting.group or None,
        show_default=False,
    )
    hint: Any = bool if setting.is_switch else list[str] | None if setting.repeatable else str | None
    unused = False if setting.is_switch else None
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=unused, annotation=Annotated[hint, option]
    )
