"""What profilers saw of the engines: a section of its own, beside everything that was measured."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from enginebench.analysis.console import TextTable
from enginebench.analysis.summary.run_summary import RunSummary
from enginebench.records.formatting import MISSING, format_share, format_value, significant
from enginebench.records.profile import FOLDER, Profile

SHOWN = 12  # functions of each profile
OUTSIDE = "Profiled in a process of its own after the measurements: no number elsewhere contains these requests."


@dataclass(frozen=True, slots=True)
class ShownProfile:
    """`sentence` says what it is of, or why there is none. `files` are names and paths, the first one the picture's."""

    title: str
    sentence: str
    table: TextTable | None
    files: tuple[tuple[str, str], ...] = ()
    picture: str | None = None  # as a data URL


def profiles_of(summaries: Sequence[RunSummary], beside: Path | None = None) -> list[ShownProfile]:
    """In the order of the runs. Paths are relative to the folder `beside`."""
    return [shown_profile(each, summary.folder, beside) for summary in summaries for each in summary.profiles]


def shown_profile(profile: Profile, run: Path = Path(), beside: Path | None = None) -> ShownProfile:
    title = f"{profile.label}, {profile.of}: {profile.shows}"
    if profile.failure is not None:
        return ShownProfile(title, f"No profile: {profile.failure}", None)
    folder = run / FOLDER
    names = [*([profile.picture] if profile.picture else []), *profile.files]
    place = folder if beside is None else Path(os.path.relpath(folder, beside))
    total = format_value(profile.total, profile.unit)
    scope = f"{profile.profiler}, {profile.seconds:g} s at {profile.load}: {total} in all"
    sentence = " ".join([f"{scope}.", *(fact[:1].upper() + fact[1:] for fact in profile.facts)])
    svg = _read(folder / profile.picture) if profile.picture else None
    url = None if svg is None else f"data:image/svg+xml;base64,{b64encode(svg).decode()}"
    return ShownProfile(title, sentence, _table(profile), tuple((name, str(place / name)) for name in names), url)


def _table(profile: Profile) -> TextTable:
    what = profile.shows.partition(" by ")[0]
    headers = (what, "itself", "with what it calls", "calls per token")
    rows = tuple(
        (
            hot.name,
            format_share(hot.share),
            MISSING if hot.inclusive is None else format_share(hot.inclusive),
            MISSING if hot.calls is None else significant(hot.calls),
        )
        for hot in profile.hot[:SHOWN]
    )
    unused = [] if any(hot.inclusive is not None for hot in profile.hot) else [headers[2]]
    unused += [] if any(hot.calls is not None for hot in profile.hot) else [headers[3]]
    rest = len(profile.hot) - len(rows)
    caption = f"The {len(rows)} largest; profiles.json has {rest} more." if rest > 0 else ""
    return TextTable(f"{profile.label}, {profile.of}", headers, rows, (0,), caption).without(unused)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
