"""`live.json` in the folder of a run: the views so far, rewritten once a second by the planning process.

`enginebench run` shows its progress from it. Reports are computed from the records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from enginebench.records.files import write_inside
from enginebench.records.request import UNJUDGED
from enginebench.records.rules import is_failure
from enginebench.records.stage import Nanoseconds
from enginebench.records.view import StageView

FILE = "live.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDocument:
    """The run at `t`, nanoseconds since its start. `outcomes` counts all requests that have ended, also outside of the
    windows; `stages` are those whose window has begun. Infinite values are null."""

    t: Nanoseconds = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    in_flight: int = 0
    stages: tuple[StageView, ...] = ()

    @property
    def ended(self) -> int:
        return sum(self.outcomes.values())

    @property
    def total(self) -> str:
        """Return text such as `120 requests, 3 failed, 4 cut off by its end`."""
        failed = sum(count for outcome, count in self.outcomes.items() if is_failure(outcome))
        cut_off, unsent = (self.outcomes.get(name, 0) for name in UNJUDGED)
        after = f", {unsent:,} could not be sent" if unsent else ""
        after += f", {cut_off:,} cut off by its end" if cut_off else ""
        return f"{self.ended - cut_off - unsent:,} requests, {failed:,} failed{after}"

    def stage(self, index: int) -> StageView | None:
        return next((view for view in self.stages if view.index == index), None)


def write_live(folder: Path, document: LiveDocument) -> None:
    """Replace `live.json` in one step. Raises `OSError`."""
    write_inside(folder, FILE, msgspec.json.encode(document) + b"\n")


def read_live(folder: Path) -> LiveDocument:
    """Read `live.json`; return an empty document if it does not exist yet."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=LiveDocument)
    except (FileNotFoundError, msgspec.DecodeError):
        return LiveDocument()
