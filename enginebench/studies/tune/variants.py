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
from typing import Any

import psutil

from enginebench.settings.schema import UserMistake
from engines.contract.registry import check_options, settings
from loadtests.harness.command.contenders import Contender
from loadtests.harness.command.restarted_server import fill

DEFAULT = "default"
RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Axis:
    """An option with the values to try. Values between the `ends` of a range may be proposed."""

    name: str
    values: tuple[str, ...]
    ends: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """A contender with all options; `entrant` is its name without options."""

    contender: Contender
    entrant: str

    @property
    def name(self) -> str:
        return self.contender.name


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender, and the axes of its variants. All variants have the `fixed` options. The contender's `restart` has
    placeholders for the options, whose first values are the default."""

    contender: Contender
    fixed: Mapping[str, str]
    axes: tuple[Axis, ...]
    alone: bool

    @property
    def size(self) -> int:
        return math.prod(len(axis.values) for axis in self.axes)

    @property
    def default(self) -> Variant:
        first = {axis.name: axis.values[0] for axis in self.axes}
        return self.variant(first if self.contender.restart else {}, DEFAULT)

    @property
    def variants(self) -> list[Variant]:
        """Return the default, then the other combinations of all values."""
        grid = itertools.product(*([(axis.name, value) for value in axis.values] for axis in self.axes))
        different = [dict(values) for values in grid if not self._is_default(dict(values))]
        return [self.default, *map(self.variant, different)]

    def variant(self, values: Mapping[str, str], name: str = "") -> Variant:
        name = name or " ".join(f"{option}={value}" for option, value in values.items())
        if not self.alone:
            name = f"{self.contender.name} {name}" if self.axes else self.contender.name
        options = {**self.fixed, **values}
        if self.contender.restart:
            contender = replace(self.contender, name=name, restart=fill(self.contender.restart, options))
        else:
            typed = tuple(f"{option}={value}" for option, value in options.items())
            contender = replace(self.contender, name=name, options=typed)
        return Variant(contender, self.contender.name)

    def _is_default(self, values: Mapping[str, str]) -> bool:
        if self.contender.url:
            return all(values[axis.name] == axis.values[0] for axis in self.axes)
        return self._parsed(values) == self._parsed({})

    def _parsed(self, values: Mapping[str, str]) -> tuple[Any, Any]:
        checked = check_options(self.contender.engine, {**self.fixed, **values})
        return checked.shared, checked.parsed


def entrants(contenders: Sequence[Contender], chosen: Mapping[str, str]) -> list[Entrant]:
    """Return the contenders with the values of their options, by default those that their engines declare. `chosen` has
    the options for a server that is restarted. Raises `UserMistake`."""
    entered = []
    for contender in contenders:
        if contender.engine:
            axes = _engine_axes(contender)
        else:
            axes = [_axis(name, text) for name, text in chosen.items()]
            fill(contender.restart, chosen)
        fixed = {axis.name: axis.values[0] for axis in axes if len(axis.values) == 1}
        tried = tuple(axis for axis in axes if axis.name not in fixed)
        entered.append(Entrant(contender, fixed, tried, len(contenders) == 1))
    if sum(entrant.size for entrant in entered) < 2:
        engine = contenders[0].engine
        raise UserMistake(
            f"{engine} declares no options worth tuning: name them, such as -o NAME=16,64."
            if engine
            else "there is nothing to tune: give --restart 'COMMAND with {NAME}' and -o NAME=16,64, or several --url."
        )
    return entered


def _engine_axes(contender: Contender) -> list[Axis]:
    """Return an engine's axes. Raises `UserMistake` for an unknown option or an invalid value."""
    texts = dict(option.split("=", 1) for option in contender.options)
    axes = [_axis(name, text) for name, text in texts.items()]
    if all(len(axis.values) == 1 for axis in axes):
        declared = {setting.name: setting.tune for setting in settings(contender.engine) if setting.tune}
        axes += [_axis(name, text) for name, text in declared.items() if name not in texts]
    for axis in axes:
        for value in axis.values:
            check_options(contender.engine, {axis.name: value})
    return axes


def _axis(name: str, text: str) -> Axis:
    """Read an axis. Raises `UserMistake` for a range without two ends above zero."""
    if match := RANGE.fullmatch(text.strip()):
        low, high = float(match[1]), float(match[2])
        if not 0 < low < high:
            raise UserMistake(f"a range is LOW..HIGH with 0 < LOW < HIGH, as in 512..8192, not `{text}`.")
        steps = [low * 2**k for k in range(math.ceil(math.log2(high / low) - 1e-9))]
        return Axis(name, tuple(f"{step:.10g}" for step in (*steps, high)), (low, high))
    cores = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else psutil.cpu_count() or 1
    words = {"cores": cores, "cores/2": max(cores // 2, 1)}
    values = (value.strip() for value in text.split(","))
    return Axis(name, tuple(dict.fromkeys(str(words.get(value, value)) for value in values)))
