"""Progress of long tasks: bars on standard error if that is a terminal, else one line per task."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from enginebench.settings.console import stderr

if TYPE_CHECKING:
    from rich.console import Console


class Progress(Protocol):
    def __call__(self, task: str, done: int = 0, total: int | None = None) -> None:
        """Report progress. `task` names the work; `done` of `total` bytes, `None` if the total is unknown."""


def silent(task: str, done: int = 0, total: int | None = None) -> None:
    """Report nothing."""


@contextmanager
def terminal_progress(bars: bool = True) -> Iterator[Progress]:
    """Yield bars on standard error, or one line per task if that is not a terminal, or without `bars`."""
    console = stderr()
    if bars and console.is_terminal:
        with _bars(console) as draw:
            yield draw
    else:
        yield _lines()


def _lines() -> Progress:
    reported: set[str] = set()

    def report(task: str, done: int = 0, total: int | None = None) -> None:
        if task not in reported:
            reported.add(task)
            print(f"{task} …", file=sys.stderr, flush=True)

    return report


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    from rich.progress import BarColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[size]}"), TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=console) as bars:

        def finish_all() -> None:
            for id in tasks.values():
                bars.update(id, total=1, completed=1)

        def draw(task: str, done: int = 0, total: int | None = None) -> None:
            if task not in tasks:
                finish_all()  # tasks run one after the other
                tasks[task] = bars.add_task(task, total=total, size="")
            size = "" if total is None else f"{done / 1e6:.0f}/{total / 1e6:.0f} MB"
            bars.update(tasks[task], completed=done, total=total, size=size)

        yield draw
        finish_all()
