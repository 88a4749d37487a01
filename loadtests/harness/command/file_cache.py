"""The operating system's cache of files: a server that is started again reads its model from this cache."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from enginebench.settings.schema import UserMistake

MAX_LEFT = 0.05  # share that may stay in the cache
FAILED = ctypes.c_void_p(-1).value  # mmap's result if it fails


def drop_from_cache(paths: Iterable[Path]) -> float | None:
    """Drop files, and all files of folders, from the cache, and return the share of their bytes that stayed; `None` if
    the system does not tell. Pages that a process has mapped stay. Raises `UserMistake` for a missing path."""
    sizes, bytes_left = 0, 0.0
    for path in paths:
        for file in _files(path.expanduser()):
            share_left = _drop(file)
            if share_left is None:
                return None
            size = file.stat().st_size
            sizes, bytes_left = sizes + size, bytes_left + share_left * size
    return bytes_left / sizes if sizes else 0.0


def _files(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise UserMistake(f"--drop-cache: {path} does not exist.")
    yield from (file for file in ([path] if path.is_file() else sorted(path.rglob("*"))) if file.is_file())


def _drop(path: Path) -> float | None:
    if not hasattr(os, "posix_fadvise"):
        return None
    with path.open("rb") as file:
        os.fsync(file.fileno())  # only pages that are on disk can be dropped
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return _cached(file.fileno(), path.stat().st_size)


def _cached(descriptor: int, size: int) -> float | None:
    """Return the share of a file's pages that are in the cache, by mincore(2); `None` if the system does not tell."""
    if size == 0:
        return 0.0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if address == FAILED:
        return None
    pages = ctypes.create_string_buffer(-(-size // mmap.PAGESIZE))
    try:
        answered = libc.mincore(address, size, pages) == 0
    finally:
        libc.munmap(address, size)
    return sum(page & 1 for page in pages.raw) / len(pages.raw) if answered else None
