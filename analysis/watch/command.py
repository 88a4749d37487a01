"""`enginebench watch`: a dashboard in the terminal, of a server or of a run."""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from analysis.watch.moment import Moment, Watched

CONTROL_C = b"\x03"


def watch(
    what: Annotated[
        str | None,
        typer.Argument(
            help="A server's URL, the address of a load test's exporter, or a run's folder or id. Default: the newest "
            "run.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between updates.", min=0.1)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit.")] = False,
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
) -> None:
    """Show users, rates, latencies, queue, KV cache and GPU in 80 columns, once a second. q or Ctrl-C quits.

    Values are those of the last ten seconds. Reports do not use them.

    Examples:

      enginebench watch http://127.0.0.1:8000

      enginebench watch runs/20261122-061612-candle-k3vq
    """
    from rich.console import Console

    from analysis.console import stderr
    from analysis.mistakes import exit_with_sentence
    from analysis.watch.screen import WIDTH

    out = Console(width=WIDTH if not sys.stdout.isatty() else None, highlight=False)
    with exit_with_sentence(stderr()):
        watched = _watched(what, runs)
        try:
            if once or not out.is_terminal:
                _print_looks(out, watched, every, looks=2 if once else None)
            else:
                _live(out, watched, every)
        except KeyboardInterrupt:
            pass


def _watched(what: str | None, runs: Path) -> Watched:
    from analysis.run.load import find_run
    from analysis.watch.run import RunFolder
    from analysis.watch.server import ServerPage

    if what is not None and not Path(what).exists() and (":" in what or what == "localhost"):
        return ServerPage(what)
    return RunFolder(find_run(what, runs))


def _print_looks(out: Console, watched: Watched, every: float, looks: int | None) -> None:
    """For pipes and scripts: a block for each update; with `looks`, only the last of so many."""
    from analysis.watch.screen import HISTORY, screen

    history: deque[Moment] = deque(maxlen=HISTORY)
    while True:
        history.append(watched.look())
        if looks is None or len(history) == looks:
            out.print(screen(watched.title, list(history)))
        if len(history) == looks or (looks is None and history[-1].over):
            return
        time.sleep(every)


def _live(out: Console, watched: Watched, every: float) -> None:
    from rich.live import Live

    from analysis.watch.screen import HISTORY, screen

    history: deque[Moment] = deque([watched.look()], maxlen=HISTORY)
    with (
        _keys() as pressed,
        Live(screen(watched.title, list(history)), console=out, screen=True, auto_refresh=False) as live,
    ):
        while not pressed(every):
            history.append(watched.look())
            live.update(screen(watched.title, list(history)), refresh=True)


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Waits so many seconds for a key: true for `q` and Ctrl-C. The terminal is always restored afterwards.

    Ctrl-C is read as a key: a signal could arrive while the screen is being set up or restored.
    """
    if os.name != "posix" or not sys.stdin.isatty():
        yield _no_keys
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        mode = termios.tcgetattr(sys.stdin)
        mode[3] &= ~termios.ISIG  # local modes
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, mode)
        yield _quits
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _no_keys(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _quits(seconds: float) -> bool:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select([sys.stdin], [], [], left)
        if ready and os.read(sys.stdin.fileno(), 1) in {b"q", b"Q", CONTROL_C, b""}:
            return True
    return False
