"""The network's share of a latency: the shortest round trip of a connection, as the kernel measures it.

Right after a connection is opened, that is the round trip of its handshake. Behind a proxy, it is the way to the proxy.
"""

from __future__ import annotations

import _socket
import socket
import struct
import sys

MIN_RTT = 148  # offset of `tcpi_min_rtt` in the kernel's `struct tcp_info` (linux/tcp.h), since Linux 4.6
UNKNOWN = 0xFFFFFFFF


def shortest_round_trip(sock: _socket.socket) -> float | None:
    """Return seconds; `None` on systems other than Linux."""
    if sys.platform != "linux":
        return None
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, MIN_RTT + 4)
    if len(info) < MIN_RTT + 4:
        return None
    (microseconds,) = struct.unpack_from("=I", info, MIN_RTT)
    return None if microseconds == UNKNOWN else microseconds / 1e6
