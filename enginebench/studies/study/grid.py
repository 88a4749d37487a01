"""The declared grid of a study: models × engines × parts × repeats, the objectives and prices of its report, and its
cells in the order in which they are run. `grid_file` reads a grid.

A cell is one part with one model, one engine and one repeat: the unit that is run, resumed, skipped or failed. All
engines of a model are run once before any is run again, each time in a different order. So a drift of the machine
favours no engine, and a study that is stopped early has compared all. An engine stays loaded for its parts of a
repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import astuple

Value = str | int | float | bool
Kind = Literal["load", "bench"]
T = TypeVar("T")


class StudyModel(Struct, frozen=True, forbid_unknown_fields=True):
    """`name` is in the form of `--model`. `label` is used in reports and folder names. An `optional` model is measured
    only on request."""

    name: str
    label: str = ""
    optional: bool = False


class StudyEngine(Struct, frozen=True, forbid_unknown_fields=True):
    """An engine with options, for all models or for the named ones. `own_server`: its own server, not ours."""

    label: str
    engine: str = ""
    options: Mapping[str, Value] = field(default_factory=dict)
    models: tuple[str, ...] = ()  # labels; none: all
    own_server: bool = False


class StudyPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario under load, or a bench. `settings` are those of the scenario or of `enginebench bench`.

    `seconds` is the expected duration of a cell if its settings do not determine one. A load is ended after `limit`
    seconds, without measuring its remaining stages. `fresh`: the engine is restarted for the part, to measure its peak
    memory.
    """

    name: str
    kind: Kind
    scenario: str = ""
    title: str = ""
    settings: Mapping[str, Value] = field(default_factory=dict)
    models: tuple[str, ...] = ()  # labels; none: all
    engines: tuple[str, ...] = ()  # labels; none: all
    repeats: int | None = None
    seconds: float = 60.0
    limit: float | None = None
    fresh: bool = False

    @property
    def setting_texts(self) -> dict[str, str]:
        return dict(text.split("=", 1) for text in texts_of(self.settings))


class Chosen(Struct, frozen=True):
    """Labels of the rows of a grid that are measured; if empty, all rows except optional models."""

    models: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.models, *self.engines, *self.parts)

    def with_more(self, more: Chosen) -> Chosen:
        """Add labels to the chosen ones; if none were chosen, all rows are measured already."""
        pairs = zip(astuple(self), astuple(more), strict=True)
        return Chosen(*(here and tuple(dict.fromkeys((*here, *added))) for here, added in pairs))


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a replica, in US dollars."""

    per_hour: float
    source: str


class NotMeasured(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the question that was not measured: not a cell of the grid, or a cell without a result."""

    what: str
    why: str


class Grid(Struct, frozen=True, forbid_unknown_fields=True):
    """The declaration of a study, with the variants applied. `keep_loaded`: every engine stays loaded to the end,
    instead of starting a new process for each repeat."""

    title: str
    baseline: str  # an engine's label
    models: tuple[StudyModel, ...]
    engines: tuple[StudyEngine, ...]
    parts: tuple[StudyPart, ...]
    question: str = ""
    repeats: int = 3
    seed: int = 0
    keep_loaded: bool = False
    slo: tuple[str, ...] = ()  # in the form of `--slo`
    peak: str = ""  # in the form of `--peak`
    price: Price | None = None
    not_measured: tuple[NotMeasured, ...] = ()

    def model(self, label: str) -> StudyModel:
        return next(model for model in self.models if model.label == label)

    def engine(self, label: str) -> StudyEngine:
        return next(engine for engine in self.engines if engine.label == label)

    def part(self, name: str) -> StudyPart:
        return next(part for part in self.parts if part.name == name)

    def repeats_of(self, part: StudyPart) -> int:
        return self.repeats if part.repeats is None else part.repeats

    def behind_our_server(self, own: StudyEngine) -> StudyEngine | None:
        """Return the same engine and options behind the common server, to compare with `own`."""
        same = (row for row in self.engines if not row.own_server and row.engine == own.engine)
        return next((row for row in same if row.options == own.options), None)


def texts_of(values: Mapping[str, Value]) -> tuple[str, ...]:
    """Return each as `name=value`, as typed."""
    switches = {True: "yes", False: "no"}
    texts = {name: switches[value] if isinstance(value, bool) else str(value) for name, value in values.items()}
    return tuple(f"{name}={text}" for name, text in texts.items())


class Cell(Struct, frozen=True, order=True):
    """`part`, `model` and `engine` are labels of the grid; `repeat` counts from 0."""

    part: str
    model: str
    engine: str
    repeat: int

    @property
    def id(self) -> str:
        """Return the name of the run's folder or the bench's document."""
        return f"{self.part}.{self.model}.{self.engine}.{self.repeat + 1}"

    def prompt_set(self, seed: int) -> str:
        """Name the prompts: equal for all engines of a repeat, different for each repeat and part, so that none are
        cached."""
        return f"{seed}-{self.part}-{self.model}-{self.repeat}"


def cells_of(grid: Grid) -> tuple[Cell, ...]:
    """List the cells in the order in which they are run."""
    cells: list[Cell] = []
    for model in grid.models:
        rows = [engine for engine in grid.engines if _parts(grid, model, engine)]
        for repeat in range(max(map(grid.repeats_of, grid.parts), default=0)):
            for engine in rotated(rows, repeat, grid.repeats):
                parts = [part for part in _parts(grid, model, engine) if repeat < grid.repeats_of(part)]
                cells += [Cell(part.name, model.label, engine.label, repeat) for part in parts]
    return tuple(cells)


def rotated(rows: Sequence[T], repeat: int, repeats: int) -> list[T]:
    """Begin with a different row in each repeat, spaced as evenly as possible, so that each comes early and late."""
    if not rows:
        return []
    evenly = (repeat * len(rows) + repeats // 2) // repeats
    first = (evenly if repeats <= len(rows) else repeat) % len(rows)
    return [*rows[first:], *rows[:first]]


def _parts(grid: Grid, model: StudyModel, engine: StudyEngine) -> list[StudyPart]:
    """List the parts in which this engine is measured with this model. A bench has no server, so it excludes engines
    with their own."""
    if engine.models and model.label not in engine.models:
        return []
    return [
        part
        for part in grid.parts
        if (not part.models or model.label in part.models)
        and (not part.engines or engine.label in part.engines)
        and not (part.kind == "bench" and engine.own_server)
    ]
