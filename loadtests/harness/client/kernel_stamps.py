"""The kernel's receive stamps of reads, which do not depend on how busy this process is.

With `SO_TIMESTAMPNS`, Linux returns a stamp with the bytes of `recvmsg`. TCP may have merged several segments; the
stamp belongs to the last one in the read.
"""

from __future__ import annotations

import _socket
import socket
import struct
import sys
import time
from collections.abc import Sequence
from functools import cache

SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; Python has no name for it yet
TIMESPEC = struct.Struct("@ll")  # seconds and nanoseconds, as in the kernel's `struct timespec`
ANCILLARY_BYTES = _socket.CMSG_SPACE(TIMESPEC.size) if sys.platform == "linux" else 0
START_LIMIT = 0.2  # seconds for the kernel to start stamping; it takes up to ten milliseconds

_unpack = TIMESPEC.unpack
Timespec = bytes
"""A read's stamp in the kernel's form, decoded later; empty without a stamp.

The garbage collector does not track bytes objects. With thousands of reads kept as tuples, it had fifty thousand
objects to traverse, and each collection stopped the process for ten milliseconds.
"""


def timespec(ancillary: list[tuple[int, int, bytes]]) -> Timespec:
    """Return the stamp in the ancillary data of `recvmsg`, which has no other data."""
    return ancillary[0][2] if ancillary else b""


def kernel_stamp(timespec: Timespec) -> int | None:
    """Return when the last bytes of a read reached this host, in wall-clock nanoseconds; `None` without a stamp."""
    if not timespec:
        return None
    seconds, nanoseconds = _unpack(timespec)
    return seconds * 1_000_000_000 + nanoseconds  # type: ignore[no-any-return]


def kernel_stamps(timespecs: Sequence[Timespec]) -> list[int | None]:
    if not all(timespecs):
        return [kernel_stamp(timespec) for timespec in timespecs]
    parts = struct.unpack(f"@{2 * len(timespecs)}l", b"".join(timespecs))
    return [seconds * 1_000_000_000 + nanoseconds for seconds, nanoseconds in zip(parts[::2], parts[1::2], strict=True)]


def ask_for_stamps(sock: _socket.socket) -> None:
    """Ask the kernel to stamp reads of `sock`. Only Linux does so; records name their kind of stamps."""
    if sys.platform == "linux":
        _keep_the_kernel_stamping()
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


@cache
def _keep_the_kernel_stamping() -> tuple[_socket.socket, ...]:
    """Keep a stamped socket open, and wait for its first stamp: the kernel stamps only while a socket asks for it, and
    starts late."""
    listener = _socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sender = _socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        sender.connect(listener.getsockname())
        fileno, _ = listener._accept()  # type: ignore[attr-defined]  # the C module's name for it
        receiver = _socket.socket(fileno=fileno)
        receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        give_up = time.monotonic() + START_LIMIT
        stamped = False
        while not stamped and time.monotonic() < give_up:
            sender.send(b"?")
            stamped = kernel_stamp(timespec(receiver.recvmsg(64, ANCILLARY_BYTES)[1])) is not None
    except OSError:  # a host without loopback: the first records may have user-space stamps
        return ()
    finally:
        listener.close()
    return sender, receiver
