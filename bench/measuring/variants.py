"""What is compared: engines, each with its settings; a sweep makes a variant of each value of a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from settings_schema import options_by_engine


@dataclass(frozen=True, slots=True)
class Variant:
    """One engine with one model and one set of options; `label` is unique."""

    label: str
    engine: str
    model: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def variants_of(
    engines: Sequence[str], models: Sequence[str], options: Sequence[str], sweeps: Sequence[str]
) -> list[Variant]:
    """Every engine with every model and every combination of swept values. Raises `ValueError` with a sentence.

    `options` are `[engine.]name=value`, `sweeps` are `[engine.]name=value,value,…`.
    """
    for words, what in ((engines, "engine"), (models, "model")):
        if len(set(words)) < len(words):
            raise ValueError(f"name each {what} once; for several settings of one engine use --sweep name=a,b.")
    fixed, swept = options_by_engine(options, engines), options_by_engine(sweeps, engines)
    return [
        Variant(_label(engine, chosen, model if len(models) > 1 else None), engine, model, fixed[engine] | chosen)
        for engine in engines
        for model in (models or (None,))
        for chosen in _combinations(swept[engine])
    ]


def _combinations(swept: Mapping[str, str]) -> list[dict[str, str]]:
    values = [[value.strip() for value in text.split(",")] for text in swept.values()]
    return [dict(zip(swept, chosen, strict=True)) for chosen in product(*values)]


def _label(engine: str, chosen: Mapping[str, str], model: str | None) -> str:
    return " ".join(filter(None, (engine, *(f"{name}={value}" for name, value in chosen.items()), model)))
