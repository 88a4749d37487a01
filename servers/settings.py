"""What the person who starts a server may decide about it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

API_KEY_VARIABLE = "ENGINEBENCH_API_KEY"
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """Durations in seconds, sizes in bytes. The defaults suit a load test on loopback."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: any free one
    served_model: str | None = None  # the name clients use; None: the engine's own name for its model
    queue_size: int = 1024  # requests that may wait for the engine; one more is refused with 429
    request_timeout: float = 600.0  # from the request's arrival to the answer's end; a request may ask for less
    body_timeout: float = 30.0  # for a whole body to arrive
    header_timeout: float = 10.0  # for a request's headers to arrive, from their first byte
    keep_alive: float = 120.0  # an idle connection lives so long
    write_timeout: float = 30.0  # a client that reads nothing of its answer for so long is cut off
    drain_timeout: float = 30.0  # for running requests to finish once the server was asked to stop
    max_body_bytes: int = 4 * MIB
    max_header_bytes: int = 32 * 1024
    max_output_tokens: int | None = None  # None: whatever the context leaves
    warmup_tokens: int = 8  # asked of the engine before the server calls itself ready; 0: no warm-up
    gpu_period: float = 1.0  # between two readings of the GPUs
    api_keys: tuple[str, ...] = field(default=(), repr=False)  # none: everybody may ask


def read_api_keys(file: Path | None) -> tuple[str, ...]:
    """Keys from a file (one a line, `#` starts a comment line) and from the environment. Raises `ValueError`.

    The key is taken out of the environment, so that no process that is started from here inherits it.
    """
    keys = []
    if file is not None:
        try:
            lines = [line.strip() for line in file.read_text().splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read the API keys in {file}: {error}.") from error
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise ValueError(f"{file} holds no API key; write one a line.")
    if from_environment := os.environ.pop(API_KEY_VARIABLE, "").strip():
        keys.append(from_environment)
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise ValueError("an API key is printable ASCII without spaces.")
    return tuple(keys)
