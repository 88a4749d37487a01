"""The declared grid of a study: models × engines × parts × repeats, with what a report judges them by. `grid_file`
reads one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import astuple

Value = str | int | float | bool
Kind = Literal["load", "bench"]


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
    slo: tuple[str, ...] = ()  # as `--slo` takes them, tiers too
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
