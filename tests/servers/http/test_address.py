"""The listening socket."""

from __future__ import annotations

import socket

from servers.http.address import listen
from servers.settings import ServerSettings


def test_connections_send_each_token_at_once() -> None:
    """Without the option, the first token waits for the acknowledgement of the header, if asyncio serves."""
    with listen(ServerSettings(port=0)) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
