"""A grid's file, read and checked.

    title = "Which engine for one small replica?"
    baseline = "transformers"
    repeats = 3

    [[models]]
    name = "smollm2-135m"

    [[engines]]
    label = "transformers"

    [[parts]]
    name = "users"
    kind = "load"
    scenario = "concurrent"
    settings = { stages = "1,10,30,100" }

    [quick.parts…]      # replaces any key with --quick; [cpu] does so on a machine without a GPU, and
                        # [gpu_quick] with --quick on a machine with a GPU

Included grids are in `enginebench/studies/grids`; docs/studies.md lists every key.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from enginebench.analysis.settings import parse_peak
from enginebench.records.files import bytes_of
from enginebench.records.plain_text import plain_json
from enginebench.records.slo import parse_objectives
from enginebench.settings.schema import UserMistake, choose_from
from enginebench.studies.study.grid import (
    Chosen,
    Grid,
    NotMeasured,
    Price,
    StudyEngine,
    StudyModel,
    StudyPart,
    cells_of,
)

GRIDS = Path(__file__).parent.parent / "grids"
# Tables with other values of a grid's keys, in the order in which they are applied.
VARIANTS = ("cpu", "quick", "gpu_quick")
LABEL = re.compile(r"\w[\w+.-]*")  # allowed in the name of a cell's folder
MAX_REPEATS, MAX_CELLS = 1_000, 100_000
Row = TypeVar("Row", StudyEngine, StudyPart)
EVERYTHING = Chosen()


def grid_names() -> list[str]:
    return sorted(path.stem for path in GRIDS.glob("*.toml"))


def find_grid(name: str) -> Path:
    """Find a grid by its name, such as `baseline`, or its path. Raises `UserMistake`."""
    if name.endswith(".toml"):
        if Path(name).is_file():
            return Path(name)
        raise UserMistake(f"the file {name} does not exist.")
    if name not in grid_names():
        raise UserMistake(f"no study called `{name}`, and no such file; {choose_from(name, grid_names())}")
    return GRIDS / f"{name}.toml"


def read_grid(path: Path, variants: Iterable[str] = (), chosen: Chosen = EVERYTHING) -> tuple[Grid, tuple[str, ...]]:
    """Return the `chosen` rows of a grid with those `variants` that its file has, and the names of these variants.
    Raises `UserMistake`."""
    try:
        document = tomllib.loads(bytes_of(path).decode())
    except (ValueError, RecursionError) as error:
        raise UserMistake(f"{path} is not TOML: {error}.") from None
    tables = {name: document.pop(name) for name in VARIANTS if name in document}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise UserMistake(f"{path}: `{name}` is a table of other values of the grid's keys.")
        _known(path, name, Grid, table)
    _known(path, "", Grid, document)
    applied = tuple(name for name in VARIANTS if name in tables and name in set(variants))
    for name in applied:
        document |= tables[name]
    form = " ".join([path.stem if path.parent == GRIDS else str(path), *(f"[{name}]" for name in applied)])
    return _narrowed(form, _checked(path, _converted(path, document)), chosen), applied


def _narrowed(form: str, grid: Grid, chosen: Chosen) -> Grid:
    """Keep the chosen rows, and list the others, except optional models, as not measured. Raises `UserMistake` for a
    label that is missing from this `form` of the grid, or has nothing to measure with the other chosen labels."""
    named = _labels(grid)
    for what, labels in msgspec.structs.asdict(chosen).items():
        for label in labels:
            if label not in named[what]:
                raise UserMistake(f"{form} has no {what[:-1]} `{label}`; {choose_from(label, named[what])}")
    models = tuple(
        model for model in grid.models if (model.label in chosen.models if chosen.models else not model.optional)
    )
    left = frozenset(row.label for row in models)
    engines = tuple(
        _only(row, models=left)
        for row in grid.engines
        if (not chosen.engines or row.label in chosen.engines) and (not row.models or left & set(row.models))
    )
    able = frozenset(row.label for row in engines)
    if grid.baseline not in able:
        raise UserMistake(f"{form}: the baseline {grid.baseline} is not measured with {', '.join(chosen.labels)}.")
    parts = tuple(
        _only(_only(part, models=left), engines=able)
        for part in grid.parts
        if (not chosen.parts or part.name in chosen.parts)
        and (not part.models or left & set(part.models))
        and (not part.engines or able & set(part.engines))
    )
    narrowed = msgspec.structs.replace(grid, models=models, engines=engines, parts=parts)
    measured = {label for cell in cells_of(narrowed) for label in (cell.part, cell.model, cell.engine)}
    without = [label for label in (*chosen.parts, *chosen.engines) if label not in measured]
    if without or not measured:
        of = ", ".join(without or chosen.labels)
        raise UserMistake(f"{form}: nothing is measured of {of} with what else is chosen.")
    for row in narrowed.engines:
        if row.own_server and (row.label == grid.baseline or narrowed.behind_our_server(row) is None):
            raise UserMistake(
                f"{form}: {row.label} is only compared with the same engine and options behind our server: add it."
            )
    if not chosen.labels:
        return narrowed
    absent = [part.title or part.name for part in grid.parts if part.name not in measured]
    absent += [row.label for row in grid.models if row.label not in measured and not row.optional]
    absent += [row.label for row in grid.engines if row.label not in measured]
    left_out = (NotMeasured(what, "it was left out of this study.") for what in absent)
    return msgspec.structs.replace(narrowed, not_measured=(*grid.not_measured, *left_out))


def _only(row: Row, **left: Collection[str]) -> Row:
    """Keep only the labels of each field that are in `left`."""
    fields = {name: tuple(label for label in getattr(row, name) if label in labels) for name, labels in left.items()}
    return msgspec.structs.replace(row, **fields)


def _labels(grid: Grid) -> dict[str, list[str]]:
    return {
        "models": [row.label for row in grid.models],
        "engines": [row.label for row in grid.engines],
        "parts": [row.name for row in grid.parts],
    }


def _known(path: Path, where: str, kind: type[Struct], table: Mapping[str, Any]) -> None:
    """Raise `UserMistake`, with the known keys, for an unknown key."""
    tables: dict[str, type[Struct]] = {
        "models": StudyModel,
        "engines": StudyEngine,
        "parts": StudyPart,
        "not_measured": NotMeasured,
    }
    names = {row.name for row in msgspec.structs.fields(kind)}
    for key, value in table.items():
        if key not in names:
            place = f"{where} has" if where else "there is"
            more = [*VARIANTS] if kind is Grid and not where else []
            raise UserMistake(f"{path}: {place} no key `{key}`; {choose_from(key, [*sorted(names), *more])}")
        if kind is Grid and key in tables and isinstance(value, list):
            for row in value:
                if isinstance(row, dict):
                    _known(path, f"{f'{where}.' if where else ''}[[{key}]]", tables[key], row)
    if kind is Grid and isinstance(table.get("price"), dict):
        _known(path, f"{f'{where}.' if where else ''}[price]", Price, table["price"])


def _converted(path: Path, document: Mapping[str, Any]) -> Grid:
    try:
        return msgspec.convert(plain_json(document), Grid)  # in the same way as a study's folder
    except ValueError as error:
        raise UserMistake(f"{path}: {str(error)[0].lower()}{str(error)[1:]}.") from None


def _checked(path: Path, grid: Grid) -> Grid:
    """Give all rows labels. Raises `UserMistake` if names do not fit together."""
    models = tuple(
        msgspec.structs.replace(row, label=row.label or re.split(r"[:/]", row.name)[-1]) for row in grid.models
    )
    engines = tuple(
        msgspec.structs.replace(row, engine=row.engine or row.label, options=dict(row.options)) for row in grid.engines
    )
    grid = msgspec.structs.replace(grid, models=models, engines=engines)
    check_grid(path, grid)
    for part in grid.parts:
        _check_part(path, part)
    try:
        parse_objectives(grid.slo)
        if grid.peak:
            parse_peak(grid.peak)
    except ValueError as error:
        raise UserMistake(f"{path}: {error}") from None
    return grid


def check_grid(path: Path, grid: Grid) -> None:
    """Raise `UserMistake` for numbers out of range, a label that cannot name a folder, or names that do not fit
    together."""
    tables = [*(part.settings for part in grid.parts), *(row.options for row in grid.engines)]
    values = [value for table in tables for value in table.values() if isinstance(value, float)]
    values += [number for part in grid.parts for number in (part.seconds, part.limit) if number is not None]
    values += [] if grid.price is None else [grid.price.per_hour]
    if not all(map(math.isfinite, values)):
        raise UserMistake(f"{path}: inf and nan are no values of a grid.")
    if any(part.seconds < 0 or (part.limit is not None and part.limit <= 0) for part in grid.parts):
        raise UserMistake(f"{path}: seconds is 0 or more, and limit is above 0.")
    if grid.price is not None and grid.price.per_hour < 0:
        raise UserMistake(f"{path}: per_hour is a price, not {grid.price.per_hour:g}.")
    repeats = [grid.repeats, *map(grid.repeats_of, grid.parts)]
    if not 1 <= min(repeats) <= max(repeats) <= MAX_REPEATS:
        raise UserMistake(f"{path}: repeats is 1 or more, and {MAX_REPEATS} at most.")
    if len(grid.models) * len(grid.engines) * len(grid.parts) * max(repeats) > MAX_CELLS:
        raise UserMistake(f"{path}: a study has {MAX_CELLS:,} cells at most.")
    named = _labels(grid)
    for what, labels in named.items():
        if not labels:
            raise UserMistake(f"{path}: a study needs [[{what}]].")
        for label, count in Counter(labels).items():
            if LABEL.fullmatch(label) is None:
                raise UserMistake(f"{path}: `{label}` of [[{what}]] needs a label of letters, digits, + . - and _.")
            if count > 1:
                raise UserMistake(f"{path}: there are several [[{what}]] called `{label}`: give each a label.")
    references: list[tuple[str, tuple[str, ...], str]] = [("baseline", (grid.baseline,), "engines")]
    references += [(f"engine {row.label}", row.models, "models") for row in grid.engines]
    for part in grid.parts:
        references += [(f"part {part.name}", part.models, "models"), (f"part {part.name}", part.engines, "engines")]
    for where, mentioned, what in references:
        for label in mentioned:
            if label not in named[what]:
                raise UserMistake(
                    f"{path}: {where} names `{label}`, which is none of [[{what}]]: {', '.join(named[what])}."
                )


def _check_part(path: Path, part: StudyPart) -> None:
    """Raise `UserMistake` for a part that contradicts itself. The values of settings are checked when it is run."""
    from enginebench.settings.schema import settings_of
    from engines.bench.settings import BenchSettings
    from loadtests.harness.scenario import Scenario

    if (part.kind == "load") != bool(part.scenario):
        what = "a scenario" if part.kind == "load" else "no scenario: only parts of kind load have one"
        raise UserMistake(f"{path}: part {part.name} needs {what}.")
    fields = settings_of(Scenario) if part.kind == "load" else dataclass_fields(BenchSettings)
    declared = sorted(field.name for field in fields if field.name != "rounds")  # a study's repeats
    for name in part.settings:
        if name not in declared:
            raise UserMistake(f"{path}: part {part.name}: there is no setting `{name}`; {choose_from(name, declared)}")
