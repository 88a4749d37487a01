"""The variants of a race: the default of each contender, and combinations of the values of its options.

-o concurrency=16,64,256         these values
-o batch_tokens=512..8192        a range: doubled from its lower end, or proposed by Optuna if there are too many
-o dtype=float16                 a single value is for all variants, the default too
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import psutil

from enginebench.settings.schema import UserMistake
from engines.contract.registry import check_options, settings
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.restarted_server import fill

MAX_VARIANTS = 40  # of a race without proposals
DEFAULT = "default"
RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Axis:
    """An option with the values to try. `low` and `high` are the ends of a range, from which values between may be
    proposed."""

    name: str
    values: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Variant:
    """A contender with its options complete; `entrant` is its name without them. `command` starts its server, if
    --restart does."""

    name: str
    entrant: str
    contender: Contender
    command: str = ""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender, and the axes of its variants. `options` are for all of them. `restart` is the command with
    placeholders, whose first values are the default."""

    contender: Contender
    options: Mapping[str, str]
    axes: tuple[Axis, ...]
    restart: str = ""
    alone: bool = True

    @property
    def size(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    @property
    def grid(self) -> list[Mapping[str, str]]:
        names = [axis.name for axis in self.axes]
        return [dict(zip(names, values, strict=True)) for values in itertools.product(*(a.values for a in self.axes))]

    @property
    def default(self) -> Variant:
        first = {axis.name: axis.values[0] for axis in self.axes} if self.restart else {}
        return self.variant(first, DEFAULT)

    def variant(self, values: Mapping[str, str], name: str = "") -> Variant:
        name = name or " ".join(f"{option}={value}" for option, value in values.items())
        if not self.alone:
            name = f"{self.contender.name} {name}" if self.axes else self.contender.name
        complete = {**self.options, **values}
        options = () if self.restart else tuple(f"{option}={value}" for option, value in complete.items())
        contender = replace(self.contender, name=name, options=options)
        return Variant(name, self.contender.name, contender, fill(self.restart, complete) if self.restart else "")

    def is_default(self, values: Mapping[str, str]) -> bool:
        if self.restart:
            return all(values[axis.name] == axis.values[0] for axis in self.axes)
        engine = self.contender.engine
        checked = [check_options(engine, {**self.options, **own}) for own in (values, {})]
        return (checked[0].shared, checked[0].parsed) == (checked[1].shared, checked[1].parsed)


def entrants(contenders: Sequence[Contender], restart: str, chosen: Mapping[str, str]) -> list[Entrant]:
    """Return the contenders with their axes: those of their options, else of what their engines declare. `chosen` are
    the options for a server that `restart` starts. Raises `UserMistake`."""
    alone = len(contenders) == 1
    entered = []
    for contender in contenders:
        if contender.url:
            axes, fixed = _split({name: _axis(name, text, True) for name, text in chosen.items()})
            fill(restart, dict.fromkeys(chosen, "")) if restart or chosen else None
        else:
            axes, fixed = _of_engine(contender)
        entered.append(Entrant(contender, fixed, axes, restart if contender.url else "", alone))
    if sum(entrant.size for entrant in entered) < 2:
        engine = next((contender.engine for contender in contenders if contender.engine), "")
        raise UserMistake(
            f"{engine} declares no options worth tuning: name them, such as -o NAME=16,64."
            if engine
            else "there is nothing to tune: give --restart 'COMMAND with {NAME}' and -o NAME=16,64, or several --url."
        )
    return entered


def variants_of(entrant: Entrant) -> list[Variant]:
    """Return the default, then the other combinations of all values."""
    combinations = [entrant.variant(values) for values in entrant.grid if values and not entrant.is_default(values)]
    return [entrant.default, *combinations]


def _of_engine(contender: Contender) -> tuple[tuple[Axis, ...], dict[str, str]]:
    """Raises `UserMistake` for an option that does not exist, and a value that it does not take."""
    settings_by_name = {setting.name: setting for setting in settings(contender.engine)}
    texts = dict(option.split("=", 1) for option in contender.options)
    check_options(contender.engine, {name: text for name, text in texts.items() if name not in settings_by_name})
    axes, fixed = _split(
        {name: _axis(name, text, "int" in str(settings_by_name[name].hint)) for name, text in texts.items()}
    )
    if not axes:
        declared = {name: s.tune for name, s in settings_by_name.items() if s.tune and name not in texts}
        axes = tuple(_axis(name, text, "int" in str(settings_by_name[name].hint)) for name, text in declared.items())
    for axis in axes:
        for value in axis.values:
            check_options(contender.engine, {**fixed, axis.name: value})
    return axes, fixed


def _split(axes: Mapping[str, Axis]) -> tuple[tuple[Axis, ...], dict[str, str]]:
    """Separate options with several values from those with a single one."""
    fixed = {name: axis.values[0] for name, axis in axes.items() if len(axis.values) == 1}
    return tuple(axis for name, axis in axes.items() if name not in fixed), fixed


def _axis(name: str, text: str, whole: bool) -> Axis:
    """Raises `UserMistake` for a range without two ends above zero."""
    if match := RANGE.fullmatch(text.strip()):
        low, high = float(match[1]), float(match[2])
        whole = whole and low.is_integer() and high.is_integer()
        if not 0 < low < high:
            raise UserMistake(f"a range is LOW..HIGH with 0 < LOW < HIGH, as in 512..8192, not `{text}`.")
        steps = [low * 2**k for k in range(1 + math.floor(math.log2(high / low) + 1e-9))]
        steps += [high] if steps[-1] < high else []
        return Axis(name, tuple(f"{step:.10g}" for step in steps), low, high, whole)
    cores = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else psutil.cpu_count() or 1
    words = {"cores": cores, "cores/2": max(cores // 2, 1)}
    values = (value.strip() for value in text.split(","))
    return Axis(name, tuple(dict.fromkeys(str(words.get(value, value)) for value in values)))
