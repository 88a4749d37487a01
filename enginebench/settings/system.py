"""Operating-system queries that every package uses. Standard library only."""

from __future__ import annotations

import socket
import sys
from contextlib import suppress
from ipaddress import ip_address

MAX_DESCRIPTORS = 1 << 20


def free_port() -> int:
    """Return a TCP port of the loopback interface on which nothing listens at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def is_loopback(host: str) -> bool:
    """Return whether an address or a name belongs to this machine's loopback interface."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def raise_descriptor_limit(most: int = MAX_DESCRIPTORS) -> int | None:
    """Raise the soft limit on open descriptors towards the hard one, and return it; `None` on Windows.

    Every connection takes a descriptor, and many systems allow 1024 until asked for more.
    """
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = most if hard == resource.RLIM_INFINITY else min(hard, most)
    with suppress(OSError, ValueError):  # macOS allows less than it reports
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def last_line(text: str) -> str:
    """Return the last line of a program's output; empty if there is none."""
    return next(iter(reversed(text.strip().splitlines())), "").strip()
