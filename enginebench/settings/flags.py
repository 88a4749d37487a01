"""Declared settings as flags of a typer command.

    @app.command()
    @with_flags(ServerSettings)
    def serve(engine: str, **given: Any) -> None:
        settings = read_settings(ServerSettings, given)

A flag counts before its environment variable, and that before the default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar

import typer

from enginebench.settings.schema import MOST_USED, Setting, from_environment, from_text, settings_of
from enginebench.settings.units import parse_seconds

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
TrustRemoteCode = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that comes with the model.")]
EngineSettings = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="[ENGINE.]NAME=VALUE", help="Set an option of all engines, or of one."),
]
Profile = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="After all measurements, run a profiler against each engine under load: py-spy, nsys, or a command with "
        "{pid}, the engine's process id.",
    ),
]
"""Options that several commands have."""

Command = TypeVar("Command", bound=Callable[..., None])
Given = Mapping[str, str | bool | list[str] | None]  # by the settings' names; None or False: the flag was not used


def with_flags(*declared: type[Any], leave_out: Collection[str] = ()) -> Callable[[Command], Command]:
    """Replace a command's `**given` by one flag for each setting of `declared` that is not in `leave_out`."""
    offered = [one for each in declared for one in settings_of(each) if one.flag and one.name not in leave_out]
    flags = [_parameter(one) for one in offered]

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)  # typer reads the signature
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        command.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
        return command

    return decorate


def given_texts(declared: type[Any], given: Given) -> dict[str, str]:
    """Return the texts that were typed for settings of `declared`, by name."""
    names = {setting.name for setting in settings_of(declared)}
    texts = {}
    for name, value in given.items():
        if name in names and value not in (None, False, []):
            texts[name] = "yes" if value is True else "\n".join(value) if isinstance(value, list) else str(value)
    return texts


def read_settings(declared: type[Any], given: Given) -> Any:
    """Make an instance of `declared` from flags, variables and defaults. Raises `ValueError` with a sentence."""
    return from_text(declared, from_environment(declared) | given_texts(declared, given), flags=True)


def _parameter(one: Setting) -> inspect.Parameter:
    """The flag takes plain text, which the schema reads: so flags, variables and web pages have the same grammar."""
    default = one.text(one.default)
    option = typer.Option(
        one.flag,
        help=f"{one.help} Default: {default}." if default and not one.is_switch else one.help,
        metavar=None if one.is_switch else one.metavar or "|".join(one.choices) or None,
        rich_help_panel=None if one.group == MOST_USED else one.group or None,
        show_default=False,
    )
    hint: Any = bool if one.is_switch else list[str] | None if one.repeatable else str | None
    unused = False if one.is_switch else None
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=unused, annotation=Annotated[hint, option]
    )


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
