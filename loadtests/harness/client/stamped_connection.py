"""A connection whose reads have the kernel's receive stamp.

It is opened with gevent, then detached into a plain non-blocking socket that libev watches, so that a read needs no
switch of greenlets. TLS uses memory buffers around the same socket: the stamps are those of the encrypted bytes, before
decryption.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import os
import socket
import ssl
from time import monotonic_ns

import gevent
from gevent import socket as cooperative

from loadtests.harness.client.kernel_stamps import ANCILLARY_BYTES, Timespec, ask_for_stamps
from loadtests.harness.client.round_trip import shortest_round_trip
from loadtests.harness.client.server_address import Address
from loadtests.harness.client.tls import not_trusted

READ_BYTES, LARGE_READ_BYTES = 4096, 65536  # a large buffer costs one more microsecond for each read
WRITE_BYTES = 65536  # some 30 µs, or 60 µs under TLS
CONNECT_TIMEOUT = 10.0  # seconds

Read = tuple[int, Timespec, bytes]
"""Monotonic user-space stamp after the read, the kernel's stamp, and the bytes (empty at the end of the stream)."""


class Connection:
    """A connected, non-blocking socket."""

    unhurried = False
    """Whether the tokens of its last answer were slow enough to be read in batches with other answers."""
    answers = 0  # number of answers, also incomplete ones

    def __init__(self, sock: _socket.socket) -> None:
        self._sock = sock
        self.round_trip = shortest_round_trip(sock)
        self._recvmsg = sock.recvmsg
        self._read_bytes = READ_BYTES
        self._plain = memoryview(b"")  # part of the message that is not wrapped yet
        self._unsent = memoryview(b"")  # wrapped, and not taken by the kernel yet
        self.fileno = sock.fileno()

    def receive(self) -> Read | None:
        """Read without blocking; return `None` if no bytes have arrived. Raises `OSError`."""
        try:
            data, ancillary, _, _ = self._recvmsg(self._read_bytes, ANCILLARY_BYTES)
        except BlockingIOError:
            return None
        if len(data) == READ_BYTES:  # more arrives at a time than the buffer holds
            self._read_bytes = LARGE_READ_BYTES
        return monotonic_ns(), ancillary[0][2] if ancillary else b"", data  # no other ancillary data is requested

    def prepare(self, message: bytes) -> None:
        """Take a message to send piece by piece, and wrap the first piece. The previous message must have been sent."""
        self._plain = memoryview(message)
        self._wrap_next()

    def send(self) -> bool:
        """Pass one piece to the kernel without blocking; return whether the whole message is sent. Raises `OSError`.

        A prompt of half a megabyte in one piece would delay other requests that are due meanwhile.
        """
        if not self._unsent:
            self._wrap_next()
        self._push()
        return not self._unsent and not self._plain

    def _wrap_next(self) -> None:
        piece, self._plain = self._plain[:WRITE_BYTES], self._plain[WRITE_BYTES:]
        self._unsent = memoryview(self._wrapped(piece))

    def _wrapped(self, piece: memoryview) -> bytes | memoryview:
        """Return the bytes to send for `piece`, which TLS encrypts."""
        return piece

    def _push(self) -> None:
        if self._unsent:
            with contextlib.suppress(BlockingIOError):
                self._unsent = self._unsent[self._sock.send(self._unsent) :]

    def is_idle(self) -> bool:
        """Return whether the connection is open and without unread bytes, as it must be between two requests."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return not self._unsent and not self._plain
        except OSError:
            return False
        return False  # closed by the server, or unexpected bytes

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.close()


class TlsConnection(Connection):
    """A connection with TLS. Call `handshake` first."""

    def __init__(self, sock: _socket.socket, context: ssl.SSLContext, host: str) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)

    def handshake(self) -> None:
        """Shake hands cooperatively. Raises `OSError`, for example `ssl.SSLError`."""
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._flush(wait=True)
                cooperative.wait_read(self.fileno)
                self._take_in()
        self._flush(wait=True)

    def receive(self) -> Read | None:
        read = super().receive()
        if read is None:
            return None
        user_stamp, kernel_stamp, encrypted = read
        if encrypted:
            self._incoming.write(encrypted)
        plain, ended = self._decrypt()
        if ended:  # so that the next read is the end of the stream, even if the server waits for our close
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RD)
        self._flush()
        if encrypted and not plain and not ended:
            return None  # part of a record, or a TLS message without data
        return user_stamp, kernel_stamp, plain

    def is_idle(self) -> bool:
        if super().is_idle():
            return True
        try:  # a TLS 1.3 server sends session tickets after the handshake: bytes that belong to no request
            return self.receive() is None and super().is_idle()
        except OSError:
            return False

    def _wrapped(self, piece: memoryview) -> bytes:
        if piece:
            self._tls.write(piece)
        return self._outgoing.read()

    def _decrypt(self) -> tuple[bytes, bool]:
        """Return the decrypted bytes, and whether the server has closed the TLS stream."""
        pieces = []
        try:
            while piece := self._tls.read(LARGE_READ_BYTES):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces), False
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(pieces), True

    def _take_in(self) -> None:
        read = super().receive()
        if read is not None:
            if not read[2]:
                raise ConnectionResetError(
                    errno.ECONNRESET, "the server closed the connection during the TLS handshake"
                )
            self._incoming.write(read[2])

    def _flush(self, wait: bool = False) -> None:
        """Send TLS's own messages before the rest of ours; with `wait`, send everything."""
        if self._outgoing.pending:
            self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
        self._push()
        while wait and self._unsent:
            cooperative.wait_write(self.fileno)
            self._push()


def open_connection(address: Address, tls: ssl.SSLContext | None) -> Connection:
    """Connect and, with `tls`, shake hands, cooperatively. Raises `OSError` with a sentence."""
    where = f"{address.host}:{address.port}"
    limit = gevent.Timeout(CONNECT_TIMEOUT)
    try:
        with limit:
            return _opened(address, tls)
    except gevent.Timeout as expired:
        if expired is not limit:
            raise
        _check_descriptors(where)
        late = f"{where} did not accept a connection within {CONNECT_TIMEOUT:g} s"
        raise TimeoutError(errno.ETIMEDOUT, late) from None
    except ssl.SSLCertVerificationError as error:
        raise ConnectionError(errno.EPROTO, not_trusted(where, error)) from None
    except socket.gaierror as error:
        _check_descriptors(where)
        raise ConnectionError(error.errno, f"no connection to {where}: {error.strerror or error}") from None
    except OSError as error:
        raise ConnectionError(error.errno, f"no connection to {where}: {error.strerror or error}") from None


def _check_descriptors(where: str) -> None:
    """Raise `OSError` if this process has no free descriptor, which can be the reason why a name is not found."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        raise ConnectionError(error.errno, f"no connection to {where}: {error.strerror}") from None


def _opened(address: Address, tls: ssl.SSLContext | None) -> Connection:
    sock = _connect(address)
    if tls is None:
        return Connection(sock)
    try:
        connection = TlsConnection(sock, tls, address.host)
        connection.handshake()
    except BaseException:
        sock.close()
        raise
    return connection


def _connect(address: Address) -> _socket.socket:
    opened = cooperative.create_connection((address.host, address.port))
    family, kind, protocol = opened.family, opened.type, opened.proto
    # The C module's socket, which gevent does not patch, and whose reads have no Python layer.
    sock = _socket.socket(family, kind, protocol, fileno=opened.detach())
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ask_for_stamps(sock)
    return sock
