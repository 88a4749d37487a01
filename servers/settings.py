"""Every setting of a server, declared once: its flag, variable, default and help."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from enginebench.settings.flags import Flags, read_settings
from enginebench.settings.schema import LISTENER, UserMistake, setting

MIB = 1024 * 1024
ADDRESS, LIMITS, ENGINE, LOG = "Address and access", "Limits", "The engine's process", "Log"
_address, _limit = (partial(setting, group=group) for group in (ADDRESS, LIMITS))


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Durations in seconds, sizes in bytes. The defaults suit a load test on one machine."""

    host: str = _address("127.0.0.1", "Address to listen on; 0.0.0.0 means every IPv4 address.")
    port: int = _address(8000, "Port to listen on; 0 takes a free one.", metavar="PORT", least=0, most=65535)
    listener: int | None = None  # descriptor of the socket that `enginebench run` has bound, instead of host and port
    api_key: str | None = _address(None, "Key that clients must send.", flag="", secret=True)
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "warning", "Lowest severity to log; the engine's own output is logged as info.", group=LOG
    )

    queue_size: int = _limit(
        1024, "Requests that may wait for the engine; further ones are refused.", metavar="N", least=0
    )
    request_timeout: float = _limit(
        600.0, "Seconds from a request's arrival to the end of its answer.", metavar="S", least=0.001
    )
    max_body_bytes: int = _limit(4 * MIB, "Largest request body.", metavar="BYTES", least=1)
    drain_timeout: float = _limit(
        30.0, "Seconds that running requests get to finish after SIGTERM.", metavar="S", least=0
    )

    warm_up_tokens: int = setting(
        8,
        "Tokens generated before the server is ready; 0 means no warm-up.",
        metavar="N",
        least=0,
        group=ENGINE,
    )


def server_settings(flags: Flags) -> ServerSettings:
    """Read flags and variables. Raises `UserMistake`.

    The key is removed from the environment, so that no child process inherits it.
    """
    settings: ServerSettings = read_settings(ServerSettings, flags)
    if listener := os.environ.get(LISTENER):
        settings = replace(settings, listener=int(listener))
    os.environ.pop("ENGINEBENCH_API_KEY", None)
    if settings.api_key is None:
        return settings
    key = settings.api_key.strip()
    if not key.isascii() or not key.isprintable() or not key or " " in key:
        raise UserMistake("ENGINEBENCH_API_KEY is printable ASCII without spaces.")
    return replace(settings, api_key=key)
