"""Every setting of a server, declared once: its flag, variable, default and help."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from settings.flags import Given, read_settings
from settings.schema import UserMistake, setting

MIB = 1024 * 1024
ADDRESS, LIMITS, CONNECTIONS, ENGINE = "Address and access", "Limits", "Slow clients", "The engine's process"
LOG = "Log"
_address, _limit = (partial(setting, group=group) for group in (ADDRESS, LIMITS))
_slow_client = partial(setting, metavar="S", least=0.001, group=CONNECTIONS)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Durations in seconds, sizes in bytes. The defaults suit a load test on one machine."""

    host: str = _address("127.0.0.1", "Address to listen on; 0.0.0.0 means every IPv4 address.")
    port: int = _address(8000, "Port to listen on; 0 takes a free one.", metavar="PORT", least=0, most=65535)
    listener: int | None = _address(
        None, "File descriptor of a socket that already listens, in place of host and port.", flag="", metavar="FD"
    )
    served_model: str | None = _address(
        None, "Model name that clients use, instead of the engine's own.", metavar="NAME"
    )
    api_key: str | None = _address(None, "Key that clients must send.", flag="", secret=True)
    api_key_file: Path | None = _address(
        None, "File of keys, one per line; clients must send one of them. Or set ENGINEBENCH_API_KEY.", metavar="FILE"
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "warning", "Lowest severity to log; the engine's own output is logged as info.", group=LOG
    )

    queue_size: int = _limit(
        1024, "Requests that may wait for the engine; further ones are refused.", metavar="N", least=0
    )
    request_timeout: float = _limit(
        600.0, "Seconds from a request's arrival to the end of its answer.", metavar="S", least=0.001
    )
    max_output_tokens: int | None = _limit(None, "Maximum tokens in an answer.", metavar="N", least=1)
    max_body_bytes: int = _limit(4 * MIB, "Largest request body.", metavar="BYTES", least=1)
    max_header_bytes: int = _limit(32 * 1024, "Largest total size of a request's headers.", metavar="BYTES", least=1)

    header_timeout: float = _slow_client(10.0, "Seconds for a request's headers to arrive.")
    body_timeout: float = _slow_client(30.0, "Seconds for a request's body to arrive.")
    write_timeout: float = _slow_client(30.0, "Seconds without reading after which a client is disconnected.")
    keep_alive: float = _slow_client(120.0, "Seconds after which an idle connection is closed.")
    drain_timeout: float = _limit(
        30.0, "Seconds that running requests get to finish after SIGTERM.", metavar="S", least=0
    )

    warmup_tokens: int = setting(
        8, "Tokens generated before the server is ready; 0 means no warm-up.", metavar="N", least=0, group=ENGINE
    )

    api_keys: tuple[str, ...] = field(default=(), repr=False)  # from `api_key` and `api_key_file`; none: no key needed


def server_settings(given: Given) -> ServerSettings:
    """From flags, variables and the key file. Raises `UserMistake`.

    The key is removed from the environment, so that no child process inherits it.
    """
    settings: ServerSettings = read_settings(ServerSettings, given)
    os.environ.pop("ENGINEBENCH_API_KEY", None)
    keys = _keys_in(settings.api_key_file) if settings.api_key_file is not None else []
    if settings.api_key is not None:
        keys.append(settings.api_key.strip())
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise UserMistake("an API key is printable ASCII without spaces.")
    return replace(settings, api_key=None, api_keys=tuple(keys))


def _keys_in(file: Path) -> list[str]:
    """The keys in `file`, one a line; `#` starts a comment line."""
    try:
        lines = [line.strip() for line in file.read_text().splitlines()]
    except OSError as error:
        raise UserMistake(f"cannot read the API keys in {file}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserMistake(f"cannot read the API keys in {file}: it is not UTF-8 text.") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise UserMistake(f"{file} holds no API key; write one per line.")
    return keys
