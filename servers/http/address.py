"""The listening socket and its URL."""

from __future__ import annotations

import errno
import socket

from enginebench.settings.schema import UserMistake
from servers.settings import ServerSettings

BACKLOG = 2048  # connections that may wait to be accepted


def listen(settings: ServerSettings) -> socket.socket:
    """Bind the address, before a model is downloaded or loaded. Raises `UserMistake`."""
    listener = _bound(settings)
    # Its connections inherit this. asyncio sets it only for sockets that name TCP, and these do not; without it, the
    # first token waits 40 ms for the acknowledgement of the header.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _bound(settings: ServerSettings) -> socket.socket:
    if settings.listener is not None:  # bound by the program that started this server
        return socket.socket(fileno=settings.listener)
    host, port = settings.host, settings.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]
        remedy = "--port, or 0 for any" if error.errno in {errno.EADDRINUSE, errno.EACCES} else "--host"
        raise UserMistake(f"cannot listen on {host}:{port} ({reason}); choose another {remedy}.") from error


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
