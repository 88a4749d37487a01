"""When the kernel received what a read returns: the stamp that does not depend on how busy this process is.

`SO_TIMESTAMPNS` makes Linux hand a stamp over beside the bytes of `recvmsg`. TCP may have merged several segments; the
stamp is that of the last one in the read.
"""

from __future__ import annotations

import _socket
import socket
import struct
import sys
import time
from functools import cache

SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; Python has no name for it yet
TIMESPEC = struct.Struct("@ll")  # seconds and nanoseconds as the kernel's `struct timespec` has them
ANCILLARY_BYTES = _socket.CMSG_SPACE(TIMESPEC.size) if sys.platform == "linux" else 0
PATIENCE = 0.2  # seconds for the kernel to begin; it takes up to ten milliseconds

_unpack = TIMESPEC.unpack
Timespec = bytes
"""What the kernel said of a read, as it is kept until somebody looks at it; empty where it said nothing.

Bytes are no business of the garbage collector. With thousands of reads kept in lists of tuples, it had half a hundred
thousand objects to look through, and stopped the process for ten milliseconds each time.
"""


def timespec(ancillary: list[tuple[int, int, bytes]]) -> Timespec:
    """Of what `recvmsg` returned beside the bytes; nothing else was asked for."""
    return ancillary[0][2] if ancillary else b""


def kernel_stamp(timespec: Timespec) -> int | None:
    """When the last bytes of a read reached this host, wall-clock nanoseconds; `None` where the kernel did not say."""
    if not timespec:
        return None
    seconds, nanoseconds = _unpack(timespec)
    return seconds * 1_000_000_000 + nanoseconds  # type: ignore[no-any-return]


def ask_for_stamps(sock: _socket.socket) -> None:
    """From now on, reads of `sock` carry stamps. Elsewhere than under Linux they do not, and the records say so."""
    if sys.platform == "linux":
        _keep_the_kernel_stamping()
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)


@cache
def _keep_the_kernel_stamping() -> tuple[_socket.socket, ...]:
    """The kernel stamps only while some socket wants it, and begins a little later: keep one, wait for its first."""
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
        give_up = time.monotonic() + PATIENCE
        stamped = False
        while not stamped and time.monotonic() < give_up:
            sender.send(b"?")
            stamped = kernel_stamp(timespec(receiver.recvmsg(64, ANCILLARY_BYTES)[1])) is not None
    except OSError:  # a host without loopback: the first records may have to do with user-space stamps
        return ()
    finally:
        listener.close()
    return sender, receiver
