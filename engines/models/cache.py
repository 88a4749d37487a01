"""Folders in the user's cache that are either complete or absent.

A folder appears under its name in one step, so a killed process leaves no incomplete model; a lock makes a second
process wait for the first one's work instead of repeating it. `ENGINEBENCH_CACHE` moves the whole cache.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from engines.contract.base import Model
from engines.contract.errors import EngineUnavailable
from engines.models.progress import Progress, silent

LOCK_PATIENCE = 0.5  # seconds before a waiting process reports that it waits


def cache_folder() -> Path:
    """Return the folder of models, which may not exist yet."""
    if chosen := os.environ.get("ENGINEBENCH_CACHE"):
        return Path(chosen).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("enginebench")


def built_once(
    folder: Path, build: Callable[[Path], None], *, needs_bytes: int = 0, progress: Progress = silent
) -> Path:
    """Return `folder`, which `build` fills if it is missing.

    `build` gets an empty folder next to the final one, in one process at a time; remains of a killed process are
    removed first. Raises `EngineUnavailable` if the disk is full or read-only.
    """
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder, progress):
            if folder.is_dir():  # another process built it while this one waited
                return folder
            _check_space(folder.parent, needs_bytes)
            unfinished = folder.with_name(f".{folder.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            try:
                build(unfinished)
                _write_through(unfinished)
                unfinished.rename(folder)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)  # it may have filled the disk
                raise
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise EngineUnavailable(
                f"the disk of {folder.parent} is full; free some space or set ENGINEBENCH_CACHE to another folder."
            ) from error
        raise EngineUnavailable(
            f"cannot write to {error.filename or folder.parent} ({error.strerror or error}); set ENGINEBENCH_CACHE to "
            "a folder that can be written to."
        ) from error
    return folder


def converted_once(
    model: Model, form: str, files: Sequence[Path], write: Callable[[Path], None], *, version: int, needs_bytes: int
) -> Path:
    """Return a folder of the cache that `write` fills from the model's `files`, built once; changed files count as
    another model. `form` is `kind/format`, and `version` is the output format's."""
    stamps = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    identity = hashlib.sha256(repr((stamps, version)).encode()).hexdigest()[:12]
    kind, _, format = form.partition("/")
    name = model.name.replace("/", "-").replace(":", "-")
    folder = cache_folder() / kind / f"{name}-{format}-{identity}"
    return built_once(folder, write, needs_bytes=needs_bytes)


@contextlib.contextmanager
def locked(folder: Path, progress: Progress) -> Iterator[None]:
    """Hold a lock that one process has at a time. It is next to the folder, which need not exist."""
    import filelock

    lock = filelock.FileLock(folder.with_name(f".{folder.name}.lock"))
    try:
        lock.acquire(timeout=LOCK_PATIENCE)
    except filelock.Timeout:
        progress(f"waiting for another process that is building {folder.name}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _check_space(folder: Path, needs_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needs_bytes:
        raise EngineUnavailable(
            f"{folder} has {free / 1e9:.1f} GB free and {needs_bytes / 1e9:.1f} GB are needed; free some space or set "
            "ENGINEBENCH_CACHE to another folder."
        )


def _write_through(folder: Path) -> None:
    """Flush every file to the disk before the folder is renamed to its final name. Targets of links are not ours."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
