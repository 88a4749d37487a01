"""How long work tells how far it is: a plain call, drawn as bars on standard error where a person is looking."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    def __call__(self, task: str, done: int = 0, total: int | None = None) -> None:
        """`task` is what is being done, in a few words; `done` of `total` bytes, `None` where the end is not known."""


def silent(task: str, done: int = 0, total: int | None = None) -> None:
    """For those who want no progress."""


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """Bars on standard error, or a line per task where that is not a terminal."""
    import sys

    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeElapsedColumn, TransferSpeedColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    if not console.is_terminal:

        def tell(task: str, done: int = 0, total: int | None = None) -> None:
            if task not in tasks:
                tasks[task] = TaskID(len(tasks))
                print(f"{task} …", file=sys.stderr, flush=True)

        yield tell
        return

    columns = (TextColumn("{task.description}"), BarColumn(24), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, TimeElapsedColumn(), console=console) as bars:

        def draw(task: str, done: int = 0, total: int | None = None) -> None:
            if task not in tasks:
                for earlier in tasks.values():
                    bars.stop_task(earlier)
                tasks[task] = bars.add_task(task, total=total)
            bars.update(tasks[task], completed=done, total=total)

        yield draw
