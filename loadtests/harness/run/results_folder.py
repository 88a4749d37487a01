"""The folder of a run, and its name."""

from __future__ import annotations

import os
import random
import re
import string
from datetime import datetime
from pathlib import Path

from enginebench.settings.schema import UserMistake
from loadtests.harness.settings.run_settings import RunSettings

FOLDER = "ENGINEBENCH_RUN_FOLDER"  # variable with the folder that `enginebench run` made for Locust's process
MAX_AGAIN = 10_000


def new_folder(settings: RunSettings, label: str, at: datetime) -> Path:
    """Make the folder of a run. If its --run-id is taken, a number is added.

    Raises `UserMistake` if the folder cannot be made.
    """
    if made := os.environ.pop(FOLDER, None):
        return Path(made)
    run_id = settings.run_id or new_run_id(label, at)
    try:
        settings.runs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(settings, error) from None
    for name in (run_id, *(f"{run_id}-{again}" for again in range(2, MAX_AGAIN))):
        folder = (settings.runs / name).absolute()
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise _unwritable(settings, error) from None
        return folder
    raise UserMistake(f"{settings.runs} has {MAX_AGAIN} runs called {run_id}: give another --run-id.")


def _unwritable(settings: RunSettings, error: OSError) -> UserMistake:
    return UserMistake(f"{settings.runs} cannot be written ({error.strerror}): name another folder with --runs.")


def new_run_id(label: str, at: datetime) -> str:
    """Return a unique name that sorts by time, such as `20261121-100542-transformers-k3vq`."""
    readable = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40] or "run"
    chance = "".join(random.SystemRandom().choices(string.ascii_lowercase + string.digits, k=4))
    return f"{at:%Y%m%d-%H%M%S}-{readable}-{chance}"
