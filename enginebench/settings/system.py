"""What every package asks of the operating system. Standard library only."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Return a TCP port of the loopback interface on which nothing listens at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def last_line(text: str) -> str:
    """Return the last line of a program's output; empty if there is none."""
    return next(iter(reversed(text.strip().splitlines())), "").strip()
