"""How an engine's child process is supervised. Standard library only: the command line shows these settings."""

from __future__ import annotations

from dataclasses import dataclass

from settings_schema import setting

GROUP = "The engine's process"


@dataclass(frozen=True, slots=True)
class Watch:
    """Durations in seconds."""

    hung_after: float = setting(
        60.0,
        "Seconds without an answer to a heartbeat before the engine is restarted.",
        metavar="S",
        least=1,
        group=GROUP,
    )
    load_timeout: float = setting(
        1800.0, "Seconds the engine may take to load its model.", metavar="S", least=1, group=GROUP
    )
    heartbeat: float = 1.0  # between two heartbeats
    restart_first: float = 0.5  # before the first restart; doubles up to `restart_most`
    restart_most: float = 30.0
    stop_grace: float = 5.0  # for a child to exit after its input was closed, before it is killed
