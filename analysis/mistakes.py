"""What every command of the analysis does with a user's mistake: a sentence on stderr, exit code 2."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def exit_with_sentence(log: Console) -> Iterator[None]:
    """For `NotARun`, a `ValueError` whose text is a sentence, and a file that cannot be written."""
    from analysis.run.load import NotARun

    try:
        yield
        return
    except (NotARun, ValueError) as error:
        said = str(error)
    except OSError as error:
        said = f"{error.filename or 'the result'} cannot be written ({error.strerror})."
    log.print(said, style="red", soft_wrap=True)
    raise typer.Exit(2)
