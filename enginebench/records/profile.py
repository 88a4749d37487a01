"""What a profiler saw of a run's engine or server, beside the run and no part of its numbers:

    runs/<id>/profile/profiles.json    the `Profile`s
    runs/<id>/profile/…                the files that they name

The engine is profiled in a process and under a load of its own, whose requests are not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from enginebench.records.files import read_document, write_inside
from enginebench.records.plain_text import is_file_name

FOLDER, DOCUMENT = "profile", "profiles.json"


class Hot(msgspec.Struct, frozen=True):
    """A function, an operator or a kernel. `share` is its own part of the total, `inclusive` with all that it called;
    `calls` are per generated token."""

    name: str
    share: float
    inclusive: float | None = None
    calls: float | None = None


class Profile(msgspec.Struct, frozen=True):
    """`hot` has the largest first, `total` is in `unit`: seconds or bytes. `facts` are sentences. Where `failure` says
    why there is none, the rest is empty."""

    profiler: str
    label: str  # of the run
    of: Literal["engine", "server"]
    shows: str  # Python functions, by time on a CPU
    load: str
    seconds: float
    unit: Literal["s", "B"] = "s"
    total: float = 0.0
    hot: tuple[Hot, ...] = ()
    facts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    picture: str | None = None
    failure: str | None = None


def read_profiles(folder: Path) -> tuple[Profile, ...]:
    """Of the run in `folder`; none where there is no such file, or one that cannot be understood.

    Reports show the files that are named: they are in the same folder, and no links to others.
    """
    try:
        profiles = read_document(folder / FOLDER / DOCUMENT, tuple[Profile, ...])
    except (OSError, ValueError):
        return ()
    names = {name for profile in profiles for name in (*profile.files, profile.picture) if name is not None}
    own = all(is_file_name(name) and not (folder / FOLDER / name).is_symlink() for name in names)
    return profiles if own and not (folder / FOLDER).is_symlink() else ()


def write_profiles(folder: Path, profiles: Sequence[Profile]) -> None:
    """Beside those that are there."""
    every = (*read_profiles(folder), *profiles)
    write_inside(folder, f"{FOLDER}/{DOCUMENT}", msgspec.json.format(msgspec.json.encode(every), indent=1))
