"""The declared grid of a study: models × engines × parts × repeats, with what a report judges them by, and its cells in
the order in which they are run. `grid_file` reads one.

A cell is one part with one model, one engine and one repeat: the unit that is run, resumed, skipped or failed. All
engines of a model are run once before any is run again, each time in another order, so that a drift of the machine
favours none; and a study that is stopped early has compared all of them. An engine stays loaded for its parts of a
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
    """`name` as `--model` takes it. `label` stands in reports and in names of folders. An `optional` one is measured
    only where it is asked for."""

    name: str
    label: str = ""
    optional: bool = False


class StudyEngine(Struct, frozen=True, forbid_unknown_fields=True):
    """An engine with options, for all models or for those that are named. `own_server`: its own server, not ours."""

    label: str
    engine: str = ""
    options: Mapping[str, Value] = field(default_factory=dict)
    models: tuple[str, ...] = ()  # labels; none: all
    own_server: bool = False


class StudyPart(Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario under load, or a bench. `settings` are those of the scenario or of `enginebench bench`.

    `seconds` is what a cell is expected to take, where its settings do not say. A load that runs for longer than
    `limit` seconds is ended, and what it had not reached is not measured. `fresh`: the engine is started anew for it,
    as peak memory asks for.
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
    """Labels of the rows of a grid that are measured; none: all, but for the models that are optional."""

    models: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.models, *self.engines, *self.parts)

    def with_more(self, more: Chosen) -> Chosen:
        """Add labels to those that were chosen; where none was, all rows are measured already."""
        pairs = zip(astuple(self), astuple(more), strict=True)
        return Chosen(*(here and tuple(dict.fromkeys((*here, *added))) for here, added in pairs))


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """The price of a replica, in US dollars."""

    per_hour: float
    source: str


class NotMeasured(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that belongs to the question and was not measured: no cell of the grid, or one without a result."""

    what: str
    why: str


class Grid(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that is declared of a study, with the variants applied. `keep_loaded`: every engine stays loaded to
    the end, in place of a new process for each repeat."""

    title: str
    baseline: str  # an engine's label
    models: tuple[StudyModel, ...]
    engines: tuple[StudyEngine, ...]
    parts: tuple[StudyPart, ...]
    question: str = ""
    repeats: int = 3
    seed: int = 0
    keep_loaded: bool = False
    slo: tuple[str, ...] = ()  # as `--slo` takes them
    peak: str = ""  # as `--peak` takes it
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
        """Return the same engine with the same options behind the common server, with which `own`'s server is
        compared."""
        same = (row for row in self.engines if not row.own_server and row.engine == own.engine)
        return next((row for row in same if row.options == own.options), None)


def texts_of(values: Mapping[str, Value]) -> tuple[str, ...]:
    """`name=value`, as typed."""
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
        """Name of the run's folder, or of the bench's document."""
        return f"{self.part}.{self.model}.{self.engine}.{self.repeat + 1}"

    def prompt_set(self, seed: int) -> str:
        """Name the prompts: the same for all engines of a repeat, and others for each repeat and part, so that nothing
        is cached."""
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
    """Begin with another row in each repeat, as far from the last as the repeats allow: each then comes early and
    late."""
    if not rows:
        return []
    evenly = (repeat * len(rows) + repeats // 2) // repeats
    first = (evenly if repeats <= len(rows) else repeat) % len(rows)
    return [*rows[first:], *rows[:first]]


def _parts(grid: Grid, model: StudyModel, engine: StudyEngine) -> list[StudyPart]:
    """List the parts in which this engine is measured with this model. A bench has no server, so it takes no engine's
    own."""
    if engine.models and model.label not in engine.models:
        return []
    return [
        part
        for part in grid.parts
        if (not part.models or model.label in part.models)
        and (not part.engines or engine.label in part.engines)
        and not (part.kind == "bench" and engine.own_server)
    ]
