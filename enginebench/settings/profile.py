"""Whether what is tested is profiled too: the same settings of `run`, `bench` and `study`."""

from __future__ import annotations

from dataclasses import dataclass

from enginebench.settings.flags import Given, read_settings
from enginebench.settings.schema import UserMistake, from_environment, setting

GROUP = "Profiling"


@dataclass(frozen=True, slots=True)
class ProfileSettings:
    """`profile` is a name of `loadtests/harness/profiling/profilers.py`."""

    profile: str | None = setting(
        None,
        "After all measurements, profile each engine once more under a load of its own, which counts nowhere: with "
        "py-spy, torch, perf, memray, …; a word that is none lists them all.",
        metavar="KIND",
        group=GROUP,
    )
    profile_seconds: float = setting(
        10.0, "Seconds that are profiled; torch records 3 at most.", metavar="S", least=1, most=600, group=GROUP
    )


def read_profile(given: Given) -> ProfileSettings:
    """From flags, variables and defaults. Raises `UserMistake`, for a length of no profile too."""
    settings: ProfileSettings = read_settings(ProfileSettings, given)
    lengths = (given.get("profile_seconds"), from_environment(ProfileSettings).get("profile_seconds"))
    if settings.profile is None and any(length is not None for length in lengths):
        raise UserMistake("--profile-seconds has no effect without --profile: leave it out.")
    return settings
