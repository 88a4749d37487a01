"""The folder of a run, and its name."""

from __future__ import annotations

import random
import re
import string
from datetime import datetime
from pathlib import Path

from enginebench.settings.schema import UserMistake
from loadtests.harness.settings.run import RunSettings


def new_folder(settings: RunSettings, label: str, at: datetime) -> Path:
    """Raises `UserMistake` where it cannot be made."""
    run_id = settings.run_id or new_run_id(label, at)
    folder, again = (settings.runs / run_id).absolute(), 1
    while (folder / "meta.json").exists():  # started again from the web page under the same --run-id
        again += 1
        folder = (settings.runs / f"{run_id}-{again}").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        said = f"{settings.runs} cannot be written ({error.strerror}): name another folder with --runs."
        raise UserMistake(said) from None
    return folder


def new_run_id(label: str, at: datetime) -> str:
    """`20261121-100542-transformers-k3vq`: sorts by time, says what it is, and is not taken twice."""
    readable = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40] or "run"
    chance = "".join(random.SystemRandom().choices(string.ascii_lowercase + string.digits, k=4))
    return f"{at:%Y%m%d-%H%M%S}-{readable}-{chance}"
