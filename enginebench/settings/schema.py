"""Settings declared once, as the fields of a frozen dataclass; flags, variables, help and documentation follow from it.

    @dataclass(frozen=True, slots=True)
    class ServerSettings:
        port: int = setting(8000, "Port to listen on; 0 takes a free one.", metavar="PORT", least=0)
        api_key: str | None = setting(None, "Key that clients must send.", flag="", secret=True)

`from_text` reads such a class from text, whether it came from `-o name=value`, a flag, a variable or a web page;
`enginebench.settings.flags` makes a typer command's flags of it.
Standard library and `units` only: engines in foreign environments import it too.
"""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal

from enginebench.settings.units import parse_seconds

PREFIX = "ENGINEBENCH_"
LISTENER, ENGINE_PREFIX = "ENGINEBENCH_LISTENER", "ENGINEBENCH_ENGINE_PREFIX"
"""The variables that `enginebench run` sets for its server: the descriptor of the socket to listen on, and
the command of the profiler that starts the engine."""
MOST_USED = "Most used"
"""The group that comes first in `--help`, among the command's own options."""
SECONDS = "S"  # the metavar of durations
Address = tuple[str, int]


class UserMistake(ValueError):
    """A mistake that a user can correct: one sentence, with the choices or the remedy.

    Raised anywhere. Only `enginebench/cli.py` prints it and exits with 2; under Locust, the code that starts a test.
    """


@dataclass(frozen=True, slots=True)
class Setting:
    """A declared field. `flag` is what people type; it is empty if the value comes only from the environment."""

    name: str
    default: Any
    help: str
    hint: Any
    flag: str
    metavar: str | None
    least: float | None
    most: float | None
    read: Callable[[str], Any] | None
    write: Callable[[Any], str] | None
    group: str
    secret: bool
    on_page: bool
    repeatable: bool
    tune: str

    @property
    def shown_name(self) -> str:
        return self.flag or self.variable

    @property
    def variable(self) -> str:
        return PREFIX + (self.flag or self.name).lstrip("-").replace("-", "_").upper()

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the allowed texts if they form a short list."""
        hint = _without_none(self.hint)
        return tuple(map(str, typing.get_args(hint))) if typing.get_origin(hint) is Literal else ()

    @property
    def is_switch(self) -> bool:
        return self.hint is bool

    def text(self, value: Any) -> str:
        """Write `value` as a person would type it; empty for `None`."""
        if value is None:
            return "none" if self.default is not None else ""
        if self.write is not None:
            return self.write(value)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return f"{value:g}" if isinstance(value, float) else str(value)

    def parse(self, text: str) -> Any:
        """Parse the text. Raises `UserMistake` with a sentence that says what is expected."""
        if text.strip().lower() in {"", "none"} and _is_optional(self.hint):
            return None
        value = self._read(text)
        if value is not None:
            if self.least is not None and not value >= self.least:
                raise UserMistake(f"{self.shown_name} is {self.least:.15g} or more, not {text}.")
            if self.most is not None and not value <= self.most:
                raise UserMistake(f"{self.shown_name} is {self.most:.15g} or less, not {text}.")
        return value

    def _read(self, text: str) -> Any:
        hint = _without_none(self.hint)
        if self.read is not None:
            try:
                return self.read(text)
            except ValueError as error:
                raise UserMistake(str(error)) from None
        if self.choices:
            if text not in self.choices:
                raise UserMistake(f"{self.shown_name} is one of {', '.join(self.choices)}, not `{text}`.")
            return text
        if hint is bool:
            lowered = text.strip().lower()
            if lowered in {"1", "true", "yes", "on"}:
                return True
            if lowered in {"0", "false", "no", "off", ""}:
                return False
            raise UserMistake(f"{self.shown_name} is true or false, not `{text}`.")
        try:
            return parse_seconds(text) if hint is float and self.metavar == SECONDS else hint(text)
        except ValueError:
            if self.metavar == SECONDS:
                raise UserMistake(f"{self.shown_name} is a time such as 500ms, 5s, 2m or 1h, not `{text}`.") from None
            kind = {int: "a whole number", float: "a number"}.get(hint, f"a {hint.__name__}")
            raise UserMistake(f"{self.shown_name} is {kind}, not `{text}`.") from None


def choose_from(name: str, choices: Iterable[str]) -> str:
    """Return the remedy for an unknown name: `did you mean `vllm`?`, or all choices."""
    names = list(choices)
    near = get_close_matches(name, names, n=1)
    return f"did you mean `{near[0]}`?" if near else f"choose from {', '.join(names) or 'none'}."


def setting(
    default: Any,
    help: str,
    *,
    flag: str | None = None,
    metavar: str | None = None,
    least: float | None = None,
    most: float | None = None,
    read: Callable[[str], Any] | None = None,
    write: Callable[[Any], str] | None = None,
    group: str = "",
    secret: bool = False,
    on_page: bool = True,
    repeatable: bool = False,
    tune: str = "",
) -> Any:
    """Declare a dataclass field as a setting.

    `least` and `most` are inclusive bounds. `read` and `write` translate between text and a value that is not a plain
    number, word or path; `read` raises `ValueError` with a sentence. `flag` replaces `--field-name`; `""` means that a
    setting has a variable and no flag. A `secret` is never shown, written to a file or put on a command line of our
    own; `on_page=False` keeps a setting off Locust's web page. Several values of a `repeatable` setting are read as one
    text of several lines. `tune` has the values that `enginebench tune` tries: "16,64" or "16..256", in which `cores`
    is the number of cores.
    """
    declared = {name: value for name, value in locals().items() if name != "default"}
    return dataclasses.field(default=default, repr=not secret, metadata=declared)


def settings_of(declared: type[Any], flags: bool = True) -> tuple[Setting, ...]:
    """Return the settings that a dataclass declares, in order. Without `flags` they have the fields' names."""
    hints = typing.get_type_hints(declared)
    return tuple(
        Setting(
            name=field.name,
            default=field.default,
            hint=hints[field.name],
            **dict[str, Any](field.metadata, flag=_flag(field) if flags else f"option `{field.name}`"),
        )
        for field in dataclasses.fields(declared)
        if "help" in field.metadata
    )


def from_text(declared: type[Any], texts: Mapping[str, str], flags: bool = False) -> Any:
    """Make an instance of `declared` from texts by field name; fields without a text keep their defaults.

    Raises `UserMistake` with a sentence, for an unknown name with the choices.
    """
    settings = {setting.name: setting for setting in settings_of(declared, flags)}
    values = {}
    for name, text in texts.items():
        if name not in settings:
            raise UserMistake(f"no option called `{name}`; {choose_from(name, sorted(settings))}")
        values[name] = settings[name].parse(text)
    return declared(**values)


def from_environment(declared: type[Any]) -> dict[str, str]:
    """Return texts by field name, for the settings whose variable is set."""
    settings = settings_of(declared)
    return {setting.name: os.environ[setting.variable] for setting in settings if setting.variable in os.environ}


def options_by_engine(typed: Iterable[str], engines: Iterable[str]) -> dict[str, dict[str, str]]:
    """Read `["a=1", "fake.b=2"]`: `a` for every engine, `b` for `fake`. The last value of an option counts.

    Raises `UserMistake` with a sentence.
    """
    options: dict[str, dict[str, str]] = {engine: {} for engine in engines}
    for option in typed:
        name, equals, value = option.partition("=")
        engine, dot, of_one = name.partition(".")
        if not (equals and name):
            raise UserMistake(
                f"an engine's setting is name=value, or engine.name=value for one of them, not `{option}`."
            )
        if not dot:
            for values in options.values():
                values[name.strip()] = value
        elif engine in options:
            options[engine][of_one.strip()] = value
        else:
            raise UserMistake(f"`-o {option}` is for `{engine}`, which is not among the engines: {', '.join(options)}.")
    return options


def read_address(text: str) -> Address:
    """Read `127.0.0.1:9646` or `[::1]:9646`. Raises `UserMistake` with a sentence."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise UserMistake(f"an address is HOST:PORT, such as 127.0.0.1:9646, or none, not `{text}`.")
    return host.strip("[]"), int(port)


def write_address(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def write_list(values: Iterable[Any]) -> str:
    return ",".join(map(str, values))


def whole_numbers(text: str) -> list[int]:
    """Read `"10,20-40:10"` → 10, 20, 30, 40: numbers, and inclusive ranges with a step. Raises `ValueError`."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, rest = part.strip().partition("-")
        if dash:
            last, _, by = rest.partition(":")
            if not (part_numbers := range(int(first), int(last) + 1, int(by or first))):
                raise ValueError(f"an empty range: {part}")
            numbers += part_numbers
        else:
            numbers.append(int(first))
    return numbers


def read_sizes(text: str) -> tuple[int, ...]:
    """Read `"512,32"` → 32, 512: distinct whole numbers from 1, ascending; none if empty. Raises `UserMistake`."""
    try:
        numbers = sorted(set(whole_numbers(text))) if text.strip() else []
    except ValueError:
        numbers = [0]
    if numbers and numbers[0] < 1:
        raise UserMistake(f"whole numbers from 1 with commas between are expected, as in 1,4,16, not `{text}`.")
    return tuple(numbers)


def table(declared: type[Any], flags: bool = True) -> str:
    """Write the settings as a Markdown table, for the documentation."""
    rows = ["| setting | default | what it sets |", "|---|---|---|"]
    for setting in settings_of(declared, flags):
        default = setting.text(setting.default)
        name = setting.shown_name if flags else setting.name
        values = (" " if flags else "=").join(filter(None, (name, setting.metavar or "|".join(setting.choices))))
        cells = (f"`{values}`", f"`{default}`" if default else "", setting.help)
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


def _flag(field: dataclasses.Field[Any]) -> str:
    flag: str | None = field.metadata["flag"]
    return f"--{field.name.replace('_', '-')}" if flag is None else flag


def _is_optional(hint: Any) -> bool:
    return typing.get_origin(hint) in {types.UnionType, typing.Union} and type(None) in typing.get_args(hint)


def _without_none(hint: Any) -> Any:
    if not _is_optional(hint):
        return hint
    arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
    return arms[0] if len(arms) == 1 else hint
